// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests the network's rings: frames arrive whole and in order, a side that restarts connects again, no ring is
//! missing, no memory content makes a side fail, and the driver's C code does the same.

use std::cell::{Cell, RefCell};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rampart_ring::mapping::SharedMapping;
use rampart_ring::network::{
    ANSWERED, FrameTransfer, HEADER_WORDS, LEAST_FRAME, Link, LinkState, MAGIC, MOST_FRAME,
    MOST_SLOTS, NUMBER, RECEIVE_MARK, SEND_MARK, SLOT_WORDS, Section, TAKEN, WRITTEN, slots,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::memory;

const SLOTS: usize = 4;
const WORDS: usize = HEADER_WORDS + SLOTS * SLOT_WORDS;

fn number(value: u64) -> NonZeroU64 {
    NonZeroU64::new(value).expect("not 0")
}

type Plain<'a> = Link<&'a [AtomicU64], &'a [AtomicU64]>;

fn open<'a>(own: &'a [AtomicU64], other: &'a [AtomicU64], value: u64) -> Plain<'a> {
    Link::open(own, other, number(value)).expect("large enough")
}

/// Connects two sides.
fn connect<Own: Section, Other: Section>(one: &mut Link<Own, Other>, two: &mut Link<Other, Own>) {
    one.update();
    two.update();
    one.update();
    assert_eq!(
        (one.state(), two.state()),
        (LinkState::Connected, LinkState::Connected)
    );
}

/// Returns a frame that the receiver can compute.
fn frame(count: u64) -> Vec<u8> {
    let length = LEAST_FRAME + (count as usize * 131) % (MOST_FRAME - LEAST_FRAME + 1);
    let byte = |index: usize| (index as u64).wrapping_mul(count + 7) as u8;
    (0..length).map(byte).collect()
}

#[test]
fn frames_arrive_whole_and_in_order() {
    let (near, far) = (memory(WORDS), memory(WORDS));
    let (mut one, mut two) = (open(&near, &far, 1), open(&far, &near, 2));
    let mut buffer = [0; MOST_FRAME];
    assert_eq!(one.send(&frame(0)), FrameTransfer::Down);
    connect(&mut one, &mut two);
    for count in 0..1000 {
        let (bytes, ring) = (frame(count).len(), true);
        // The receiver sleeps, so each frame rings.
        assert_eq!(two.receive(&mut buffer), FrameTransfer::Nothing);
        assert_eq!(
            one.send(&frame(count)),
            FrameTransfer::Frame { bytes, ring }
        );
        let received = two.receive(&mut buffer);
        assert_eq!(received, FrameTransfer::Frame { bytes, ring: false });
        assert_eq!(buffer[..bytes], frame(count));
    }
    for length in [0, LEAST_FRAME - 1, MOST_FRAME + 1] {
        let sent = one.send(&vec![0; length]);
        assert_eq!(sent, FrameTransfer::Skipped { ring: false });
    }
}

#[test]
fn a_full_section_waits_until_half_of_it_is_free() {
    let (near, far) = (memory(WORDS), memory(WORDS));
    let (mut one, mut two) = (open(&near, &far, 1), open(&far, &near, 2));
    connect(&mut one, &mut two);
    for count in 0..SLOTS as u64 {
        // Only the first one finds a receiver that sleeps.
        let (bytes, ring) = (frame(count).len(), count == 0);
        assert_eq!(
            one.send(&frame(count)),
            FrameTransfer::Frame { bytes, ring }
        );
    }
    assert_eq!(one.send(&frame(4)), FrameTransfer::Nothing);
    let mut buffer = [0; MOST_FRAME];
    for count in 0..SLOTS as u64 {
        let (bytes, ring) = (frame(count).len(), count == SLOTS as u64 / 2 - 1);
        assert_eq!(
            two.receive(&mut buffer),
            FrameTransfer::Frame { bytes, ring }
        );
    }
    assert!(one.has_space());
}

#[test]
fn a_side_that_restarts_connects_again() {
    let (near, far) = (memory(WORDS), memory(WORDS));
    let (mut one, mut two) = (open(&near, &far, 1), open(&far, &near, 2));
    connect(&mut one, &mut two);
    for count in 0..3 {
        one.send(&frame(count));
    }
    drop(two);
    assert_eq!(one.update(), (LinkState::Absent, false));
    assert_eq!(one.send(&frame(3)), FrameTransfer::Down);
    let mut two = open(&far, &near, 3);
    connect(&mut one, &mut two);
    let mut buffer = [0; MOST_FRAME];
    assert_eq!(
        two.receive(&mut buffer),
        FrameTransfer::Nothing,
        "nothing of the earlier session"
    );
    // One that restarts without a word: a new number is enough.
    std::mem::forget(two);
    let mut two = open(&far, &near, 4);
    connect(&mut one, &mut two);
    assert!(matches!(one.send(&frame(3)), FrameTransfer::Frame { .. }));
    assert!(matches!(
        two.receive(&mut buffer),
        FrameTransfer::Frame { .. }
    ));
}

#[test]
fn impossible_counts_end_the_session_until_the_next_one() {
    for word in [WRITTEN, TAKEN] {
        let (near, far) = (memory(WORDS), memory(WORDS));
        let (mut one, mut two) = (open(&near, &far, 1), open(&far, &near, 2));
        connect(&mut one, &mut two);
        far[word].store(SLOTS as u64 + 1, Ordering::Relaxed);
        let mut buffer = [0; MOST_FRAME];
        let transfer = if word == TAKEN {
            one.send(&frame(0))
        } else {
            one.receive(&mut buffer)
        };
        assert_eq!(
            (transfer, one.state()),
            (FrameTransfer::Down, LinkState::Refused)
        );
        assert_eq!(one.update().0, LinkState::Refused);
        assert_eq!(near[ANSWERED].load(Ordering::Relaxed), 0);
        std::mem::forget(two);
        two = open(&far, &near, 5);
        connect(&mut one, &mut two);
    }
}

#[test]
fn invalid_lengths_are_skipped() {
    let (near, far) = (memory(WORDS), memory(WORDS));
    let (mut one, mut two) = (open(&near, &far, 1), open(&far, &near, 2));
    connect(&mut one, &mut two);
    let mut buffer = [0; MOST_FRAME];
    for length in [0, 13, 2041, u64::MAX, 1 << 32 | 64] {
        one.send(&frame(0));
        let at = HEADER_WORDS
            + [0, 13, 2041, u64::MAX, 1 << 32 | 64]
                .iter()
                .position(|one| *one == length)
                .expect("one of them")
                % SLOTS
                * SLOT_WORDS;
        near[at].store(length, Ordering::Relaxed);
        assert!(
            matches!(two.receive(&mut buffer), FrameTransfer::Skipped { .. }),
            "{length}"
        );
    }
}

/// A section that another side changes all the time: a load returns anything, often a plausible value.
struct Hostile {
    generator: RefCell<Pcg64Mcg>,
    accesses: Cell<usize>,
    /// The number that the attacked side has.
    victim: u64,
}

impl Section for &Hostile {
    fn words(&self) -> usize {
        WORDS
    }

    fn load(&self, index: usize, _: Ordering) -> u64 {
        assert!(index < WORDS, "outside the section: {index}");
        self.accesses.set(self.accesses.get() + 1);
        let mut generator = self.generator.borrow_mut();
        let small = generator.random::<u64>() % (2 * SLOTS as u64 + 2);
        let random = generator.random();
        match (index, generator.random::<u8>() % 8) {
            (_, 0) => random,
            (0, _) => MAGIC,
            (NUMBER, 1) => small,
            (NUMBER, _) => 77,
            (ANSWERED, _) => self.victim,
            (WRITTEN | TAKEN | RECEIVE_MARK | SEND_MARK, _) => small,
            _ => random % (MOST_FRAME as u64 + 20),
        }
    }

    fn store(&self, _: usize, _: u64, _: Ordering) {
        panic!("the other section is written");
    }
}

#[test]
fn no_content_of_the_other_section_makes_a_side_fail() {
    let near = memory(WORDS);
    let (mut frames, mut refused) = (0, 0);
    for seed in 0..2000 {
        let hostile = Hostile {
            generator: RefCell::new(Pcg64Mcg::seed_from_u64(seed)),
            accesses: Cell::new(0),
            victim: 1,
        };
        let mut link = Link::open(&near[..], &hostile, number(1)).expect("large enough");
        let mut buffer = [0; MOST_FRAME];
        for step in 0..100 {
            hostile.accesses.set(0);
            match step % 3 {
                0 => drop(link.update()),
                1 => drop(link.send(&frame(step))),
                _ => {
                    let received = link.receive(&mut buffer);
                    if let FrameTransfer::Frame { bytes, .. } = received {
                        assert!((LEAST_FRAME..=MOST_FRAME).contains(&bytes));
                        frames += 1;
                    }
                }
            }
            refused += u32::from(link.state() == LinkState::Refused);
            let accesses = hostile.accesses.get();
            assert!(accesses <= SLOT_WORDS + 8, "{accesses} accesses");
        }
    }
    assert!(frames > 1000 && refused > 1000, "{frames} {refused}");
}

#[test]
fn sizes_are_checked() {
    assert_eq!(slots(0), None);
    assert_eq!(slots(HEADER_WORDS + 2 * SLOT_WORDS - 1), None);
    assert_eq!(slots(HEADER_WORDS + 2 * SLOT_WORDS), Some(2));
    assert_eq!(slots(HEADER_WORDS + 7 * SLOT_WORDS), Some(4));
    assert_eq!(slots(usize::MAX), Some(MOST_SLOTS));
    let (near, far) = (memory(WORDS), memory(WORDS + SLOTS * SLOT_WORDS));
    assert!(Link::open(&near[..], &far[..], number(1)).is_none());
}

fn driver() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../kernel/net")
}

