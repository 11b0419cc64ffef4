// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds the record of a crash on the machine that receives the results: from the last signs of
//! life, and from memory of the crashed machine that the domains wrote and that is read from
//! outside. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use rampart_domain::batches_in_memory;
use rampart_model::{
    Batch, CpuId, CrashRecord, Nanos, RecordedAfter, SignForm, SignInMemory, SignPath, SignedNanos,
};

/// Builds the record of a crash. `signs` is the content of the last [`crate::CRASH_SIGNS`],
/// `observed` the time for which further signs were awaited after the last output of the machine,
/// `confirmed` the source that confirms the crash, `memory` the memory that was read from outside
/// at the end of that time, by address ([`signs_in_memory`]).
///
/// # Errors
/// Returns an error if `signs` is not the content of [`crate::CRASH_SIGNS`].
pub fn confirm_crash(
    signs: &[u8],
    observed: Duration,
    confirmed: Option<String>,
    memory: &[(u64, Vec<u8>)],
) -> Result<CrashRecord, serde_json::Error> {
    let mut crash: CrashRecord = serde_json::from_slice(signs)?;
    crash.observed = observed.into();
    crash.confirmed = confirmed;
    for witness in &mut crash.witnesses {
        if let Some(sign) = witness.memory
            && let Some((_, bytes)) = memory.iter().find(|(at, _)| *at == sign.address)
            && let Some((last, after)) = read_sign(&sign, bytes, crash.at)
        {
            witness.last_sample = witness.last_sample.max(Some(last));
            witness.after = after;
            witness.signs = SignPath::Memory;
        }
        witness.lived = witness.last_sample.map(|sample| {
            let lived = i128::from(sample.0) - i128::from(crash.at.0);
            SignedNanos(i64::try_from(lived).unwrap_or(i64::MIN))
        });
    }
    Ok(crash)
}

/// Reads memory that a domain wrote. Returns the end of its last sample on the host's clock, and
/// the summary of its records after the crash. Returns `None` if the memory holds no record.
fn read_sign(
    sign: &SignInMemory,
    bytes: &[u8],
    crash: Nanos,
) -> Option<(Nanos, Option<RecordedAfter>)> {
    let on_host = |inside: Nanos| {
        let host = i128::from(inside.0) - i128::from(sign.offset.0);
        Nanos(u64::try_from(host.max(0)).unwrap_or(u64::MAX))
    };
    match sign.form {
        SignForm::LastSample => {
            let word = u64::from_le_bytes(bytes.try_into().ok()?);
            (word > 0).then(|| (on_host(Nanos(word)), None))
        }
        SignForm::Agent => {
            let mut batches = batches_in_memory(bytes);
            for batch in &mut batches {
                batch.at = on_host(batch.at);
            }
            let last = batches.iter().map(|batch| batch.at + batch.length).max()?;
            Some((last, recorded_after(&batches, crash)))
        }
    }
}

/// Summarises the batches after the crash, given in the order of their times. The batch during the
/// crash counts: it is unknown on which side of the crash its samples are.
fn recorded_after(batches: &[Batch], crash: Nanos) -> Option<RecordedAfter> {
    let mut after = RecordedAfter {
        samples: 0,
        worst: Nanos::ZERO,
        lost: 0,
        duration: Nanos::ZERO,
        without_gap: true,
    };
    let mut ends: BTreeMap<CpuId, Nanos> = BTreeMap::new();
    for batch in batches {
        let end = batch.at + batch.length;
        let before = ends.insert(batch.cpu, end);
        if end <= crash {
            continue;
        }
        if let Some(series) = batch.series.first() {
            after.samples += series.seen.samples;
            after.worst = after.worst.max(series.seen.max.unwrap_or_default());
        }
        after.lost += batch.lost;
        after.duration = after.duration.max(end.saturating_sub(crash));
        // The first known batch of a CPU must begin before the crash.
        after.without_gap &= before.unwrap_or(crash) >= batch.at;
    }
    (after.samples > 0).then_some(after)
}

