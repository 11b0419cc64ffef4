// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the view on terminals of 80 columns and 24 lines, and of other sizes.

use rampart_model::{Batch, CpuId, Distribution, Nanos, Phase, Series, SeriesBatch, Status};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::{Key, Shown, View, draw};
use crate::Latencies;
use crate::tests::with_findings;

fn latencies() -> Latencies {
    let mut latencies = Latencies::default();
    for cpu in 0..4 {
        latencies.add(&Batch {
            cpu: CpuId(cpu),
            phase: Phase::Measured,
            at: Nanos::ZERO,
            length: Nanos::SECOND,
            series: vec![SeriesBatch {
                series: Series::Lateness,
                seen: Distribution::from_values(
                    (1..=100).map(|sample| Nanos(sample * 1_000 + u64::from(cpu) * 50)),
                ),
                corrected: None,
            }],
            missed: 0,
            over_deadline: 0,
            lost: 0,
            timeline: Vec::new(),
        });
    }
    latencies
}

fn drawn(status: &Status, view: &View, size: (u16, u16)) -> String {
    let latencies = latencies();
    let remarks = ["no meter on CPUs 3: a real-time thread of vision spins there".to_owned()];
    let shown = Shown {
        status,
        latencies: &latencies,
        remarks: &remarks,
    };
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).expect("a terminal");
    terminal
        .draw(|frame| draw(frame, &shown, view))
        .expect("drawn");
    terminal.backend().to_string()
}

/// Returns the CPUs in the order of the view.
fn order(view: &View) -> String {
    let text = drawn(&with_findings(), view, (80, 24));
    text.lines()
        .skip(4)
        .take(4)
        .filter_map(|line| line.trim_start_matches('"').chars().next())
        .collect()
}

#[test]
fn it_fits_80_columns_and_24_lines() {
    insta::assert_snapshot!(drawn(&with_findings(), &View::default(), (80, 24)));
}

#[test]
fn draws_any_size() {
    let mut view = View::default();
    view.press(Key::Help);
    for size in [(1, 1), (20, 5), (40, 10), (300, 100)] {
        drawn(&with_findings(), &view, size);
    }
}

#[test]
fn sorts_and_pages() {
    let mut view = View::default();
    assert_eq!(order(&view), "0123");
    view.press(Key::Down);
    assert_eq!(order(&view), "3210");
    view.press(Key::Left);
    // By noise sources: CPUs 2 and 3 have one each.
    assert_eq!(order(&view), "3210");
    view.press(Key::Up);
    assert_eq!(order(&view), "0123");
    view.press(Key::NextPage);
    assert!(order(&view).starts_with('3'), "the last one is visible");
    view.press(Key::PreviousPage);
    assert_eq!(order(&view), "0123");
}

#[test]
fn keys_pause_help_and_end() {
    let mut view = View::default();
    assert!(view.press(Key::Pause) && view.is_paused());
    assert!(drawn(&with_findings(), &view, (80, 24)).contains("PAUSED"));
    assert!(view.press(Key::Help));
    assert!(drawn(&with_findings(), &view, (80, 24)).contains("kinds of noise sources"));
    assert!(view.press(Key::Quit), "the help is closed first");
    assert!(!view.press(Key::Quit));
}
