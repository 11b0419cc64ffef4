// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisor on a machine whose interrupt controller has two security states, as boards with
//! firmware at EL3 have: a cell's timer, what cells may not do, and that each CPU comes back, however
//! its cell sleeps. What is done there is in `crates/domains/cells/examples/cells_agent`.

use std::time::Duration;

use rampart_tests::hypervisor::{BEGIN, END, complaints, run_with_two_security_states};

const ATTACKS: &str = r#"
SLEEPING_TRAPS=1 ./cells_agent cells . attacks || echo 'FAILED  cells'
./cells_agent leave 3 || echo 'FAILED  leave'
"#;

#[test]
fn cells_keep_to_themselves_and_every_cpu_comes_back() {
    let script = [BEGIN, ATTACKS, END].concat();
    let text = run_with_two_security_states(&script, 1024, Duration::from_secs(400));
    assert!(!text.contains("FAILED"), "{text}");
    for wanted in [
        "timer: no exit for an interrupt",
        "sleeps with everything masked: its CPU is back",
        "attacks: the neighbour notices nothing",
        "disabled 3 times under load",
        "finished",
    ] {
        assert!(text.contains(wanted), "no {wanted:?}: {text}");
    }
    let complaints = complaints(&text, &["log "]);
    assert!(complaints.is_empty(), "{complaints:?}: {text}");
}