/// Compiles the test program with the driver's rings.
fn compiled(directory: &Path) -> PathBuf {
    let program = directory.join("ring-test");
    let compiler = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Werror"])
        .args([
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover=all",
            "-pthread",
            "-o",
        ])
        .arg(&program)
        .arg(driver().join("tests/ring-test.c"))
        .output()
        .expect("cc, which scripts/setup build installs");
    let errors = String::from_utf8_lossy(&compiler.stderr);
    assert!(compiler.status.success(), "{errors}");
    program
}

#[test]
fn the_driver_has_the_same_layout() {
    let header = std::fs::read_to_string(driver().join("ring.h")).expect("ring.h");
    let value = |name: &str| -> u64 {
        let prefix = format!("#define RAMPART_RING_{name}\t");
        let line = header.lines().find(|line| line.starts_with(&prefix));
        let text = line.unwrap_or_else(|| panic!("no {name}"))[prefix.len()..].trim();
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits.trim_end_matches("ULL"), 16),
            None => text.parse(),
        }
        .expect("a number")
    };
    let all = [
        ("MAGIC", MAGIC),
        ("NUMBER", NUMBER as u64),
        ("ANSWERED", ANSWERED as u64),
        ("WRITTEN", WRITTEN as u64),
        ("TAKEN", TAKEN as u64),
        ("RECEIVE_MARK", RECEIVE_MARK as u64),
        ("SEND_MARK", SEND_MARK as u64),
        ("HEADER_WORDS", HEADER_WORDS as u64),
        ("SLOT_WORDS", SLOT_WORDS as u64),
        ("LEAST_FRAME", LEAST_FRAME as u64),
        ("MOST_FRAME", MOST_FRAME as u64),
        ("MOST_SLOTS", MOST_SLOTS),
    ];
    let defined = header
        .lines()
        .filter(|line| line.starts_with("#define RAMPART_RING_"));
    assert_eq!(
        defined.count(),
        all.len(),
        "a constant that is not compared"
    );
    for (name, wanted) in all {
        assert_eq!(value(name), wanted, "{name}");
    }
}