/// Returns physical addresses and lengths in bytes of the memory to read after the observation.
/// Returns an empty list if `signs` is not the content of [`crate::CRASH_SIGNS`].
#[must_use]
pub fn signs_in_memory(signs: &[u8]) -> Vec<(u64, u64)> {
    let crash: Result<CrashRecord, _> = serde_json::from_slice(signs);
    let witnesses = crash.map(|crash| crash.witnesses).unwrap_or_default();
    let memory = witnesses.into_iter().filter_map(|witness| witness.memory);
    memory.map(|sign| (sign.address, sign.bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::CrashWitness;

    #[test]
    fn counts_the_last_sign_from_the_crash() {
        let witness = |domain: &str, last_sample| CrashWitness {
            domain: domain.to_owned(),
            last_sample,
            lived: None,
            uncertainty: Nanos::from_millis(800),
            signs: SignPath::OwnChannel,
            memory: None,
            after: None,
            invalid: Vec::new(),
        };
        let signs = CrashRecord {
            how: "a panic".to_owned(),
            at: Nanos::from_secs(100),
            confirmed: None,
            observed: Nanos::ZERO,
            witnesses: vec![
                witness("task", Some(Nanos::from_millis(99_900))),
                witness("cell", Some(Nanos::from_secs(104))),
                witness("vm", None),
            ],
        };
        let text = serde_json::to_vec(&signs).expect("text");
        let confirmed = Some("the simulator".to_owned());
        let crash = confirm_crash(&text, Duration::from_secs(10), confirmed, &[]).expect("signs");
        let lived: Vec<_> = crash
            .witnesses
            .iter()
            .map(|witness| witness.lived)
            .collect();
        assert_eq!(
            lived,
            [
                Some(SignedNanos(-100_000_000)),
                Some(SignedNanos(4_000_000_000)),
                None
            ]
        );
        assert_eq!(crash.observed, Nanos::from_secs(10));
        assert!(confirm_crash(b"{}", Duration::ZERO, None, &[]).is_err());
    }

    #[test]
    fn reads_the_last_sign_of_a_silent_domain_from_memory() {
        let witness = |domain: &str, address| CrashWitness {
            domain: domain.to_owned(),
            last_sample: Some(Nanos::from_millis(99_900)),
            lived: None,
            uncertainty: Nanos::from_millis(800),
            signs: SignPath::ThroughHost,
            memory: Some(SignInMemory {
                address,
                bytes: 8,
                form: SignForm::LastSample,
                offset: SignedNanos(-40_000_000_000),
            }),
            after: None,
            invalid: Vec::new(),
        };
        let signs = CrashRecord {
            how: "a panic".to_owned(),
            at: Nanos::from_secs(100),
            confirmed: None,
            observed: Nanos::ZERO,
            witnesses: vec![witness("cell", 0x1000), witness("other", 0x2000)],
        };
        let text = serde_json::to_vec(&signs).expect("text");
        assert_eq!(signs_in_memory(&text), [(0x1000, 8), (0x2000, 8)]);
        let words = [
            (0x1000, 69_000_000_000_u64.to_le_bytes().to_vec()),
            (0x2000, vec![0; 8]),
        ];
        let crash = confirm_crash(&text, Duration::from_secs(10), None, &words).expect("signs");
        let witnesses: Vec<_> = crash
            .witnesses
            .iter()
            .map(|witness| (witness.lived, witness.signs))
            .collect();
        // The other domain wrote no word.
        assert_eq!(
            witnesses,
            [
                (Some(SignedNanos(9_000_000_000)), SignPath::Memory),
                (Some(SignedNanos(-100_000_000)), SignPath::ThroughHost)
            ]
        );
    }

    #[test]
    fn counts_the_records_after_the_crash() {
        let batch = |at: u64, max: u64| Batch {
            cpu: CpuId(0),
            phase: rampart_model::Phase::Measured,
            at: Nanos::from_millis(at),
            length: Nanos::from_millis(100),
            series: vec![rampart_model::SeriesBatch {
                series: rampart_model::Series::Lateness,
                seen: rampart_model::Distribution::from_values([Nanos(1), Nanos(max)]),
                corrected: None,
            }],
            missed: 0,
            over_deadline: 0,
            lost: 0,
            timeline: Vec::new(),
        };
        let batches = [
            batch(800, 90),
            batch(900, 70),
            batch(1000, 50),
            batch(1100, 60),
        ];
        let after = recorded_after(&batches, Nanos::from_millis(950)).expect("records");
        assert_eq!((after.samples, after.worst, after.lost), (6, Nanos(70), 0));
        assert_eq!(after.duration, Nanos::from_millis(250));
        assert!(after.without_gap);
        let gap = [batches[0].clone(), batches[1].clone(), batches[3].clone()];
        assert!(
            !recorded_after(&gap, Nanos::from_millis(950))
                .expect("records")
                .without_gap
        );
        // The first batch begins after the crash: it is unknown what was before it.
        assert!(
            !recorded_after(&batches[2..], Nanos::from_millis(950))
                .expect("records")
                .without_gap
        );
        assert_eq!(recorded_after(&batches, Nanos::from_secs(9)), None);
    }
}
