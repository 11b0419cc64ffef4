// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An unmodified PREEMPT_RT Linux in a cell, on one CPU and on two, in the simulated arm64 machine: it
//! boots, is measured in, and neither its log nor the root's has anything to complain of; it can be
//! started again however it ended. One boot for all of it. What is done there is in
//! `crates/domains/cells/examples/linux_agent.rs`.

use std::time::Duration;

use rampart_tests::hypervisor::{BEGIN, END, complaints, run_with_hypervisor};

const RUN: &str =
    "./linux_agent run /boot/vmlinuz-$(uname -r) rampart-meter || echo 'FAILED  linux_agent'";

#[test]
fn an_unmodified_linux_runs_in_a_cell_without_exits() {
    let text = run_with_hypervisor(&[BEGIN, RUN, END].concat(), 1280, Duration::from_secs(400));
    assert!(!text.contains("FAILED"), "{text}");
    for wanted in [
        "PREEMPT_RT",
        "ok  one CPU, quiet: timer interrupts cause none",
        "ok  one CPU, the root under load: timer interrupts cause none",
        "ok  after its kernel panicked: it runs again",
        "ok  two CPUs, one measured: no exit but for what it sends",
        "ok  two CPUs, both measured: no exit but for what it sends",
        "Run /init as init process",
        "finished",
    ] {
        assert!(text.contains(wanted), "no {wanted:?}: {text}");
    }
    let complaints = complaints(&text, &["log ", "cell "]);
    assert!(complaints.is_empty(), "{complaints:#?}\n{text}");
}