/// The driver's rings against random content that a thread changes, under the address sanitizer.
#[test]
fn no_content_of_the_other_section_makes_the_drivers_rings_fail() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = compiled(directory.path());
    let output = Command::new(program).args(["hostile", "2000"]).output();
    let output = output.expect("started");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The driver's rings, in another process, echo each frame.
#[test]
fn the_drivers_rings_exchange_frames_with_these() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = compiled(directory.path());
    let path = directory.path().join("sections");
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path);
    let file = file.expect("a file");
    file.set_len(2 * WORDS as u64 * 8).expect("its size");
    let mapping = SharedMapping::new(&file, 0, 2 * WORDS * 8, true).expect("mapped");
    let (near, far) = mapping.words().split_at(WORDS);
    let mut other = Command::new(program)
        .arg("echo")
        .arg(&path)
        .spawn()
        .expect("started");
    let mut link = open(near, far, 9);
    let begin = Instant::now();
    let in_time = || assert!(begin.elapsed() < Duration::from_secs(60), "no answer");
    while link.update().0 != LinkState::Connected {
        in_time();
        std::thread::yield_now();
    }
    let mut buffer = [0; MOST_FRAME];
    let (mut sent, mut received) = (0, 0);
    while received < 5000 {
        in_time();
        if sent < 5000 && matches!(link.send(&frame(sent)), FrameTransfer::Frame { .. }) {
            sent += 1;
        }
        match link.receive(&mut buffer) {
            FrameTransfer::Frame { bytes, .. } => {
                assert_eq!(buffer[..bytes], frame(received));
                received += 1;
            }
            FrameTransfer::Nothing => std::thread::yield_now(),
            other => panic!("{other:?} after {received}"),
        }
    }
    drop(link);
    assert!(other.wait().expect("it ends").success());
}
