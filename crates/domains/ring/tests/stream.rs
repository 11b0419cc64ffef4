// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests the byte stream: bytes arrive whole and in order, the end or restart of a side is
//! detected, and no memory content, however it changes, makes a side fail.

use std::num::NonZeroU64;
use std::sync::atomic::Ordering::Relaxed;

use rampart_ring::stream::{HEADER_WORDS, Lost, MAGIC, StreamSide, leftover};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::memory;

fn number(value: u64) -> NonZeroU64 {
    NonZeroU64::new(value).expect("not 0")
}

fn taken(side: &mut StreamSide<'_>) -> Result<Vec<u8>, Lost> {
    let mut buffer = [0; 4096];
    side.read(&mut buffer).map(|count| buffer[..count].to_vec())
}

#[test]
fn transfers_bytes_in_order_in_both_directions() {
    let (near, far) = (memory(HEADER_WORDS + 16), memory(HEADER_WORDS + 4));
    let mut caller = StreamSide::call(&near, &far, number(1)).expect("large enough");
    assert_eq!(caller.is_connected(), Ok(false));
    assert_eq!(caller.write(b"greeting"), Ok(8), "kept until the answer");
    let mut other = StreamSide::answer(&far, &near, number(2)).expect("a call");
    assert!(
        StreamSide::answer(&far, &near, number(3)).is_some(),
        "not answered as long as the caller has not seen it"
    );
    drop(other);
    other = StreamSide::answer(&far, &near, number(4)).expect("a call");
    assert_eq!(caller.is_connected(), Ok(true));
    assert!(
        StreamSide::answer(&far, &near, number(5)).is_none(),
        "answered"
    );
    assert_eq!(taken(&mut other), Ok(b"greeting".to_vec()));
    let mut generator = Pcg64Mcg::seed_from_u64(1);
    let text: Vec<u8> = (0..5000).map(|_| generator.random()).collect();
    let (mut sent, mut received) = ([0; 2], [vec![], vec![]]);
    while received.iter().any(|received| received.len() < text.len()) {
        for (index, side) in [&mut caller, &mut other].into_iter().enumerate() {
            let most = generator.random_range(0..200);
            let rest = &text[sent[index]..];
            sent[index] += side
                .write(&rest[..most.min(rest.len())])
                .expect("connected");
            let mut buffer = vec![0; generator.random_range(0..50)];
            let count = side.read(&mut buffer).expect("connected");
            received[index].extend_from_slice(&buffer[..count]);
        }
    }
    assert_eq!(received, [text.clone(), text]);
}

#[test]
fn overwrites_no_byte_before_it_is_taken() {
    let (near, far) = (memory(HEADER_WORDS + 4), memory(HEADER_WORDS + 4));
    let mut caller = StreamSide::call(&near, &far, number(1)).expect("large enough");
    assert_eq!(caller.write(&[1; 20]), Ok(20));
    let mut other = StreamSide::answer(&far, &near, number(2)).expect("a call");
    assert_eq!(caller.write(&[2; 20]), Ok(12), "the ring has 32 bytes");
    assert_eq!(caller.write(&[3]), Ok(0));
    let mut first = [0; 5];
    assert_eq!(other.read(&mut first), Ok(5));
    assert_eq!(caller.write(&[3; 20]), Ok(5));
    let all = [vec![1; 15], vec![2; 12], vec![3; 5]].concat();
    assert_eq!(taken(&mut other), Ok(all));
}

#[test]
fn detects_the_end_or_restart_of_a_side() {
    let (near, far) = (memory(HEADER_WORDS + 4), memory(HEADER_WORDS + 4));
    let mut caller = StreamSide::call(&near, &far, number(1)).expect("large enough");
    let mut other = StreamSide::answer(&far, &near, number(2)).expect("a call");
    assert_eq!(caller.is_connected(), Ok(true));
    // The caller's program was replaced: it calls again, and bytes of the old call are not read.
    assert_eq!(caller.write(b"old"), Ok(3));
    let mut second = StreamSide::call(&near, &far, number(3)).expect("large enough");
    assert_eq!(taken(&mut other), Err(Lost::Gone));
    assert_eq!(other.write(b"x"), Err(Lost::Gone));
    drop(caller);
    assert_eq!(
        second.write(b"new"),
        Ok(3),
        "the end of the old call does not end the new one"
    );
    let mut other = StreamSide::answer(&far, &near, number(4)).expect("a call");
    assert_eq!(taken(&mut other), Ok(b"new".to_vec()));
    assert_eq!(second.is_connected(), Ok(true));
    // The answering side was restarted: it does not answer a call that is already answered.
    assert!(StreamSide::answer(&far, &near, number(5)).is_none());
    drop(other);
    assert_eq!(taken(&mut second), Err(Lost::Gone));
    drop(second);
    assert!(
        StreamSide::answer(&far, &near, number(6)).is_none(),
        "no call"
    );
}

