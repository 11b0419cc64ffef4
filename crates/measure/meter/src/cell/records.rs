// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the cell found: records of a ring, each a few words. The root's side believes none of them
//! more than that somebody wrote them.

use rampart_model::Nanos;
use rampart_ring::records::Writer;

use crate::engine::Sample;
use crate::engine::noise::NoiseTotals;

/// The longest record, in words.
const WORDS: usize = 16;

/// What a measurement came to, apart from its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done {
    /// When the measured part began.
    pub begun: Nanos,
    /// When it ended.
    pub ended: Nanos,
    /// Whether it was ended early.
    pub stopped: bool,
    /// Interrupts that the program handled in it.
    pub interrupts: u64,
    /// Turns of the work of `fwq` and `loop`.
    pub turns: u64,
    /// `fwq`: the shortest quantum.
    pub shortest: Nanos,
    /// `fwq`: by how much it was lowered in the measured part.
    pub lowered: Nanos,
    /// `noise`, in ticks of the counter.
    pub noise: NoiseTotals,
}

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// An order to prepare was carried out.
    Ready {
        /// Its number.
        order: u64,
        /// The shortest gap that `noise` will keep.
        threshold: Nanos,
    },
    /// A sample; all its times in nanoseconds, on the cell's clock.
    Sample(Sample),
    /// The warm-up is over: samples after this are measured.
    WarmedUp {
        /// Number of the order.
        order: u64,
    },
    /// The measurement is over.
    Done {
        /// Number of the order.
        order: u64,
        /// What it came to.
        done: Done,
    },
    /// An order that makes no sense to this program.
    Refused {
        /// Its number.
        order: u64,
    },
    /// The CPU was stopped.
    Blocked {
        /// Number of the order.
        order: u64,
        /// Of the block, from 0.
        sequence: u64,
        /// Begin and end.
        span: (Nanos, Nanos),
    },
    /// No more blocks come.
    BlocksDone {
        /// Number of the order.
        order: u64,
        /// How many there were.
        made: u64,
        /// By how much the latest came after its moment.
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

/// In place of a shortest turn: there was none.
const NONE: u64 = u64::MAX;

impl Record {
    /// Writes it into a ring; what nobody has read in time is overwritten.
    pub fn write(&self, writer: &mut Writer<'_>) {
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

    /// The record of this kind and these bytes; none where that is no record.
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

fn put(writer: &mut Writer<'_>, kind: u32, words: &[u64]) {
    let mut bytes = [0; WORDS * 8];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    let length = (words.len() * 8).min(bytes.len());
    // Shorter than any ring's half: it always has room.
    let _ = writer.write(kind, &bytes[..length]);
}
