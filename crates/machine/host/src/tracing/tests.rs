// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of recorded traces, compared with the samples of the same run.

use std::sync::Arc;

use proptest::prelude::*;
use rampart_model::{CauseKind, CpuId, Nanos, WorstEvent};

use super::assemble::Assembler;
use super::explain::{SchedulerLimit, name_limit};
use super::{Measurer, TraceInterval, TraceSpan, TracedSample, explain};

const OSNOISE: &str = include_str!("../../../../../tests/fixtures/trace/osnoise.txt");
const EVENTS: &str = include_str!("../../../../../tests/fixtures/trace/events.txt");

fn assembled(text: &str) -> Vec<TraceInterval> {
    let mut assembler = Assembler::default();
    for line in text.lines() {
        assembler.take(line);
    }
    assert_eq!((assembler.lost, assembler.dropped), (0, 0));
    assembler.intervals.into()
}

fn sample(at: u64, value: u64) -> TracedSample {
    TracedSample {
        measurer: Measurer::Meter,
        cpu: CpuId(1),
        event: WorstEvent {
            at: Nanos(at),
            value: Nanos(value),
            sequence: 0,
        },
        window: Nanos(value),
        work: Nanos::ZERO,
    }
}

/// Returns the causes with their shares of the sample in percent, and the unexplained share.
fn causes_of(
    intervals: &[TraceInterval],
    sample: TracedSample,
) -> (Vec<(CauseKind, String, u64)>, u64) {
    let explained = explain(&sample, intervals, &[]);
    let share = |length: Nanos| length.0 * 100 / sample.event.value.0;
    let mut sum = explained.unexplained;
    for cause in &explained.causes {
        if cause.kind != CauseKind::Unseen {
            sum += cause.duration;
        }
    }
    // The explained span is two microseconds longer than the sample.
    assert!(
        sum.0.abs_diff(sample.event.value.0) <= 2_000,
        "{explained:?}"
    );
    assert!(
        explained
            .causes
            .is_sorted_by(|a, b| a.duration >= b.duration)
    );
    let causes = explained
        .causes
        .iter()
        .map(|cause| (cause.kind, cause.name.clone(), share(cause.duration)))
        .collect();
    (causes, share(explained.unexplained))
}

#[test]
fn osnoise_events_name_the_planted_thread() {
    let intervals = assembled(OSNOISE);
    let (causes, unexplained) = causes_of(&intervals, sample(28_890_576_340, 125_257_393));
    let named: Vec<(CauseKind, &str, u64)> = causes
        .iter()
        .take(4)
        .map(|(kind, name, share)| (*kind, name.as_str(), *share))
        .collect();
    assert_eq!(
        named,
        [
            (CauseKind::Thread, "planted:168", 58),
            (CauseKind::Interrupt, "local_timer:236", 26),
            (CauseKind::Thread, "irq/25-virtio0-:125", 9),
            (CauseKind::Thread, "planted:203", 5),
        ]
    );
    assert_eq!(unexplained, 0);
    // The shell's child, which it started with the same priority.
    let (causes, _) = causes_of(&intervals, sample(28_323_542_768, 156_223_821));
    assert_eq!(causes[0].1, "sleep:202");
}

#[test]
fn plain_events_name_the_planted_thread() {
    let intervals = assembled(EVENTS);
    let (causes, unexplained) = causes_of(&intervals, sample(70_987_177_208, 181_797_749));
    assert_eq!(causes[0].0, CauseKind::Thread);
    assert!(causes[0].1.starts_with("planted:"), "{causes:?}");
    assert!(
        causes
            .iter()
            .any(|(kind, name, _)| *kind == CauseKind::Interrupt && name == "local_timer:236"),
        "{causes:?}"
    );
    assert_eq!(unexplained, 0);
}