#[test]
fn refuses_too_small_memory() {
    let (enough, short) = (memory(HEADER_WORDS + 1), memory(HEADER_WORDS));
    assert!(StreamSide::call(&enough, &short, number(1)).is_none());
    assert!(StreamSide::call(&short, &enough, number(1)).is_none());
    assert!(StreamSide::call(&enough, &memory(0), number(1)).is_none());
    assert_eq!(leftover(&short, |_| ()), None);
}

#[test]
fn finds_the_last_bytes_after_both_sides_ended() {
    let (near, far) = (memory(HEADER_WORDS + 4), memory(HEADER_WORDS + 4));
    let mut caller = StreamSide::call(&near, &far, number(1)).expect("large enough");
    let mut other = StreamSide::answer(&far, &near, number(2)).expect("a call");
    for turn in 0..10_u8 {
        assert_eq!(caller.write(&[turn; 7]), Ok(7));
        assert_eq!(taken(&mut other).map(|bytes| bytes.len()), Ok(7));
    }
    drop((caller, other));
    let mut found = Vec::new();
    assert_eq!(leftover(&near, |byte| found.push(byte)), Some(70));
    let all: Vec<u8> = (0..10).flat_map(|turn| [turn; 7]).collect();
    assert_eq!(found, all[70 - 32..]);
    let mut none = Vec::new();
    near[3].store(u64::MAX, Relaxed);
    assert_eq!(leftover(&near, |byte| none.push(byte)), Some(u64::MAX));
    assert_eq!(none.len(), 32, "at most the size of the ring");
}

/// Random words in the other side's section, changed between any two calls.
#[test]
fn no_memory_makes_a_side_panic_or_exceed_its_buffer() {
    let mut generator = Pcg64Mcg::seed_from_u64(3);
    let (own, other) = (memory(HEADER_WORDS + 8), memory(HEADER_WORDS + 8));
    let mut seen = [0_u32; 4];
    let mut side: Option<StreamSide<'_>> = None;
    for round in 1..300_000_u64 {
        let near = own[3].load(Relaxed).wrapping_add(own[4].load(Relaxed));
        let word = match generator.random_range(0..7) {
            0 => generator.random(),
            1 => 0,
            2 => round,
            3 => own[1].load(Relaxed),
            _ => near
                .wrapping_add(generator.random_range(0..80))
                .wrapping_sub(40),
        };
        let at = generator.random_range(0..HEADER_WORDS + 2);
        other[at].store(word, Relaxed);
        if generator.random_range(0..4) > 0 {
            other[0].store(MAGIC, Relaxed);
        }
        let current = match &mut side {
            Some(current) => current,
            none => {
                let new = match round % 2 {
                    0 => StreamSide::call(&own, &other, number(round)),
                    _ => StreamSide::answer(&own, &other, number(round)),
                };
                match new {
                    Some(new) => none.insert(new),
                    None => continue,
                }
            }
        };
        let mut buffer = [0; 100];
        let length = generator.random_range(0..100);
        let done = match round % 3 {
            0 => current.write(&buffer[..length]),
            _ => current.read(&mut buffer[..length]),
        };
        let index = match done {
            Ok(0) => 0,
            Ok(count) => {
                assert!(count <= length && count <= 64);
                1
            }
            Err(Lost::Gone) => 2,
            Err(Lost::Damaged) => 3,
        };
        seen[index] += 1;
        if done.is_err() {
            side = None;
        }
    }
    assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
}

const BYTES: usize = 200_000;

/// Writes and reads `BYTES` bytes at the same time. Each byte is its position times a factor of its
/// direction.
fn exchange(mut side: StreamSide<'_>, write_factor: u8, read_factor: u8) -> StreamSide<'_> {
    let (mut sent, mut received) = (0, 0);
    while sent < BYTES || received < BYTES {
        let mut bytes = [0; 33];
        for (offset, byte) in bytes.iter_mut().enumerate() {
            *byte = ((sent + offset) as u8).wrapping_mul(write_factor);
        }
        let most = bytes.len().min(BYTES - sent);
        sent += side.write(&bytes[..most]).expect("connected");
        let count = side.read(&mut bytes).expect("connected");
        for (offset, byte) in bytes[..count].iter().enumerate() {
            assert_eq!(*byte, ((received + offset) as u8).wrapping_mul(read_factor));
        }
        received += count;
        std::thread::yield_now();
    }
    side
}

/// Two threads write and read at the same time, through rings much smaller than their data.
#[test]
fn transfers_everything_between_two_threads() {
    let (near, far) = (memory(HEADER_WORDS + 16), memory(HEADER_WORDS + 16));
    let caller = StreamSide::call(&near, &far, number(1)).expect("large enough");
    let other = StreamSide::answer(&far, &near, number(2)).expect("a call");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| exchange(caller, 3, 7));
        let second = scope.spawn(|| exchange(other, 7, 3));
        // Keep both sides until both have received everything.
        let _ends = (
            first.join().expect("no panic"),
            second.join().expect("no panic"),
        );
    });
}
