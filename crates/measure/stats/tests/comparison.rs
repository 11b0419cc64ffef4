// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests the comparisons with a simulated machine whose truth is known. Latencies within seconds,
//! seconds and runs depend on each other as on real machines.
//!
//! The samples of a second are `exp(centre + spread·z)`, where z is normal with an autocorrelation
//! of 0.6 (as measured between successive wakeups on a small virtual machine). Some seconds have a
//! burst of slow wakeups. Each run has its own level.
#![expect(
    clippy::expect_used,
    reason = "a test may stop at what cannot be in a simulation"
)]

use rampart_model::{Distribution, Nanos, VerdictOutcome};
use rampart_stats::{
    EFFECT_RISK, INTERFERENCE_TOLERANCE, QUANTILES, Resampling, SAME_AS_HOST_TOLERANCE,
    clopper_pearson, effect, exceedance_bound, holm, interference, quantile_ratio, same_as,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::normal;

/// A simulated domain.
#[derive(Clone, Copy)]
struct Domain {
    /// Median latency in ns.
    centre: f64,
    /// Standard deviation of a sample's logarithm.
    spread: f64,
    /// Standard deviation of a run's level, in the same logarithm.
    between_runs: f64,
    /// Probability that a second has a burst of samples that are ten times as slow.
    bursts: f64,
}

const PLAIN: Domain = Domain {
    centre: 5_000.0,
    spread: 0.3,
    between_runs: 0.05,
    bursts: 0.0,
};
const BURSTY: Domain = Domain {
    bursts: 0.2,
    ..PLAIN
};

const QUICK: Resampling = Resampling {
    resamples: 300,
    seed: 7,
};

impl Domain {
    fn slower(self, factor: f64) -> Self {
        Self {
            centre: self.centre * factor,
            ..self
        }
    }

    fn measure(
        self,
        generator: &mut Pcg64Mcg,
        runs: usize,
        seconds: usize,
        samples: usize,
    ) -> Vec<Vec<Distribution>> {
        (0..runs)
            .map(|_| {
                let level = self.centre.ln() + self.between_runs * normal(generator);
                let mut z = normal(generator);
                (0..seconds)
                    .map(|_| {
                        let burst = generator.random::<f64>() < self.bursts;
                        Distribution::from_values((0..samples).map(|sample| {
                            z = 0.6 * z + 0.8 * normal(generator);
                            let slow = burst && sample < samples / 50;
                            let factor = if slow { 10.0 } else { 1.0 };
                            Nanos(((level + self.spread * z).exp() * factor) as u64)
                        }))
                    })
                    .collect()
            })
            .collect()
    }
}

/// Returns the percentage of intervals that contain the true ratio.
fn coverage(domain: Domain, runs: usize, quantile: f64, truth: f64) -> f64 {
    let mut generator = Pcg64Mcg::seed_from_u64(1);
    let trials = 400;
    let mut held = 0;
    for _ in 0..trials {
        let above = domain.slower(truth).measure(&mut generator, runs, 4, 150);
        let below = domain.measure(&mut generator, runs, 4, 150);
        let interval = quantile_ratio(&above, &below, quantile, 0.95, &QUICK).expect("enough runs");
        held += u32::from(interval.low <= truth && truth <= interval.high);
    }
    100.0 * f64::from(held) / f64::from(trials)
}

#[test]
fn intervals_reach_their_confidence() {
    for (domain, runs, quantile, truth) in [
        (PLAIN, 2, 0.5, 1.0),
        (PLAIN, 3, 0.5, 1.5),
        (PLAIN, 4, 0.9, 1.0),
        (PLAIN, 6, 0.9, 1.5),
        (BURSTY, 3, 0.5, 1.0),
        (BURSTY, 4, 0.98, 1.0),
        (BURSTY, 6, 0.98, 1.5),
    ] {
        let percent = coverage(domain, runs, quantile, truth);
        // 92 is three standard errors of 400 trials under 95.
        assert!(percent >= 92.0, "{runs} runs, q {quantile}: {percent} %");
    }
}

/// Checks one long run whose level drifts, with a memory of a few seconds.
#[test]
fn intervals_of_a_single_run_tolerate_a_drifting_level() {
    let mut generator = Pcg64Mcg::seed_from_u64(2);
    let wandering = |generator: &mut Pcg64Mcg| -> Vec<Vec<Distribution>> {
        let mut level = normal(generator);
        let batches = (0..120).map(|_| {
            level = 0.6 * level + 0.8 * normal(generator);
            let values: Vec<Nanos> = (0..60)
                .map(|_| Nanos((8.0 + 0.1 * level + 0.3 * normal(generator)).exp() as u64))
                .collect();
            Distribution::from_values(values)
        });
        vec![batches.collect()]
    };
    let mut held = 0;
    for _ in 0..400 {
        let (above, below) = (wandering(&mut generator), wandering(&mut generator));
        let interval = quantile_ratio(&above, &below, 0.5, 0.95, &QUICK).expect("enough blocks");
        held += u32::from(interval.low <= 1.0 && 1.0 <= interval.high);
    }
    let percent = 100.0 * f64::from(held) / 400.0;
    assert!(percent >= 90.0, "{percent} %");
}

/// Two copies of one domain must compare as equal (must not fail) in at least 19 of 20 evaluations.
/// Checks 20 times 20 series of 20 evaluations.
#[test]
fn two_copies_of_a_domain_compare_as_equal() {
    let wild = Domain {
        between_runs: 0.25,
        bursts: 0.3,
        ..PLAIN
    };
    for domain in [PLAIN, BURSTY, wild] {
        let mut generator = Pcg64Mcg::seed_from_u64(3);
        for _ in 0..10 {
            let equal = (0..20)
                .filter(|_| {
                    let one = domain.measure(&mut generator, 4, 3, 200);
                    let other = domain.measure(&mut generator, 4, 3, 200);
                    let found = same_as(
                        &one,
                        &other,
                        &[0.5, 0.9, 0.98],
                        SAME_AS_HOST_TOLERANCE,
                        &QUICK,
                    );
                    found.expect("enough").outcome != VerdictOutcome::Fails
                })
                .count();
            assert!(equal >= 19, "{equal} of 20");
        }
    }
}

/// Even without a tolerance, a verdict "worse" is wrong in at most 5 %.
#[test]
fn the_error_of_all_quantiles_together_is_bounded() {
    let mut generator = Pcg64Mcg::seed_from_u64(4);
    let wrong = (0..400)
        .filter(|_| {
            let one = BURSTY.measure(&mut generator, 4, 3, 200);
            let other = BURSTY.measure(&mut generator, 4, 3, 200);
            let found = same_as(&one, &other, &[0.5, 0.9, 0.98], 1.0, &QUICK);
            found.expect("enough").outcome == VerdictOutcome::Fails
        })
        .count();
    // 20 expected at most; 33 is three standard errors above.
    assert!(wrong <= 33, "{wrong} of 400");
}

#[test]
fn enough_exposure_finds_differences_and_confirms_equality() {
    let mut generator = Pcg64Mcg::seed_from_u64(5);
    let (mut found, mut cleared, mut leaked) = (0, 0, 0);
    for _ in 0..40 {
        let host = PLAIN.measure(&mut generator, 6, 4, 1000);
        let copy = PLAIN.measure(&mut generator, 6, 4, 1000);
        let slow = PLAIN.slower(1.5).measure(&mut generator, 6, 4, 1000);
        let slower = PLAIN.slower(2.0).measure(&mut generator, 6, 4, 1000);
        let same = |domain| {
            same_as(domain, &host, &QUANTILES, SAME_AS_HOST_TOLERANCE, &QUICK).expect("enough")
        };
        found += u32::from(same(&slow).outcome == VerdictOutcome::Fails);
        let equal = same(&copy);
        cleared += u32::from(equal.outcome == VerdictOutcome::Holds);
        assert_eq!(equal.ratios.len(), 3);
        assert!(
            equal.smallest_detectable > 1.0 && equal.smallest_detectable < 1.5,
            "{equal:?}"
        );
        let factor = interference(&slower, &host, &QUANTILES, INTERFERENCE_TOLERANCE, &QUICK);
        leaked += u32::from(factor.expect("enough").outcome == VerdictOutcome::Leaks);
    }
    assert!(
        found >= 36 && cleared >= 36 && leaked >= 36,
        "{found} {cleared} {leaked} of 40"
    );
}

/// A change of the smallest detectable size is found in about 80 % of the trials.
#[test]
fn the_smallest_detectable_ratio_is_detected() {
    let mut generator = Pcg64Mcg::seed_from_u64(6);
    let mut sum = 0.0;
    for _ in 0..50 {
        let one = PLAIN.measure(&mut generator, 5, 2, 200);
        let other = PLAIN.measure(&mut generator, 5, 2, 200);
        sum += same_as(&one, &other, &[0.5], 1.0, &QUICK)
            .expect("enough")
            .smallest_detectable;
    }
    let ratio = sum / 50.0;
    let detected = (0..200)
        .filter(|_| {
            let one = PLAIN.slower(ratio).measure(&mut generator, 5, 2, 200);
            let other = PLAIN.measure(&mut generator, 5, 2, 200);
            same_as(&one, &other, &[0.5], 1.0, &QUICK)
                .expect("enough")
                .ratios[0]
                .1
                .low
                > 1.0
        })
        .count();
    assert!(
        (140..=195).contains(&detected),
        "{detected} of 200, {ratio}"
    );
}

#[test]
fn a_single_run_decides_nothing() {
    let mut generator = Pcg64Mcg::seed_from_u64(8);
    let host = PLAIN.measure(&mut generator, 4, 5, 1000);
    let slow = PLAIN.slower(100.0).measure(&mut generator, 1, 20, 1000);
    let found = same_as(&slow, &host, &QUANTILES, SAME_AS_HOST_TOLERANCE, &QUICK);
    assert_eq!(
        found.map(|found| found.outcome),
        Some(VerdictOutcome::Inconclusive)
    );
}

#[test]
fn does_not_hold_without_a_tail_quantile() {
    let mut generator = Pcg64Mcg::seed_from_u64(9);
    let one = PLAIN.measure(&mut generator, 6, 1, 100);
    let found = same_as(&one, &one, &QUANTILES, 100.0, &QUICK).expect("a median");
    assert_eq!(
        found.ratios.iter().map(|ratio| ratio.0).collect::<Vec<_>>(),
        [0.5]
    );
    assert_eq!(found.outcome, VerdictOutcome::Inconclusive);
    let found = same_as(&one, &one, &[0.5], 100.0, &QUICK).expect("a median");
    assert_eq!(found.outcome, VerdictOutcome::Holds);
    assert_eq!(same_as(&one, &one, &[0.999], 1.25, &QUICK), None);
    assert_eq!(same_as(&[], &one, &[0.5], 1.25, &QUICK), None);
}

#[test]
fn result_depends_only_on_the_seed() {
    let mut generator = Pcg64Mcg::seed_from_u64(10);
    let (one, other) = (
        BURSTY.measure(&mut generator, 4, 3, 300),
        BURSTY.measure(&mut generator, 4, 3, 300),
    );
    let compare = |seed| {
        let options = Resampling { seed, ..QUICK };
        quantile_ratio(&one, &other, 0.9, 0.95, &options).expect("enough")
    };
    assert_eq!(compare(1), compare(1));
    assert_ne!(compare(1), compare(2));
    assert_eq!(
        quantile_ratio(&one, &other, 1.5, 0.95, &QUICK),
        None,
        "no quantile"
    );
    assert_eq!(quantile_ratio(&one, &other, 0.5, 1.0, &QUICK), None);
}

/// Bimodal samples of which half are zero, on either side: finite figures, no panic.
#[test]
fn accepts_samples_of_zero() {
    let none = vec![vec![Distribution::from_values(vec![Nanos(0); 1000])]; 3];
    let huge = vec![vec![Distribution::from_values(vec![Nanos(u64::MAX); 1000])]; 3];
    for (one, other) in [(&none, &huge), (&huge, &none), (&none, &none)] {
        let found = same_as(one, other, &QUANTILES, 1.25, &QUICK).expect("enough");
        for (_, interval) in &found.ratios {
            for figure in [interval.low, interval.estimate, interval.high] {
                assert!(figure.is_finite() && figure > 0.0);
            }
        }
        assert!(found.smallest_detectable.is_finite());
    }
}

/// The bound on exceedances contains the true probability at least as often as stated; since counts
/// are discrete it does so more often, never less.
#[test]
fn exact_bounds_reach_their_confidence() {
    let mut generator = Pcg64Mcg::seed_from_u64(11);
    for (chance, cycles) in [(0.002, 500u64), (0.01, 500), (0.3, 60)] {
        let (mut bounded, mut held) = (0, 0);
        let trials = 2000;
        for _ in 0..trials {
            let seen = (0..cycles)
                .filter(|_| generator.random::<f64>() < chance)
                .count() as u64;
            bounded += u32::from(exceedance_bound(seen, cycles, 0.95) >= Some(chance));
            let interval = clopper_pearson(seen, cycles, 0.95).expect("an interval");
            held += u32::from(interval.low <= chance && chance <= interval.high);
        }
        // Three standard errors of 2000 trials are 1.5 %.
        assert!(bounded >= trials * 935 / 1000 && held >= trials * 935 / 1000);
    }
}

/// Ten knobs without effect, three quantiles and the worst of each: with Holm's correction any
/// difference is reported in at most 5 % of evaluations.
#[test]
fn reports_no_effect_of_knobs_without_one() {
    let mut generator = Pcg64Mcg::seed_from_u64(12);
    let wrong = (0..150)
        .filter(|_| {
            let whole = BURSTY.measure(&mut generator, 10, 3, 150);
            let chances: Vec<f64> = (0..10)
                .flat_map(|_| {
                    let without = BURSTY.measure(&mut generator, 5, 3, 150);
                    let found = effect(&whole, &without, &[0.5, 0.9, 0.98], &QUICK);
                    let ratios = found.expect("enough").ratios;
                    assert_eq!(ratios.len(), 4);
                    ratios.into_iter().map(|ratio| ratio.p_value)
                })
                .collect();
            holm(&chances).iter().any(|chance| *chance <= EFFECT_RISK)
        })
        .count();
    // 7.5 expected at most; 16 is three standard errors above.
    assert!(wrong <= 16, "{wrong} of 150");
}

/// Among ten knobs without effect, one halves latencies and one makes them 50 % longer.
#[test]
fn finds_the_effective_knobs_among_many() {
    let mut generator = Pcg64Mcg::seed_from_u64(13);
    let (mut helped, mut harmed) = (0, 0);
    for _ in 0..40 {
        let whole = PLAIN.measure(&mut generator, 10, 3, 150);
        let mut variants = vec![PLAIN; 10];
        variants.push(PLAIN.slower(2.0));
        variants.push(PLAIN.slower(1.0 / 1.5));
        let (mut chances, mut estimates) = (Vec::new(), Vec::new());
        for variant in variants {
            let without = variant.measure(&mut generator, 5, 3, 150);
            let found = effect(&whole, &without, &[0.5, 0.9, 0.98], &QUICK).expect("enough");
            chances.push(found.ratios[0].p_value);
            estimates.push(found.ratios[0].ratio.estimate);
        }
        let adjusted = holm(&chances);
        helped += u32::from(adjusted[10] <= EFFECT_RISK && estimates[10] < 1.0);
        harmed += u32::from(adjusted[11] <= EFFECT_RISK && estimates[11] > 1.0);
    }
    assert!(helped >= 38 && harmed >= 38, "{helped} {harmed} of 40");
}

/// The mean of the runs' maxima keeps its confidence, unlike the bootstrap of a quantile.
#[test]
fn compares_the_worst_of_a_run_by_runs() {
    let mut generator = Pcg64Mcg::seed_from_u64(14);
    let mut held = 0;
    for _ in 0..400 {
        let one = BURSTY.measure(&mut generator, 5, 3, 100);
        let other = BURSTY.measure(&mut generator, 5, 3, 100);
        let found = effect(&one, &other, &[0.5], &QUICK).expect("enough");
        let worst = found.ratios.last().expect("the worst").ratio;
        held += u32::from(worst.low <= 1.0 && 1.0 <= worst.high);
    }
    let percent = 100.0 * f64::from(held) / 400.0;
    assert!(percent >= 92.0, "{percent} %");
    let single = PLAIN.measure(&mut generator, 1, 20, 100);
    let found = effect(&single, &single, &[0.5], &QUICK).expect("enough blocks");
    assert_eq!(found.ratios.len(), 1, "one run has no spread of its worst");
}
