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

use rampart_model::{Distribution, Nanos};
use rampart_stats::{EFFECT_RISK, Resampling, clopper_pearson, effect, exceedance_bound, holm};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::simulation::normal;

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
