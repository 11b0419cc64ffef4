// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests the ring of records: reads return whole records in order and report overwritten words, and
//! no memory content, however it changes, makes the reader fail.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rampart_ring::records::{
    HEADER_WORDS, MAGIC, MAXIMUM_RECORD_BYTES, Read, Reader, RecordWriter, TooLong,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::memory;

fn next(reader: &mut Reader<'_>) -> Result<(u32, Vec<u8>), Read> {
    let mut buffer = [0; MAXIMUM_RECORD_BYTES];
    match reader.read(&mut buffer) {
        Read::Record { kind, bytes } => Ok((kind, buffer[..bytes].to_vec())),
        other => Err(other),
    }
}

#[test]
fn reads_records_in_order() {
    let memory = memory(HEADER_WORDS + 64);
    let mut reader = Reader::new(&memory).expect("large enough");
    assert_eq!(next(&mut reader), Err(Read::NoRing));
    let mut writer = RecordWriter::begin(&memory).expect("large enough");
    assert_eq!(next(&mut reader), Err(Read::Nothing));
    for round in 0..100_u32 {
        let text = vec![round as u8; round as usize % 40];
        writer.write(round, &text).expect("short");
        writer.write(7, b"").expect("short");
        assert_eq!(next(&mut reader), Ok((round, text)));
        assert_eq!(next(&mut reader), Ok((7, vec![])));
        assert_eq!(next(&mut reader), Err(Read::Nothing));
    }
}

#[test]
fn reports_overwritten_words_and_continues() {
    let memory = memory(HEADER_WORDS + 16);
    let mut writer = RecordWriter::begin(&memory).expect("large enough");
    let mut reader = Reader::new(&memory).expect("large enough");
    for _ in 0..8 {
        writer.write(1, b"12345678").expect("short");
    }
    assert!(next(&mut reader).is_ok(), "a full ring can still be read");
    writer.write(1, b"abcdefgh").expect("short");
    writer.write(1, b"abcdefgh").expect("short");
    assert_eq!(
        next(&mut reader),
        Err(Read::Lost(2)),
        "one record of two words"
    );
    for wanted in [b"12345678"; 6].iter().chain([b"abcdefgh"; 2].iter()) {
        assert_eq!(
            next(&mut reader),
            Ok((1, wanted.to_vec())),
            "the other records are not lost"
        );
    }
    assert_eq!(next(&mut reader), Err(Read::Nothing));
    writer.write(2, b"xyz").expect("short");
    assert_eq!(next(&mut reader), Ok((2, b"xyz".to_vec())));
    assert_eq!(
        writer.write(1, &[0; 64]),
        Err(TooLong),
        "longer than half of the ring"
    );
    assert_eq!(
        writer.write(1, &[0; MAXIMUM_RECORD_BYTES + 1]),
        Err(TooLong)
    );
    writer.write(3, &[9; 56]).expect("half of the ring");
    assert_eq!(next(&mut reader), Ok((3, vec![9; 56])));
}

#[test]
fn follows_a_restarted_writer() {
    let memory = memory(HEADER_WORDS + 16);
    let mut reader = Reader::new(&memory).expect("large enough");
    let mut first = RecordWriter::begin(&memory).expect("large enough");
    first.write(1, b"one").expect("short");
    assert!(next(&mut reader).is_ok());
    // The cell was restarted with its old memory.
    let mut second = RecordWriter::begin(&memory).expect("large enough");
    second.write(2, b"two, which is longer").expect("short");
    second.write(3, b"three").expect("short");
    assert_eq!(next(&mut reader), Err(Read::Began));
    assert_eq!(next(&mut reader), Ok((2, b"two, which is longer".to_vec())));
    let mut another = Reader::resume(&memory, reader.mark()).expect("large enough");
    assert_eq!(next(&mut another), Ok((3, b"three".to_vec())));
    assert_eq!(next(&mut another), Err(Read::Nothing));
}

#[test]
fn reports_a_record_beyond_the_committed_end_as_damaged() {
    let memory = memory(HEADER_WORDS + 64);
    let mut writer = RecordWriter::begin(&memory).expect("large enough");
    let mut reader = Reader::new(&memory).expect("large enough");
    for length in [9, MAXIMUM_RECORD_BYTES as u64, u64::from(u32::MAX)] {
        writer.write(1, b"12345678").expect("short");
        let first = memory[1].load(Relaxed) as usize - 2;
        memory[HEADER_WORDS + first].store(length, Relaxed);
        assert_eq!(next(&mut reader), Err(Read::Damaged), "{length}");
        assert_eq!(next(&mut reader), Err(Read::Nothing));
    }
    writer.write(2, b"next").expect("short");
    assert_eq!(next(&mut reader), Ok((2, b"next".to_vec())));
}

