// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the network's rings in all interleavings of two threads and with all values that the memory model of C11
//! permits (loom): no frame is lost, repeated or torn, no side sleeps while there is work, and two sides that
//! start and restart at any time connect.

use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, fence};
use loom::thread;
use rampart_ring::network::{
    ANSWERED, FrameTransfer, HEADER_WORDS, LEAST_FRAME, Link, LinkState, MOST_FRAME, NUMBER,
    RECEIVE_MARK, SEND_MARK, SLOT_WORDS, Section, TAKEN, WRITTEN,
};

/// Two slots: the least.
const WORDS: usize = HEADER_WORDS + 2 * SLOT_WORDS;

/// The words of a section that change: a frame's second word never does, so that there are fewer interleavings.
#[derive(Debug)]
struct Words([AtomicU64; 11]);

impl Words {
    fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    fn at(&self, index: usize) -> Option<&AtomicU64> {
        let known = [0, NUMBER, ANSWERED, WRITTEN, TAKEN, RECEIVE_MARK, SEND_MARK];
        let slot = |slot: usize| HEADER_WORDS + slot * SLOT_WORDS;
        let slots = [slot(0), slot(0) + 1, slot(1), slot(1) + 1];
        let place = known.iter().chain(&slots).position(|word| *word == index);
        place.map(|place| &self.0[place])
    }
}

/// Shared by both threads.
#[derive(Debug, Clone)]
struct Shared(Arc<Words>);

impl Section for Shared {
    fn words(&self) -> usize {
        WORDS
    }

    fn load(&self, index: usize, order: Ordering) -> u64 {
        self.0.at(index).map_or(0, |word| word.load(order))
    }

    fn store(&self, index: usize, value: u64, order: Ordering) {
        if let Some(word) = self.0.at(index) {
            word.store(value, order);
        }
    }

    fn full_barrier(&self) {
        fence(Ordering::SeqCst);
    }
}

type Side = Link<Shared, Shared>;

fn side(own: &Shared, other: &Shared, number: u64) -> Side {
    let number = NonZeroU64::new(number).expect("not 0");
    Link::open(own.clone(), other.clone(), number).expect("large enough")
}

fn connected() -> (Side, Side) {
    let sections = [
        Shared(Arc::new(Words::new())),
        Shared(Arc::new(Words::new())),
    ];
    let mut one = side(&sections[0], &sections[1], 1);
    let mut two = side(&sections[1], &sections[0], 2);
    one.update();
    two.update();
    one.update();
    (one, two)
}

/// A doorbell: rings are counted, and one that sleeps until it is rung takes all.
fn ring(bell: &AtomicU64) {
    bell.fetch_add(1, Ordering::SeqCst);
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// The sender sends some frames; the receiver takes what is there, and sleeps at the end. If it has not all then, it
/// was rung.
#[test]
fn a_receiver_that_sleeps_is_rung() {
    check(3, || {
        let (mut one, mut two) = connected();
        let bell = Arc::new(AtomicU64::new(0));
        let rung = bell.clone();
        let sender = thread::spawn(move || {
            for count in 1..=2_u64 {
                let mut frame = [0; LEAST_FRAME];
                frame[..8].copy_from_slice(&count.to_le_bytes());
                match one.send(&frame) {
                    FrameTransfer::Frame { ring: true, .. } => ring(&rung),
                    FrameTransfer::Frame { ring: false, .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            one
        });
        let mut buffer = [0; MOST_FRAME];
        let mut received = 0;
        let mut take = |received: &mut u64| loop {
            match two.receive(&mut buffer) {
                FrameTransfer::Frame { bytes, .. } => {
                    *received += 1;
                    assert_eq!(bytes, LEAST_FRAME);
                    assert_eq!(buffer[..8], received.to_le_bytes(), "in order, whole");
                }
                FrameTransfer::Nothing => break,
                other => panic!("{other:?}"),
            }
        };
        take(&mut received);
        // The sender ends while the receiver sleeps.
        let _one = sender.join().expect("it ends");
        if received < 2 {
            assert_ne!(
                bell.load(Ordering::SeqCst),
                0,
                "sleeps with {received} of 2"
            );
            take(&mut received);
        }
        assert_eq!(received, 2);
    });
}

/// The sender fills its section and sleeps; the receiver takes all. If the sender could not send all, it was rung.
#[test]
fn a_sender_that_waits_for_space_is_rung() {
    check(3, || {
        let (mut one, mut two) = connected();
        let frame = [0; LEAST_FRAME];
        for _ in 0..2 {
            assert!(matches!(one.send(&frame), FrameTransfer::Frame { .. }));
        }
        let bell = Arc::new(AtomicU64::new(0));
        let rung = bell.clone();
        let receiver = thread::spawn(move || {
            let mut buffer = [0; MOST_FRAME];
            for _ in 0..2 {
                match two.receive(&mut buffer) {
                    FrameTransfer::Frame { ring: true, .. } => ring(&rung),
                    FrameTransfer::Frame { ring: false, .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            two
        });
        let sent = one.send(&frame);
        let _two = receiver.join().expect("it ends");
        if sent == FrameTransfer::Nothing {
            assert_ne!(
                bell.load(Ordering::SeqCst),
                0,
                "waits for space that is there"
            );
            assert!(matches!(one.send(&frame), FrameTransfer::Frame { .. }));
        }
    });
}

/// One side restarts while the other one follows and sends: what arrives is of the new session, and whole.
#[test]
fn a_side_that_restarts_reads_nothing_of_the_earlier_session() {
    check(2, || {
        let sections = [
            Shared(Arc::new(Words::new())),
            Shared(Arc::new(Words::new())),
        ];
        let mut one = side(&sections[0], &sections[1], 1);
        let mut two = side(&sections[1], &sections[0], 2);
        one.update();
        two.update();
        one.update();
        let mut old = [0; LEAST_FRAME];
        old[..8].copy_from_slice(&99_u64.to_le_bytes());
        assert!(matches!(one.send(&old), FrameTransfer::Frame { .. }));
        let [near, far] = sections;
        let restarted = thread::spawn(move || {
            // It ends without a word: its successor is there before.
            let (mut two, old) = (side(&far, &near, 3), two);
            let mut buffer = [0; MOST_FRAME];
            for _ in 0..2 {
                two.update();
                match two.receive(&mut buffer) {
                    FrameTransfer::Frame { bytes, .. } => {
                        assert_eq!((bytes, buffer[0]), (LEAST_FRAME, 5), "of the new session");
                    }
                    FrameTransfer::Nothing | FrameTransfer::Down => {}
                    other => panic!("{other:?}"),
                }
            }
            (two, old)
        });
        let mut new = [0; LEAST_FRAME];
        new[0] = 5;
        for _ in 0..2 {
            one.update();
            // It may still belong to the earlier session.
            if one.state() == LinkState::Connected {
                one.send(&new);
            }
            assert_ne!(
                one.state(),
                LinkState::Refused,
                "an honest side is not refused"
            );
        }
        let (mut two, _old) = restarted.join().expect("it ends");
        for _ in 0..2 {
            one.update();
            two.update();
        }
        assert_eq!(
            (one.state(), two.state()),
            (LinkState::Connected, LinkState::Connected)
        );
    });
}
