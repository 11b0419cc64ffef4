// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results of the cell: records of a ring, each a few words. The root must not trust them: the cell
//! can write anything.

use rampart_model::Nanos;
use rampart_ring::records::RecordWriter;

use crate::engine::Sample;
use crate::engine::noise::NoiseTotals;

/// The longest record, in words.
const WORDS: usize = 16;

/// The result of a measurement without its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done {
    /// Start of the measured part.
    pub begun: Nanos,
    /// End of the measured part.
    pub ended: Nanos,
    /// Whether it ended early.
    pub stopped: bool,
    /// Interrupts that the program handled in this time.
    pub interrupts: u64,
    /// Turns of the work of `fwq` and `loop`.
    pub turns: u64,
    /// `fwq`: the shortest quantum.
    pub shortest: Nanos,
    /// `fwq`: by how much the shortest quantum fell in the measured part.
    pub lowered: Nanos,
    /// `noise`, in ticks of the counter.
    pub noise: NoiseTotals,
}

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellRecord {
    /// An order to prepare was carried out.
    Ready {
        /// Number of the order.
        order: u64,
        /// The shortest gap that `noise` will record.
        threshold: Nanos,
    },
    /// A sample. All times are in nanoseconds, on the cell's clock.
    Sample(Sample),
    /// The warm-up is over: the samples that follow are measured.
    WarmedUp {
        /// Number of the order.
        order: u64,
    },
    /// The measurement is over.
    Done {
        /// Number of the order.
        order: u64,
        /// Result of the measurement.
        done: Done,
    },
    /// An order that this program does not support.
    Refused {
        /// Number of the order.
        order: u64,
    },
    /// The CPU was blocked.
    Blocked {
        /// Number of the order.
        order: u64,
        /// Number of the block, from 0.
        sequence: u64,
        /// Begin and end.
        span: (Nanos, Nanos),
    },
    /// The order to block is complete.
    BlocksDone {
        /// Number of the order.
        order: u64,
        /// Number of blocks.
        made: u64,
        /// Largest lateness of a block.
        latest: Nanos,
    },
}

const READY: u32 = 1;
const SAMPLE: u32 = 2;
const WARMED_UP: u32 = 3;
const DONE: u32 = 4;
const REFUSED: u32 = 5;
const BLOCKED: u32 = 6;
const BLOCKS_DONE: u32 = 7;

/// Marks a missing shortest turn.
const NONE: u64 = u64::MAX;

impl CellRecord {
    /// Writes the record into a ring. Records that are not read in time are overwritten.
    pub fn write(&self, writer: &mut RecordWriter<'_>) {
        match *self {
            Self::Ready { order, threshold } => put(writer, READY, &[order, threshold.0]),
            Self::Sample(sample) => put(
                writer,
                SAMPLE,
                &[sample.at, sample.value, sample.missed, sample.start],
            ),
            Self::WarmedUp { order } => put(writer, WARMED_UP, &[order]),
            Self::Done { order, done } => put(
                writer,
                DONE,
                &[
                    order,
                    done.begun.0,
                    done.ended.0,
                    u64::from(done.stopped),
                    done.interrupts,
                    done.turns,
                    done.shortest.0,
                    done.lowered.0,
                    done.noise.turns,
                    done.noise.gaps,
                    done.noise.stolen,
                    done.noise.recording,
                    done.noise.shortest.unwrap_or(NONE),
                    done.noise.length,
                ],
            ),
            Self::Refused { order } => put(writer, REFUSED, &[order]),
            Self::Blocked {
                order,
                sequence,
                span: (start, end),
            } => put(writer, BLOCKED, &[order, sequence, start.0, end.0]),
            Self::BlocksDone {
                order,
                made,
                latest,
            } => put(writer, BLOCKS_DONE, &[order, made, latest.0]),
        }
    }

    /// Returns the record of this kind and these bytes, or `None` if they are not a record.
    #[must_use]
    pub fn read(kind: u32, bytes: &[u8]) -> Option<Self> {
        let mut words = [0; WORDS];
        let mut chunks = bytes.chunks_exact(8);
        let count = chunks.len();
        for (word, chunk) in words.iter_mut().zip(&mut chunks) {
            *word = u64::from_le_bytes(chunk.try_into().ok()?);
        }
        let needed = match kind {
            READY => 2,
            SAMPLE | BLOCKED => 4,
            WARMED_UP | REFUSED => 1,
            DONE => 14,
            BLOCKS_DONE => 3,
            _ => return None,
        };
        if count != needed || bytes.len() != needed * 8 {
            return None;
        }
        let [order, first, second, third, ..] = words;
        Some(match kind {
            READY => Self::Ready {
                order,
                threshold: Nanos(first),
            },
            SAMPLE => Self::Sample(Sample {
                at: order,
                value: first,
                missed: second,
                start: third,
            }),
            WARMED_UP => Self::WarmedUp { order },
            REFUSED => Self::Refused { order },
            BLOCKED => Self::Blocked {
                order,
                sequence: first,
                span: (Nanos(second), Nanos(third)),
            },
            BLOCKS_DONE => Self::BlocksDone {
                order,
                made: first,
                latest: Nanos(second),
            },
            _ => Self::Done {
                order,
                done: Done {
                    begun: Nanos(first),
                    ended: Nanos(second),
                    stopped: third != 0,
                    interrupts: words[4],
                    turns: words[5],
                    shortest: Nanos(words[6]),
                    lowered: Nanos(words[7]),
                    noise: NoiseTotals {
                        turns: words[8],
                        gaps: words[9],
                        stolen: words[10],
                        recording: words[11],
                        shortest: (words[12] != NONE).then_some(words[12]),
                        length: words[13],
                    },
                },
            },
        })
    }
}

fn put(writer: &mut RecordWriter<'_>, kind: u32, words: &[u64]) {
    let mut bytes = [0; WORDS * 8];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    let length = (words.len() * 8).min(bytes.len());
    // A record is shorter than half of any ring, so the write always succeeds.
    let _ = writer.write(kind, &bytes[..length]);
}
