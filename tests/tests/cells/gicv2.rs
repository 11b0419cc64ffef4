// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisor on a machine with a GICv2: launched and ended under load, cells of one and two CPUs, every attack,
//! and an unmodified Linux in a cell. The drivers of these tests are `crates/domains/cells/examples/cells_agent` and
//! `linux_agent.rs`. WFI traps there, so exits for sleeping are not counted.

use std::time::Duration;

use rampart_tests::hypervisor::{BEGIN, END, assert_nothing_failed, kernel_errors, run_with_gicv2};

const ALL: &str = r#"
export SLEEPING_TRAPS=1
./cells_agent cells . || echo 'FAILED  cells'
./cells_agent turns 10 . || echo 'FAILED  turns'
./cells_agent leave 20 || echo 'FAILED  leave'
"#;

const LINUX: &str = r#"
export SLEEPING_TRAPS=1
./linux_agent run /boot/vmlinuz-$(uname -r) rampart-meter || echo 'FAILED  linux_agent'
"#;

#[test]
fn cells_of_a_gicv2_are_isolated() {
    let wanted = [
        "timer: no exit for an interrupt",
        "sleeps with everything masked: its CPU is back",
        "attacks: the other cell is not disturbed",
        "a cell accesses only its own memory and devices",
        "memory: the other cell is not disturbed",
        "two CPUs, started again: no exit for an interrupt",
        "pair: the other cell is not disturbed",
        "bits: the other cell is not disturbed",
        "bells: the other cell is not disturbed",
        "a device of the cell: no exit for an interrupt",
        "failures: the root learns of a failure in time",
        "destroyed 10 times",
        "disabled 20 times under load",
    ];
    run(ALL, &wanted, &["log "]);
}

#[test]
fn an_unmodified_linux_runs_in_a_cell_of_a_gicv2() {
    let wanted = [
        "ok  one CPU, quiet: timer interrupts cause no exit",
        "ok  after its kernel panicked: the cell runs again",
        "ok  two CPUs, both measured: no exit except for interrupts that it sends",
        "Run /init as init process",
    ];
    run(LINUX, &wanted, &["log ", "cell "]);
}

/// Runs a script in a machine of its own. No check may fail, and the output must contain all of `wanted`.
fn run(script: &str, wanted: &[&str], logs: &[&str]) {
    let script = [BEGIN, script, END].concat();
    let text = run_with_gicv2(&script, Duration::from_secs(1800));
    assert_nothing_failed(&text);
    for wanted in wanted.iter().chain(&["finished"]) {
        assert!(text.contains(wanted), "no {wanted:?}: {text}");
    }
    let errors = kernel_errors(&text, logs);
    assert!(errors.is_empty(), "{errors:?}: {text}");
}