#[test]
fn an_osnoise_event_begins_before_what_interrupted_it() {
    // The thread ran from 100 to 200 µs; an interrupt took 30 µs of that, of which an NMI took 10 µs;
    // the trace's own clock is a second ahead.
    let intervals = assembled(
        " x-1 [001] 0.000150: nmi_noise: start 1.000140000 duration 10000 ns\n \
          x-1 [001] 0.000160: irq_noise: eth0:9 start 1.000130000 duration 20000 ns\n \
          x-1 [001] 0.000170: softirq_noise: NET_RX:3 start 1.000162000 duration 8000 ns\n \
          x-1 [001] 0.000200: thread_noise: a b:c:7 start 1.000100000 duration 62000 ns\n",
    );
    let interval = |kind, name: &str, start, end| TraceInterval {
        kind,
        name: name.into(),
        start: Nanos(start),
        end: Nanos(end),
    };
    assert_eq!(
        intervals,
        [
            interval(CauseKind::Nmi, "nmi", 140_000, 150_000),
            interval(CauseKind::Interrupt, "eth0:9", 130_000, 160_000),
            interval(CauseKind::Softirq, "NET_RX:3", 162_000, 170_000),
            interval(CauseKind::Thread, "a b:c:7", 100_000, 200_000),
        ]
    );
    let explained = explain(&sample(201_000, 101_000), &intervals, &[]);
    let causes: Vec<(&str, u64)> = explained
        .causes
        .iter()
        .map(|cause| (cause.name.as_str(), cause.duration.0))
        .collect();
    assert_eq!(
        causes,
        [
            ("a b:c:7", 62_000),
            ("eth0:9", 20_000),
            ("nmi", 10_000),
            ("NET_RX:3", 8_000)
        ]
    );
    assert_eq!(explained.unexplained, Nanos(1_000));
}

#[test]
fn plain_events_nest_and_lost_ones_leave_no_open_interrupt() {
    let switch = |from: &str, to: &str| {
        format!(
            "sched_switch: prev_comm={from} prev_prio=120 prev_state=S ==> next_comm={to} next_prio=120"
        )
    };
    let text = [
        format!(
            " <idle>-0 [001] 0.000100: {}",
            switch("swapper/1 prev_pid=0", "a b next_pid=7")
        ),
        " a b-7 [001] 0.000110: irq_handler_entry: irq=9 name=eth0".to_owned(),
        " a b-7 [001] 0.000112: nmi_handler: f() delta_ns: 1500 handled: 1".to_owned(),
        " a b-7 [001] 0.000120: irq_handler_exit: irq=9 ret=handled".to_owned(),
        " a b-7 [001] 0.000121: softirq_entry: vec=3 [action=NET_RX]".to_owned(),
        " a b-7 [001] 0.000130: softirq_exit: vec=3 [action=NET_RX]".to_owned(),
        " a b-7 [001] 0.000140: ipi_entry: (Rescheduling interrupts)".to_owned(),
        " a b-7 [001] 0.000141: ipi_exit: (Rescheduling interrupts)".to_owned(),
        // It has another name now.
        format!(
            " c-7 [001] 0.000150: {}",
            switch("c prev_pid=7", "swapper/1 next_pid=0")
        ),
        format!(
            " <idle>-0 [001] 0.000160: {}",
            switch("swapper/1 prev_pid=0", "d next_pid=8")
        ),
        " d-8 [001] 0.000170: local_timer_entry: vector=236".to_owned(),
    ];
    let as_tuples = |intervals: &[TraceInterval]| -> Vec<(CauseKind, String, u64, u64)> {
        intervals
            .iter()
            .map(|interval| {
                let (start, end) = (interval.start.0 / 100, interval.end.0 / 100);
                (interval.kind, interval.name.to_string(), start, end)
            })
            .collect()
    };
    let expected = |kind, name: &str, start, end| (kind, name.to_owned(), start, end);
    assert_eq!(
        as_tuples(&assembled(&text.join("\n"))),
        [
            expected(CauseKind::Nmi, "f", 1_105, 1_120),
            expected(CauseKind::Interrupt, "eth0:9", 1_100, 1_200),
            expected(CauseKind::Softirq, "NET_RX:3", 1_210, 1_300),
            expected(
                CauseKind::Interrupt,
                "Rescheduling interrupts",
                1_400,
                1_410
            ),
            expected(CauseKind::Thread, "c:7", 1_000, 1_500),
            expected(CauseKind::Unseen, "idle", 1_500, 1_600),
        ]
    );
    let mut assembler = Assembler::default();
    for line in &text {
        assembler.take(line);
    }
    assembler.take("CPU:1 [LOST 5 EVENTS]");
    let before = assembler.intervals.len();
    assembler.take(" x-1 [001] 0.000180: local_timer_exit: vector=236");
    assembler.take(&format!(
        " x-1 [001] 0.000190: {}",
        switch("d prev_pid=8", "swapper/1 next_pid=0")
    ));
    assert_eq!((assembler.intervals.len(), assembler.lost), (before, 5));
}

