// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests the collector with prepared samples in its ring.

use super::*;
use crate::ring::{Producer, ring};
use rampart_model::{CpuSet, Distribution, MeterEvent};

const START: u64 = 1_000_000_000;
const MILLI: u64 = 1_000_000;

struct Bench {
    producer: Producer,
    collector: Collector,
    boundary: Arc<Boundary>,
    console: Console,
}

/// Creates a collector with a warm-up of 100 ms and a measurement of a second from [`START`] on, in
/// batches of 200 ms.
fn bench(meter: MeterKind, change: impl FnOnce(&mut MeterSettings)) -> Bench {
    let mut plan = MeterSettings {
        warm_up: Nanos::from_millis(100),
        duration: Nanos::SECOND,
        batch: Nanos::from_millis(200),
        worst: 3,
        ..MeterSettings::new(meter, CpuSet::single(CpuId(1)))
    };
    change(&mut plan);
    let (producer, consumer) = ring(2048);
    let boundary = Arc::new(Boundary::default());
    let mut collector = Collector::new(CpuId(1), &plan, consumer, Arc::clone(&boundary));
    collector.start(Nanos(START), &plan);
    Bench {
        producer,
        collector,
        boundary,
        console: Console::detached(),
    }
}

impl Bench {
    /// Adds a sample that ended `at` ms after the start.
    fn push(&mut self, at: u64, value: u64, missed: u64) {
        self.producer.push(Sample {
            at: START + at * MILLI,
            value,
            missed,
            start: value / 2,
        });
    }

    fn turn(&self) {
        let (lost, written) = (self.producer.lost(), self.producer.written());
        self.boundary.lost.store(lost, Ordering::Relaxed);
        self.boundary.samples.store(written, Ordering::Release);
    }

    fn read(&mut self, at: u64) {
        let now = Nanos(START + at * MILLI);
        self.collector.read(now, None, &mut self.console);
    }

    fn batches(&mut self) -> Vec<Batch> {
        let batch = |event| match event {
            MeterEvent::Batch(batch) => batch,
            other => panic!("{other:?}"),
        };
        self.console.sent().into_iter().map(batch).collect()
    }
}

fn summaries(batches: &[Batch]) -> Vec<(Phase, u64, u64, u64)> {
    batches
        .iter()
        .map(|batch| {
            let at = (batch.at.0 - START) / MILLI;
            let samples = batch.series[0].seen.samples;
            (batch.phase, at, batch.length.0 / MILLI, samples)
        })
        .collect()
}

#[test]
fn separates_the_warm_up_from_the_batches() {
    use Phase::{Measured, WarmUp};
    let mut bench = bench(MeterKind::Wakeup, |_| {});
    bench.push(10, 9_000, 0);
    // The last sample of the warm-up is written late but belongs to the warm-up.
    bench.push(120, 21_000, 0);
    bench.turn();
    bench.push(130, 5_000, 0);
    bench.read(135);
    for at in 1..=9 {
        bench.push(100 + at * 100, 1_000 * at, 0);
    }
    bench.push(1_450, 350 * MILLI, 0);
    bench.read(1_500);
    bench.collector.finish(Nanos::SECOND, &mut bench.console);
    assert_eq!(
        summaries(&bench.batches()),
        [
            (WarmUp, 0, 100, 2),
            (Measured, 100, 200, 2),
            (Measured, 300, 200, 2),
            (Measured, 500, 200, 2),
            (Measured, 700, 200, 2),
            // Includes the sample that ended after the end.
            (Measured, 900, 200, 3),
        ]
    );
    let totals = bench.collector.totals();
    assert_eq!((totals.samples, totals.lost), (11, 0));
    let warm_up = bench.collector.warm_up();
    assert_eq!((warm_up.samples, warm_up.max), (2, Some(Nanos(21_000))));
    let worst = bench.collector.into_worst();
    let summaries: Vec<_> = worst
        .iter()
        .map(|worst| (worst.value.0, worst.sequence))
        .collect();
    assert_eq!(summaries, [(350 * MILLI, 10), (9_000, 9), (8_000, 8)]);
}

#[test]
fn counts_every_sample_in_the_fast_and_the_full_path() {
    let mut bench = bench(MeterKind::Wakeup, |plan| {
        plan.deadline = Some(Nanos(40_000))
    });
    bench.turn();
    let values: Vec<u64> = (0..1_000u64).map(|n| n * 7_919 % 50_000).collect();
    for (n, value) in values.iter().enumerate() {
        bench.push(100 + n as u64, *value, 0);
    }
    bench.read(1_200);
    bench.collector.finish(Nanos::SECOND, &mut bench.console);
    let mut seen = Distribution::default();
    let mut over = 0;
    for batch in bench.batches() {
        seen.merge(&batch.series[0].seen);
        over += batch.over_deadline;
    }
    assert_eq!(
        seen,
        Distribution::from_values(values.iter().copied().map(Nanos))
    );
    let expected = values.iter().filter(|value| **value > 40_000).count() as u64;
    assert_eq!(
        (over, bench.collector.totals().over_deadline),
        (expected, expected)
    );
}

#[test]
fn reports_lost_samples_in_their_batch() {
    let mut bench = bench(MeterKind::Wakeup, |_| {});
    for _ in 0..2_100 {
        bench.push(5, 1, 0);
    }
    bench.turn();
    bench.read(110);
    for _ in 0..2_050 {
        bench.push(120, 1, 0);
    }
    bench.read(400);
    bench.collector.finish(Nanos::SECOND, &mut bench.console);
    let lost: Vec<u64> = bench.batches().iter().map(|batch| batch.lost).collect();
    assert_eq!(lost, [52, 2, 0, 0, 0, 0]);
    assert_eq!(bench.collector.totals().lost, 2);
}

