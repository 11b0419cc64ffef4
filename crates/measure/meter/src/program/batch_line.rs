// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes a batch as its line of JSON, directly from the histograms.
//!
//! The text is the same as serde's, which a test checks, in a tenth of the instructions: a batch
//! has hundreds or thousands of buckets, and writing them is the largest part of the work per
//! sample.

use std::io::Write;

use rampart_model::{Batch, Nanos, Phase, Series};

use super::backward::Backward;
use crate::histogram::Histogram;

/// The histograms of one series of a batch.
#[derive(Debug)]
pub(super) struct SeriesCounts {
    pub(super) series: Series,
    pub(super) seen: Histogram,
    /// The samples that missed periods would have added; usually empty.
    pub(super) missing: Histogram,
}

/// Appends `{"batch":…}` and a line feed to `out`, and clears the histograms. Ignores the series of
/// `batch`.
pub(super) fn write<'a>(
    out: &mut Vec<u8>,
    batch: &Batch,
    series: impl Iterator<Item = &'a mut SeriesCounts>,
) {
    let phase = match batch.phase {
        Phase::WarmUp => "warm-up",
        Phase::Measured => "measured",
    };
    // Writing to memory cannot fail.
    let _ = write!(
        out,
        r#"{{"batch":{{"cpu":{},"phase":"{phase}","at":{},"length":{},"series":["#,
        batch.cpu, batch.at.0, batch.length.0
    );
    for (index, counts) in series.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let _ = write!(out, r#"{{"series":"{}","seen":"#, counts.series.word());
        let (seen, missing) = (&mut counts.seen, &mut counts.missing);
        let extremes = (seen.min(), seen.max());
        distribution(out, seen.buckets(), extremes, |text| {
            let mut samples = 0;
            seen.each_falling(|lowest, count| {
                text.pair(lowest, count);
                samples += count;
            });
            samples
        });
        if !missing.is_empty() {
            out.extend_from_slice(br#","corrected":"#);
            let buckets = seen.buckets() + missing.buckets();
            // `None` compares as less than any value, so the minimum excludes it.
            let min = seen.min().into_iter().chain(missing.min()).min();
            let extremes = (min, seen.max().max(missing.max()));
            distribution(out, buckets, extremes, |text| {
                let mut samples = 0;
                seen.each_of_both_falling(missing, |lowest, count| {
                    text.pair(lowest, count);
                    samples += count;
                });
                samples
            });
            missing.clear();
        }
        seen.clear();
        out.push(b'}');
    }
    let _ = write!(
        out,
        r#"],"missed":{},"over_deadline":{},"lost":{}"#,
        batch.missed, batch.over_deadline, batch.lost
    );
    if let Some((first, others)) = batch.timeline.split_first() {
        out.extend_from_slice(br#","timeline":["#);
        slot(out, *first);
        for worst in others {
            out.push(b',');
            slot(out, *worst);
        }
        out.push(b']');
    }
    out.extend_from_slice(b"}}\n");
}

fn slot(out: &mut Vec<u8>, worst: Option<Nanos>) {
    // Writing to memory cannot fail.
    let _ = match worst {
        Some(worst) => write!(out, "{}", worst.0),
        None => write!(out, "null"),
    };
}

/// Maximum length of a distribution without its buckets: three numbers and their names.
const AROUND: usize = 3 * Backward::LONGEST_NUMBER + 60;

/// Writes one distribution. `write` writes at most `buckets` buckets, highest first, and returns
/// the number of samples in them.
#[inline(always)]
fn distribution(
    out: &mut Vec<u8>,
    buckets: usize,
    (min, max): (Option<Nanos>, Option<Nanos>),
    write: impl FnOnce(&mut Backward<'_>) -> u64,
) {
    Backward::append(out, buckets * Backward::LONGEST_PAIR + AROUND, |text| {
        let samples = write(text);
        around(text, samples, min, max);
    });
    // The closing bracket replaces the comma after the last bucket.
    if out.ends_with(b",") {
        out.pop();
    }
    out.extend_from_slice(b"]}");
}

/// Writes the text before the buckets.
fn around(text: &mut Backward<'_>, samples: u64, min: Option<Nanos>, max: Option<Nanos>) {
    text.bytes(br#","buckets":["#);
    match max {
        Some(max) => text.number(max.0),
        None => text.bytes(b"null"),
    }
    text.bytes(br#","max":"#);
    match min {
        Some(min) => text.number(min.0),
        None => text.bytes(b"null"),
    }
    text.bytes(br#","min":"#);
    text.number(samples);
    text.bytes(br#"{"samples":"#);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rampart_model::{CpuId, Distribution, MeterEvent, SeriesBatch};

    const KINDS: [Series; 10] = [
        Series::Lateness,
        Series::Gap,
        Series::Excess,
        Series::StartJitter,
        Series::Response,
        Series::PeriodLate,
        Series::PeriodEarly,
        Series::Delivery,
        Series::TrappedAccess,
        Series::MappedAccess,
    ];

    fn any_values() -> impl Strategy<Value = Vec<u64>> {
        let value = any::<u64>().prop_flat_map(|value| (0u32..64).prop_map(move |s| value >> s));
        proptest::collection::vec(value, 0..20)
    }

    fn histogram(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::with_room_for(Nanos(1_000));
        for value in values {
            histogram.record(Nanos(*value));
        }
        histogram
    }

    fn of<'a>(values: impl IntoIterator<Item = &'a u64>) -> Distribution {
        Distribution::from_values(values.into_iter().copied().map(Nanos))
    }

    proptest! {
        #[test]
        fn writes_the_same_text_as_serde(
            numbers in any::<[u64; 5]>(),
            cpu: u32,
            warm_up: bool,
            series in proptest::collection::vec((any_values(), any_values()), 0..7),
            timeline in proptest::collection::vec(any::<Option<u64>>(), 0..5),
        ) {
            let [at, length, missed, over_deadline, lost] = numbers;
            let mut counts: Vec<_> = series.iter().zip(KINDS).map(|((seen, missing), series)| SeriesCounts {
                series,
                seen: histogram(seen),
                missing: histogram(missing),
            }).collect();
            let batch = Batch {
                timeline: timeline.into_iter().map(|worst| worst.map(Nanos)).collect(),
                cpu: CpuId(cpu),
                phase: if warm_up { Phase::WarmUp } else { Phase::Measured },
                at: Nanos(at),
                length: Nanos(length),
                series: series.iter().zip(KINDS).map(|((seen, missing), series)| SeriesBatch {
                    series,
                    seen: of(seen),
                    corrected: (!missing.is_empty()).then(|| of(seen.iter().chain(missing))),
                }).collect(),
                missed,
                over_deadline,
                lost,
            };
            let mut line = Vec::new();
            write(&mut line, &batch, counts.iter_mut());
            let expected = serde_json::to_string(&MeterEvent::Batch(batch)).expect("writes");
            prop_assert_eq!(String::from_utf8(line).expect("text"), expected + "\n");
            prop_assert!(counts.iter().all(|counts| counts.seen.is_empty() && counts.missing.is_empty()));
        }
    }
}