#[test]
fn the_measuring_thread_is_no_cause_but_its_lost_time_is_reported() {
    let own = TraceInterval {
        kind: CauseKind::Thread,
        name: "meter/1:9".into(),
        start: Nanos(0),
        end: Nanos(10_000_000),
    };
    // `noise`: it had the CPU all the time, but did not execute.
    let explained = explain(&sample(5_000_000, 400_000), [&own], &[]);
    assert_eq!(explained.causes.len(), 1);
    assert_eq!(explained.causes[0].kind, CauseKind::Unseen);
    assert_eq!(explained.causes[0].duration, Nanos(400_000));
    assert_eq!(explained.unexplained, Nanos(400_000));
    // `loop`: three quarters of it were its work.
    let working = TracedSample {
        work: Nanos(300_000),
        ..sample(5_000_000, 400_000)
    };
    let explained = explain(&working, [&own], &[]);
    assert_eq!(explained.unexplained, Nanos(100_000));
    assert!(explained.causes[0].duration.0.abs_diff(100_000) <= 2_000);
    // The measuring thread of another CPU is an ordinary thread.
    let other = TraceInterval {
        name: "meter/10:9".into(),
        ..own
    };
    let explained = explain(&sample(5_000_000, 400_000), [&other], &[]);
    assert_eq!(explained.causes[0].kind, CauseKind::Thread);
}

#[test]
fn the_thread_of_a_virtual_cpu_is_the_guest_and_no_cause() {
    let thread = |name: &str, start, end| TraceInterval {
        kind: CauseKind::Thread,
        name: name.into(),
        start: Nanos(start),
        end: Nanos(end),
    };
    let intervals = [
        thread("CPU 1/KVM:77", 4_500_000, 4_700_000),
        thread("planted:9", 4_700_000, 4_940_000),
        thread("CPU 1/KVM:77", 4_940_000, 5_100_000),
    ];
    let of_the_guest = TracedSample {
        measurer: Measurer::VirtualCpu(77),
        ..sample(5_000_000, 400_000)
    };
    let (causes, unexplained) = causes_of(&intervals, of_the_guest);
    assert_eq!(
        causes,
        [
            (CauseKind::Thread, "planted:9".to_owned(), 60),
            (
                CauseKind::Unseen,
                "in the guest, whose own kernel is not traced".to_owned(),
                40
            ),
        ]
    );
    assert_eq!(unexplained, 40);
    // The virtual CPU of another guest is an ordinary thread.
    let other = TracedSample {
        measurer: Measurer::VirtualCpu(7),
        ..of_the_guest
    };
    let (causes, unexplained) = causes_of(&intervals, other);
    assert!(causes.contains(&(CauseKind::Thread, "CPU 1/KVM:77".to_owned(), 40)));
    assert_eq!(unexplained, 0);
}