#[test]
fn corrects_missed_periods_in_the_periodic_series() {
    let mut bench = bench(MeterKind::Loop, |plan| plan.work = Nanos(100_000));
    bench.turn();
    bench.push(110, 200_000, 0);
    // A response of 3.2 ms in a period of 1 ms skips three starts.
    bench.push(120, 3_200_000, 3);
    bench.read(200);
    bench
        .collector
        .finish(Nanos::from_millis(200), &mut bench.console);
    let batch = bench.batches().pop().expect("a batch");
    assert_eq!((batch.missed, batch.over_deadline), (3, 1));
    let corrected = |index: usize| batch.series[index].corrected.clone();
    let of = |values: &[u64]| Some(Distribution::from_values(values.iter().copied().map(Nanos)));
    assert_eq!(batch.series[0].series, Series::Response);
    // Each skipped period could have begun at the end of the long one, followed by its work.
    assert_eq!(
        corrected(0),
        of(&[200_000, 3_200_000, 2_300_000, 1_300_000, 300_000])
    );
    assert_eq!(
        corrected(1),
        of(&[100_000, 1_600_000, 2_200_000, 1_200_000, 200_000])
    );
    assert_eq!((corrected(2), corrected(3)), (None, None));
    assert_eq!(bench.collector.totals().worst_start, Nanos(1_600_000));
}

fn slots(batch: &Batch) -> Vec<Option<u64>> {
    batch
        .timeline
        .iter()
        .map(|worst| worst.map(|worst| worst.0))
        .collect()
}

#[test]
fn stall_leaves_empty_slots_and_counts_in_the_slot_of_its_end() {
    for meter in MeterKind::ALL {
        let mut bench = bench(meter, |plan| {
            plan.timeline = Some(Nanos::from_millis(20));
            plan.work = Nanos(100);
        });
        bench.push(10, 4_000, 0);
        bench.push(19, 3_000, 0);
        // The last sample of the warm-up ends after it.
        bench.push(125, 25 * MILLI, 0);
        bench.turn();
        for at in [130, 139, 141, 150, 155] {
            bench.push(at, 1_000 + at, 0);
        }
        // 100 ms without a sample, beyond the end of the first batch.
        bench.push(315, 100 * MILLI, 99);
        bench.push(316, 2_000, 0);
        bench.push(317, 1_000, 0);
        bench.read(400);
        // A sample that ends after the measurement.
        bench.push(545, 50 * MILLI, 0);
        bench.read(600);
        bench
            .collector
            .finish(Nanos::from_millis(420), &mut bench.console);
        let batches = bench.batches();
        let starts: Vec<_> = batches
            .iter()
            .map(|batch| (batch.at.0 - START) / MILLI)
            .collect();
        assert_eq!(starts, [0, 100, 300, 500], "{meter}");
        let mut warm_up = vec![None; 7];
        (warm_up[0], warm_up[6]) = (Some(4_000), Some(25 * MILLI));
        assert_eq!(slots(&batches[0]), warm_up, "{meter}");
        let mut first = vec![None; 10];
        (first[1], first[2]) = (Some(1_139), Some(1_155));
        assert_eq!(slots(&batches[1]), first, "{meter}");
        let mut second = vec![None; 10];
        second[0] = Some(100 * MILLI);
        assert_eq!(slots(&batches[2]), second, "{meter}");
        assert_eq!(
            slots(&batches[3]),
            [None, None, Some(50 * MILLI)],
            "{meter}"
        );
    }
}

#[test]
fn timeline_equals_sorting_and_changes_nothing_else() {
    let values: Vec<u64> = (0..1_000u64).map(|n| n * 7_919 % 50_000).collect();
    let [without, with] = [None, Some(Nanos::from_millis(5))].map(|timeline| {
        let mut bench = bench(MeterKind::Wakeup, |plan| plan.timeline = timeline);
        bench.turn();
        for (n, value) in values.iter().enumerate() {
            bench.push(100 + n as u64, *value, 0);
        }
        bench.read(1_200);
        bench.collector.finish(Nanos::SECOND, &mut bench.console);
        bench.batches()
    });
    let summaries: Vec<_> = with.iter().flat_map(slots).skip(20).collect();
    let expected: Vec<_> = values
        .chunks(5)
        .map(|chunk| chunk.iter().copied().max())
        .collect();
    assert_eq!(summaries, expected);
    let cleared: Vec<_> = with
        .into_iter()
        .map(|batch| Batch {
            timeline: Vec::new(),
            ..batch
        })
        .collect();
    assert_eq!(cleared, without);
}

#[test]
fn batch_grows_with_its_slots_while_the_output_is_congested() {
    let mut bench = bench(MeterKind::Wakeup, |plan| {
        plan.timeline = Some(Nanos::from_millis(100));
    });
    bench.turn();
    bench.read(100);
    bench.console.congest();
    bench.push(150, 10, 0);
    bench.push(350, 20, 0);
    bench.read(520);
    assert_eq!(bench.console.sent().len(), 1); // the batch of the warm-up
    bench.read(720);
    let batches = bench.batches();
    assert_eq!(summaries(&batches), [(Phase::Measured, 100, 600, 2)]);
    assert_eq!(
        slots(&batches[0]),
        [Some(10), None, Some(20), None, None, None]
    );
}
