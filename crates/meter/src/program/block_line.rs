// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A block as its line of JSON.
//!
//! The same text as serde's, which a test holds it to, in a tenth of the instructions: a block
//! has hundreds or thousands of buckets, and writing them was the greatest part of what the
//! program did for each sample.

use std::io::Write;

use rampart_model::{Block, Bucket, Distribution, Nanos, Phase, Series};

/// Adds `{"block":…}` and a line feed to `out`.
pub(super) fn write(out: &mut Vec<u8>, block: &Block) {
    let phase = match block.phase {
        Phase::WarmUp => "warm-up",
        Phase::Measured => "measured",
    };
    // Writing to memory cannot fail.
    let _ = write!(
        out,
        r#"{{"block":{{"cpu":{},"phase":"{phase}","at":{},"length":{},"series":["#,
        block.cpu, block.at.0, block.length.0
    );
    for (index, series) in block.series.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let _ = write!(out, r#"{{"series":"{}","seen":"#, word(series.series));
        distribution(out, &series.seen);
        if let Some(corrected) = &series.corrected {
            out.extend_from_slice(br#","corrected":"#);
            distribution(out, corrected);
        }
        out.push(b'}');
    }
    let _ = writeln!(
        out,
        r#"],"missed":{},"over_deadline":{},"lost":{}}}}}"#,
        block.missed, block.over_deadline, block.lost
    );
}

const fn word(series: Series) -> &'static str {
    match series {
        Series::Lateness => "lateness",
        Series::Gap => "gap",
        Series::Excess => "excess",
        Series::StartJitter => "start-jitter",
        Series::Response => "response",
        Series::PeriodLate => "period-late",
        Series::PeriodEarly => "period-early",
    }
}

fn distribution(out: &mut Vec<u8>, distribution: &Distribution) {
    let _ = write!(out, r#"{{"samples":{},"#, distribution.samples);
    for (name, value) in [("min", distribution.min), ("max", distribution.max)] {
        let _ = match value {
            Some(Nanos(value)) => write!(out, r#""{name}":{value},"#),
            None => write!(out, r#""{name}":null,"#),
        };
    }
    out.extend_from_slice(br#""buckets":["#);
    for bucket in &distribution.buckets {
        write_bucket(out, bucket);
    }
    if !distribution.buckets.is_empty() {
        out.pop(); // The last comma.
    }
    out.extend_from_slice(b"]}");
}

/// `[lowest,count],`, written from its end.
#[inline]
fn write_bucket(out: &mut Vec<u8>, bucket: &Bucket) {
    // Two numbers of up to 20 digits, two brackets and two commas.
    let mut text = [b','; 44];
    let mut start = text.len() - 2;
    text[start] = b']';
    start = digits(&mut text, start, bucket.1);
    start = digits(&mut text, start - 1, bucket.0.0);
    start -= 1;
    text[start] = b'[';
    out.extend_from_slice(&text[start..]);
}

/// Writes `number` so that it ends before `end`, and returns where it begins.
#[inline(always)]
fn digits(text: &mut [u8; 44], mut end: usize, mut number: u64) -> usize {
    loop {
        end -= 1;
        text[end] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rampart_model::{CpuId, MeterEvent, SeriesBlock};

    fn any_distribution() -> impl Strategy<Value = Distribution> {
        let value = any::<u64>().prop_flat_map(|value| (0u32..64).prop_map(move |s| value >> s));
        proptest::collection::vec(value, 0..20)
            .prop_map(|values| Distribution::from_values(values.into_iter().map(Nanos)))
    }

    proptest! {
        #[test]
        fn it_is_the_text_that_serde_writes(
            numbers in any::<[u64; 5]>(),
            cpu: u32,
            warm_up: bool,
            distributions in proptest::collection::vec((any_distribution(), proptest::option::of(any_distribution())), 0..7),
        ) {
            let kinds = [
                Series::Lateness, Series::Gap, Series::Excess, Series::StartJitter,
                Series::Response, Series::PeriodLate, Series::PeriodEarly,
            ];
            let [at, length, missed, over_deadline, lost] = numbers;
            let block = Block {
                cpu: CpuId(cpu),
                phase: if warm_up { Phase::WarmUp } else { Phase::Measured },
                at: Nanos(at),
                length: Nanos(length),
                series: distributions.into_iter().zip(kinds).map(|((seen, corrected), series)| SeriesBlock { series, seen, corrected }).collect(),
                missed,
                over_deadline,
                lost,
            };
            let mut line = Vec::new();
            write(&mut line, &block);
            let expected = serde_json::to_string(&MeterEvent::Block(block)).expect("writes");
            prop_assert_eq!(String::from_utf8(line).expect("text"), expected + "\n");
        }
    }
}