#[test]
fn without_any_event_the_cause_is_unseen() {
    let explained = explain(&sample(5_000_000, 400_000), [], &[]);
    assert_eq!(explained.causes.len(), 1);
    assert_eq!(explained.causes[0].kind, CauseKind::Unseen);
    assert_eq!(explained.causes[0].start, Nanos(4_600_000));
    assert_eq!(explained.unexplained, Nanos(400_000));
}

#[test]
fn time_of_lost_events_is_reported() {
    let span = |start, end| TraceSpan {
        start: Nanos(start),
        end: Nanos(end),
    };
    // The sample's time begins at 4.6 ms.
    let lost = [
        span(0, 100),
        span(4_500_000, 4_700_000),
        span(4_900_000, 5_100_000),
    ];
    let explained = explain(&sample(5_000_000, 400_000), [], &lost);
    assert_eq!(explained.causes.len(), 1, "{explained:?}");
    let cause = &explained.causes[0];
    assert_eq!(cause.name, "the trace of that time is lost");
    assert_eq!(
        (cause.start, cause.duration),
        (Nanos(4_600_000), Nanos(200_000))
    );
    assert_eq!(cause.kind, CauseKind::Unseen);
    assert_eq!(explained.unexplained, Nanos(400_000));
    // Events lost at another time are no cause.
    let explained = explain(&sample(5_000_000, 400_000), [], &lost[..1]);
    assert_eq!(explained.causes[0].name, "nothing that the kernel saw");
}

#[test]
fn lost_events_and_dropped_intervals_are_kept_as_times() {
    let line = |micros: u64| format!(" x-1 [001] 0.{micros:06}: local_timer_entry: vector=236");
    let mut assembler = Assembler::default();
    assembler.take(&line(100));
    assembler.take("CPU:1 [LOST 5 EVENTS]");
    assembler.take("CPU:1 [LOST 1 EVENTS]");
    assembler.take(&line(300));
    assembler.take(&line(400));
    assembler.take("CPU:1 [LOST 2 EVENTS]");
    let (_, lost) = assembler.finish();
    let expected = [(100_000, 300_000), (400_000, u64::MAX)];
    assert_eq!(
        lost,
        expected.map(|(start, end)| TraceSpan {
            start: Nanos(start),
            end: Nanos(end),
        })
    );

    let mut assembler = Assembler::default();
    let nmi = |micros: u64| {
        let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
        format!(" x-1 [001] {seconds}.{micros:06}: nmi_handler: f() delta_ns: 100 handled: 1")
    };
    for micros in 1..=(1 << 20) + 3 {
        assembler.take(&nmi(micros));
    }
    assert_eq!(assembler.dropped, 3);
    let (kept, lost) = assembler.finish();
    assert_eq!(
        lost,
        [TraceSpan {
            start: Nanos::ZERO,
            end: Nanos(3_000)
        }]
    );
    assert_eq!(kept[0].end, Nanos(4_000));
}

/// Returns the interval that has the CPU at a moment, by comparing all.
fn owner(intervals: &[TraceInterval], at: u64) -> Option<usize> {
    let rank = |kind| match kind {
        CauseKind::Nmi => 3,
        CauseKind::Interrupt => 2,
        CauseKind::Softirq => 1,
        CauseKind::Thread | CauseKind::Limit | CauseKind::Unseen => 0,
    };
    (0..intervals.len())
        .filter(|index| intervals[*index].start.0 <= at && at < intervals[*index].end.0)
        .max_by_key(|index| {
            (
                rank(intervals[*index].kind),
                intervals[*index].start,
                *index,
            )
        })
}

