// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisor with a PREEMPT_RT kernel in the simulated arm64 machine: launched and ended under load, cells
//! beside Linux, and attacks by cells. Most tests use one boot; the kernel log must have no errors. The driver of
//! these tests is `crates/domains/cells/examples/cells_agent`.

use crate::root_crash as crash;
use std::time::Duration;

use rampart_tests::hypervisor::{
    BEGIN, END, assert_nothing_failed, assert_programs_built, kernel_errors, run_with_hypervisor,
};
use rampart_tests::programs::beside_others;

const ALL: &str = r#"
sh -c './cells_agent enable 0' 2>/dev/null && echo 'FAILED  an invalid command is accepted'
./cells_agent cells . || echo 'FAILED  cells'
./cells_agent turns 10 . || echo 'FAILED  turns'
./cells_agent leave 20 || echo 'FAILED  leave'
"#;

const LEAVE: &str = "./cells_agent leave 200 || echo 'FAILED  leave'";

const TURNS: &str = "./cells_agent turns 200 . || echo 'FAILED  turns'";

#[test]
fn cells_run_without_exits_and_are_isolated() {
    let wanted = [
        "timer: no exit for an interrupt",
        "attacks: the other cell is not disturbed",
        "a cell accesses only its own memory and devices",
        "memory: the other cell is not disturbed",
        "two CPUs, started again: no exit for an interrupt",
        "pair: the other cell is not disturbed",
        "bits: the root has all lines again, no write was lost",
        "bits: the other cell is not disturbed",
        "bells: the other cell is not disturbed",
        "a device of the cell: no exit for an interrupt",
        "alarm: the other cell is not disturbed",
        "failures: the root learns of a failure in time",
        "watchdog: the cell starts again",
        "the memory of a destroyed cell is wiped",
        "destroyed 10 times",
        "disabled 20 times under load",
    ];
    run(ALL, &wanted);
}

#[test]
#[ignore = "creates and destroys cells for a minute; make test-long runs it"]
fn two_hundred_cells_leave_no_data_to_the_next() {
    run(TURNS, &["destroyed 200 times"]);
}

#[test]
#[ignore = "launches and ends the hypervisor under load for minutes; make test-long runs it"]
fn the_hypervisor_is_launched_and_ended_two_hundred_times() {
    run(LEAVE, &["disabled 200 times under load"]);
}

#[test]
fn a_cell_survives_a_root_panic() {
    let _machine = beside_others();
    assert_programs_built();
    crash::outlives(3, crash::Afterwards::Restarts);
}

#[test]
#[ignore = "takes longer than the minute that the cell survives; make test-long runs it"]
fn a_cell_survives_a_root_panic_for_a_minute() {
    let _machine = beside_others();
    assert_programs_built();
    crash::outlives(60, crash::Afterwards::Spins);
}

/// Runs a script in a machine of its own. No check may fail, and the output must contain all of `wanted`.
fn run(script: &str, wanted: &[&str]) {
    let script = [BEGIN, script, END].concat();
    let text = run_with_hypervisor(&script, Duration::from_secs(1800));
    assert_nothing_failed(&text);
    for wanted in wanted.iter().chain(&["finished"]) {
        assert!(text.contains(wanted), "no {wanted:?}: {text}");
    }
    let errors = kernel_errors(&text, &["log "]);
    assert!(errors.is_empty(), "{errors:?}: {text}");
}
