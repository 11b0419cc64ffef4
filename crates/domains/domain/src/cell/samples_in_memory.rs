// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recovers the samples of a cell with Linux from memory that was read after its root crashed.

use std::sync::atomic::AtomicU64;

use rampart_agent::recover;
use rampart_model::{Batch, MeterEvent};
use rampart_ring::stream::leftover;

/// Returns the last batches of the cell's meters by time, on the cell's clock. `bytes` is the
/// region in which its agent writes ([`rampart_model::SignForm::Agent`]); its content is not
/// trusted.
#[must_use]
pub fn batches_in_memory(bytes: &[u8]) -> Vec<Batch> {
    let word = |bytes: &[u8; 8]| AtomicU64::new(u64::from_le_bytes(*bytes));
    let words: Vec<AtomicU64> = bytes.as_chunks().0.iter().map(word).collect();
    let mut written = Vec::new();
    if leftover(&words, |byte| written.push(byte)).is_none() {
        return Vec::new();
    }
    let outputs = recover(&written);
    // The first and last line of an output may be incomplete; they are then no events.
    let lines = outputs
        .values()
        .flat_map(|output| output.split(|byte| *byte == b'\n'));
    let mut batches: Vec<Batch> = lines
        .filter_map(|line| match serde_json::from_slice(line) {
            Ok(MeterEvent::Batch(batch)) => Some(batch),
            _ => None,
        })
        .collect();
    batches.sort_by_key(|batch| batch.at);
    batches
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU64;

    use rampart_model::{CpuId, Nanos, Phase};
    use rampart_ring::stream::StreamSide;

    use super::*;

    fn batch(at: Nanos) -> Batch {
        Batch {
            cpu: CpuId(0),
            phase: Phase::Measured,
            at,
            length: Nanos::from_millis(100),
            series: Vec::new(),
            missed: 0,
            over_deadline: 0,
            lost: 0,
            timeline: Vec::new(),
        }
    }

    #[test]
    fn recovers_the_last_batches_of_a_ring_that_wrapped() {
        const BATCHES: u64 = 500;
        let memory = || -> Vec<AtomicU64> { (0..2048 + 8).map(|_| AtomicU64::new(0)).collect() };
        let (near, far) = (memory(), memory());
        let one = NonZeroU64::MIN;
        let mut root = StreamSide::call(&near, &far, one).expect("enough memory");
        let mut cell = StreamSide::answer(&far, &near, one).expect("a call");
        let mut buffer = [0; 4096];
        for number in 0..BATCHES {
            let event = MeterEvent::Batch(batch(Nanos::from_millis(100 * number)));
            let mut line = serde_json::to_vec(&event).expect("text");
            line.push(b'\n');
            // A frame of `rampart_agent`: output of program 7, length, payload.
            let mut frame = vec![36, 7, 0, 0, 0];
            frame.extend((line.len() as u32).to_le_bytes());
            frame.extend(line);
            assert_eq!(cell.write(&frame), Ok(frame.len()));
            // The root stops reading when it crashes; the cell continues.
            if number < BATCHES - 20 {
                root.read(&mut buffer).expect("connected");
            }
        }
        let bytes: Vec<u8> = far
            .iter()
            .flat_map(|word| {
                word.load(core::sync::atomic::Ordering::Relaxed)
                    .to_le_bytes()
            })
            .collect();
        let batches = batches_in_memory(&bytes);
        assert!(
            batches.len() > 20 && (batches.len() as u64) < BATCHES,
            "{}",
            batches.len()
        );
        let last = BATCHES - batches.len() as u64..BATCHES;
        let wanted: Vec<Batch> = last
            .map(|number| batch(Nanos::from_millis(100 * number)))
            .collect();
        assert_eq!(batches, wanted);
    }

    #[test]
    fn returns_nothing_for_an_invalid_section() {
        assert!(batches_in_memory(&[]).is_empty());
        assert!(batches_in_memory(&[0xff; 4099]).is_empty());
    }
}
