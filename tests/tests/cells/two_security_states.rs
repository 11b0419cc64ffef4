// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisor with two security states in the interrupt controller, as on boards with firmware
//! at EL3: a cell's timer, attacks by cells, and the return of each CPU, however its cell sleeps.
//! The driver of this test is `crates/domains/cells/examples/cells_agent`.

use std::time::Duration;

use rampart_tests::hypervisor::{
    BEGIN, END, assert_nothing_failed, kernel_errors, run_with_two_security_states,
};

const ATTACKS: &str = r#"
SLEEPING_TRAPS=1 ./cells_agent cells . attacks || echo 'FAILED  cells'
./cells_agent leave 3 || echo 'FAILED  leave'
"#;

#[test]
fn cells_are_isolated_and_every_cpu_is_taken_back() {
    let script = [BEGIN, ATTACKS, END].concat();
    let text = run_with_two_security_states(&script, Duration::from_secs(1800));
    assert_nothing_failed(&text);
    for wanted in [
        "timer: no exit for an interrupt",
        "sleeps with everything masked: its CPU is back",
        "attacks: the other cell is not disturbed",
        "disabled 3 times under load",
        "finished",
    ] {
        assert!(text.contains(wanted), "no {wanted:?}: {text}");
    }
    let errors = kernel_errors(&text, &["log "]);
    assert!(errors.is_empty(), "{errors:?}: {text}");
}