#[test]
fn an_unreported_switch_is_seen_from_later_events() {
    let text = [
        " x-7 [001] 0.000100: sched_switch: prev_comm=x prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120",
        " <idle>-0 [001] 0.000120: local_timer_entry: vector=236",
        " <idle>-0 [001] 0.000121: local_timer_exit: vector=236",
        " y-8 [001] 0.000140: local_timer_entry: vector=236",
        " y-8 [001] 0.000142: local_timer_exit: vector=236",
        " z-8 [001] 0.000160: sched_switch: prev_comm=z prev_pid=8 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120",
    ];
    let intervals = assembled(&text.join("\n"));
    let threads: Vec<&TraceInterval> = intervals
        .iter()
        .filter(|interval| interval.kind != CauseKind::Interrupt)
        .collect();
    let found: Vec<(CauseKind, &str, Nanos, Nanos)> = threads
        .iter()
        .map(|interval| (interval.kind, &*interval.name, interval.start, interval.end))
        .collect();
    assert_eq!(
        found,
        [
            (CauseKind::Unseen, "idle", Nanos(100_000), Nanos(121_000)),
            (CauseKind::Thread, "z:8", Nanos(121_000), Nanos(160_000)),
        ]
    );
}

proptest! {
    #[test]
    fn each_moment_belongs_to_the_innermost_interval(
        parts in proptest::collection::vec((0u8..4, 0u64..60, 1u64..40), 0..12),
        at in 20u64..80,
        value in 1u64..20,
    ) {
        // In milliseconds, so that two microseconds do not matter.
        const MILLI: u64 = 1_000_000;
        let intervals: Vec<TraceInterval> = parts.iter().enumerate().map(|(index, (kind, start, length))| TraceInterval {
            kind: [CauseKind::Thread, CauseKind::Softirq, CauseKind::Interrupt, CauseKind::Nmi][usize::from(*kind)],
            name: Arc::from(index.to_string()),
            start: Nanos(start * MILLI),
            end: Nanos((start + length) * MILLI),
        }).collect();
        let explained = explain(&sample(at * MILLI, value * MILLI), &intervals, &[]);
        let mut expected = vec![0; intervals.len()];
        for moment in at - value..at {
            if let Some(index) = owner(&intervals, moment * MILLI) {
                expected[index] += MILLI;
            }
        }
        for (index, expected) in expected.iter().enumerate() {
            let cause = explained.causes.iter().find(|cause| cause.name == index.to_string());
            let found = cause.map_or(0, |cause| cause.duration.0);
            prop_assert!(found.abs_diff(*expected) <= 2_000, "{index}: {found} {expected}");
        }
    }

    #[test]
    fn accepts_any_line(line in ".{0,120}", event in "(irq|nmi|softirq|thread)_noise|sched_switch|irq_handler_(entry|exit)|softirq_entry|ipi_exit|x_entry", rest in ".{0,60}") {
        let mut assembler = Assembler::default();
        assembler.take(&line);
        assembler.take(&format!(" x-1 [001] 0.000100: {event}: {rest}"));
    }
}

/// A thread that waits while the CPU is idle for as long as throttling takes was throttled; a shorter idle time is
/// that of an idle state.
#[test]
fn idle_time_of_a_throttled_thread_has_a_name() {
    const MILLI: u64 = 1_000_000;
    let limits = [SchedulerLimit {
        name: "real-time throttling".to_owned(),
        taken: Nanos(50 * MILLI),
    }];
    for (length, expected) in [
        (49 * MILLI, CauseKind::Limit),
        (43 * MILLI, CauseKind::Limit),
        (20 * MILLI, CauseKind::Unseen),
        (80 * MILLI, CauseKind::Unseen),
        (MILLI / 10, CauseKind::Unseen),
    ] {
        let end = 300 * MILLI;
        let idle = TraceInterval {
            kind: CauseKind::Unseen,
            name: "idle".into(),
            start: Nanos(end - length),
            end: Nanos(end),
        };
        let mut explained = explain(&sample(end, length), [&idle], &[]);
        name_limit(&mut explained, &limits);
        assert_eq!(explained.causes[0].kind, expected, "{length}");
        let is_limit = expected == CauseKind::Limit;
        assert_eq!(explained.unexplained == Nanos::ZERO, is_limit, "{length}");
        assert_eq!(explained.causes[0].name == "real-time throttling", is_limit);
    }
}
