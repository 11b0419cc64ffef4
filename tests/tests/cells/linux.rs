// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An unmodified PREEMPT_RT Linux in a cell, on one CPU and on two, in the simulated arm64 machine: it boots, is
//! measured, has no errors in its log, and is started again after every kind of end. All in one boot. The driver
//! of this test is `crates/domains/cells/examples/linux_agent.rs`.

use std::time::Duration;

use rampart_tests::hypervisor::{
    BEGIN, END, assert_nothing_failed, kernel_errors, run_with_hypervisor,
};

const RUN: &str =
    "./linux_agent run /boot/vmlinuz-$(uname -r) rampart-meter || echo 'FAILED  linux_agent'";

#[test]
fn an_unmodified_linux_runs_in_a_cell_without_exits() {
    let text = run_with_hypervisor(&[BEGIN, RUN, END].concat(), Duration::from_secs(1800));
    assert_nothing_failed(&text);
    for wanted in [
        "PREEMPT_RT",
        "ok  without a first program: the error has the panic, and the log is whole",
        "ok  with too little memory: the error has the log of a kernel that hangs",
        "ok  one CPU, quiet: timer interrupts cause no exit",
        "ok  one CPU, the root under load: timer interrupts cause no exit",
        "ok  after its kernel panicked: the cell runs again",
        "ok  two CPUs, one measured: no exit except for interrupts that it sends",
        "ok  two CPUs, both measured: no exit except for interrupts that it sends",
        "Run /init as init process",
        "finished",
    ] {
        assert!(text.contains(wanted), "no {wanted:?}: {text}");
    }
    let errors = kernel_errors(&text, &["log ", "cell "]);
    assert!(errors.is_empty(), "{errors:#?}\n{text}");
}