#[test]
fn refuses_too_small_memory() {
    for words in 0..=HEADER_WORDS {
        let memory = memory(words);
        assert!(
            Reader::new(&memory).is_none() && RecordWriter::begin(&memory).is_none(),
            "{words}"
        );
    }
    let small = memory(HEADER_WORDS + 1);
    let mut writer = RecordWriter::begin(&small).expect("one word");
    assert_eq!(writer.write(0, b""), Err(TooLong));
}

#[test]
fn foreign_writes_do_not_block_the_writer() {
    let memory = memory(HEADER_WORDS + 16);
    let mut writer = RecordWriter::begin(&memory).expect("large enough");
    let mut generator = Pcg64Mcg::seed_from_u64(4);
    for _ in 0..10_000 {
        let at = generator.random_range(0..memory.len());
        memory[at].store(generator.random(), Relaxed);
        let length = generator.random_range(0..56);
        writer.write(1, &[5; 56][..length]).expect("short");
    }
    memory[0].store(MAGIC, Relaxed);
    let mut reader = Reader::new(&memory).expect("large enough");
    for _ in 0..9 {
        writer.write(2, b"after").expect("short");
    }
    assert!(matches!(next(&mut reader), Err(Read::Lost(_))));
    assert_eq!(next(&mut reader), Ok((2, b"after".to_vec())));
}

/// Random words in the header and the ring, changed between any two reads.
#[test]
fn no_memory_makes_the_reader_panic_or_exceed_its_buffer() {
    let mut generator = Pcg64Mcg::seed_from_u64(3);
    let memory = memory(HEADER_WORDS + 64);
    let mut reader = Reader::new(&memory).expect("large enough");
    let mut buffer = [0; MAXIMUM_RECORD_BYTES];
    let mut seen = [0_u32; 6];
    for round in 0..200_000 {
        memory[0].store(
            if round % 50 == 0 {
                generator.random()
            } else {
                MAGIC
            },
            Relaxed,
        );
        let base: u64 = memory[1].load(Relaxed);
        let word = match generator.random_range(0..6) {
            0 => generator.random(),
            1 => u64::MAX - generator.random_range(0..70),
            2 => generator.random_range(0..5000),
            _ => base
                .wrapping_add(generator.random_range(0..80))
                .wrapping_sub(8),
        };
        if round % 70 == 0 {
            memory[4].store(generator.random_range(0..3), Relaxed);
        }
        let at = match generator.random_range(0..4) {
            0 => 1,
            1 => 2,
            _ => generator.random_range(HEADER_WORDS..memory.len()),
        };
        memory[at].store(word, Relaxed);
        let index = match reader.read(&mut buffer) {
            Read::Record { bytes, .. } => {
                assert!(bytes <= buffer.len());
                0
            }
            Read::Nothing => 1,
            Read::Lost(_) => 2,
            Read::NoRing => 3,
            Read::Damaged => 4,
            Read::Began => 5,
        };
        seen[index] += 1;
    }
    assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
}

/// The writer never waits. Each record that a concurrent reader returns is one that was written.
#[test]
fn never_returns_a_torn_record() {
    let memory = memory(HEADER_WORDS + 1024);
    let mut writer = RecordWriter::begin(&memory).expect("large enough");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &done;
        scope.spawn(move || {
            for number in 0..200_000_u32 {
                let length = number as usize % 300;
                let bytes = [number as u8; 300];
                writer.write(number, &bytes[..length]).expect("short");
                // Fast enough to overtake the reader, and slow enough to be overtaken.
                if number % 16 == 0 {
                    (0..number % 1024).for_each(|_| std::hint::spin_loop());
                }
                if number % 512 == 0 {
                    std::thread::yield_now();
                }
            }
            done.store(true, Relaxed);
        });
        let mut reader = Reader::new(&memory).expect("large enough");
        let (mut whole, mut last) = (0, None);
        loop {
            let ended = done.load(Relaxed);
            match next(&mut reader) {
                Ok((number, bytes)) => {
                    assert_eq!(bytes.len(), number as usize % 300);
                    assert!(
                        bytes.iter().all(|byte| *byte == number as u8),
                        "record {number}"
                    );
                    assert!(last < Some(number), "in order");
                    last = Some(number);
                    whole += 1;
                }
                Err(Read::Damaged) => panic!("damaged after {last:?}"),
                Err(Read::Nothing) if ended => break,
                Err(_) => {}
            }
        }
        assert!(whole > 0);
    });
}
