// SPDX-License-Identifier: Apache-2.0 OR MIT

use core::sync::atomic::AtomicU64;

use rampart_model::Nanos;
use rampart_ring::records::{MAXIMUM_RECORD_BYTES, Read, Reader, RecordWriter};

use super::memory::ORDERS_BYTES;
use super::orders::{Block, Measure, Meter, Orders};
use super::records::{CellRecord, Done};
use crate::engine::Sample;
use crate::engine::noise::NoiseTotals;
use crate::engine::schedule::Spacing;

fn words(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

#[test]
fn reads_orders_as_written() {
    let memory = words(ORDERS_BYTES / 8);
    let orders = Orders::new(&memory).expect("enough memory");
    assert!(Orders::new(&memory[1..]).is_none());
    assert_eq!(orders.measure(), None);
    let prepare = Measure::Prepare {
        meter: Meter::Loop,
        interval: Nanos(1),
        work: Nanos(2),
        threshold: Nanos(3),
    };
    let go = Measure::Go {
        start: Nanos(4),
        measured: Nanos(5),
        end: Nanos(6),
    };
    for (number, order) in [(1, prepare), (2, go)] {
        assert_eq!(orders.give_measure(&order), number);
        assert_eq!(
            (orders.measure_number(), orders.measure()),
            (number, Some(order))
        );
    }
    assert!(!orders.ends(1));
    orders.end(1);
    assert!(orders.ends(1) && !orders.ends(2));
    let block = Block {
        spacing: Spacing {
            length: Nanos(7),
            pause: Nanos(8),
            random: true,
            seed: 9,
        },
        count: 10,
        base: Nanos(11),
    };
    assert_eq!(orders.give_block(&block), 1);
    assert_eq!((orders.block_number(), orders.block()), (1, block));
    // The kinds of orders do not share words.
    assert_eq!(orders.measure(), Some(go));
}

#[test]
fn reads_records_as_written_and_rejects_invalid_ones() {
    let done = Done {
        begun: Nanos(1),
        ended: Nanos(2),
        stopped: true,
        interrupts: 3,
        turns: 4,
        shortest: Nanos(5),
        lowered: Nanos(6),
        noise: NoiseTotals {
            turns: 7,
            gaps: 8,
            stolen: 9,
            recording: 10,
            shortest: None,
            length: 12,
        },
    };
    let sample = Sample {
        at: 1,
        value: 2,
        missed: 3,
        start: 4,
    };
    let span = (Nanos(5), Nanos(6));
    let records = [
        CellRecord::Ready {
            order: 1,
            threshold: Nanos(2),
        },
        CellRecord::Sample(sample),
        CellRecord::WarmedUp { order: 3 },
        CellRecord::Done { order: 4, done },
        CellRecord::Refused { order: 5 },
        CellRecord::Blocked {
            order: 6,
            sequence: 7,
            span,
        },
        CellRecord::BlocksDone {
            order: 8,
            made: 9,
            latest: Nanos(10),
        },
    ];
    let memory = words(520);
    let mut writer = RecordWriter::begin(&memory).expect("enough memory");
    let mut reader = Reader::new(&memory).expect("enough memory");
    let mut record_bytes = [0; MAXIMUM_RECORD_BYTES];
    for record in records {
        record.write(&mut writer);
        let Read::Record { kind, bytes } = reader.read(&mut record_bytes) else {
            panic!("no record");
        };
        assert_eq!(CellRecord::read(kind, &record_bytes[..bytes]), Some(record));
        // One word too few or too many, or an unknown kind.
        assert_eq!(CellRecord::read(kind, &record_bytes[..bytes - 8]), None);
        assert_eq!(CellRecord::read(kind, &record_bytes[..bytes + 8]), None);
        assert_eq!(CellRecord::read(kind + 100, &record_bytes[..bytes]), None);
    }
}
