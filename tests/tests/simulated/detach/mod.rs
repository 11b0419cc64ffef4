// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Detached threads on Debian's kernels for x86-64 and arm64, with and without PREEMPT_RT: a control loop under load
//! without an interrupt on its CPU, hostile threads, the CPU given back whatever ends its holder, and another kernel by
//! kexec.
//!
//! What runs in the machines is in `kernel/detach/tests`; each of its cases is a test here.

mod command;
mod costs;
mod evaluate;
mod experiment;
mod hostile;
mod looping;
mod machine;
mod thousand;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rampart_tests::detached_programs::{compile, has_compiler};
use rampart_tests::limited::Limited as _;
use rampart_tests::programs::{beside_others, stdout};

/// The CPU that is taken.
const CPU: usize = 2;

/// The example under load; then what ends it.
const LOOP: &str = include_str!("../../../../kernel/detach/tests/loop.sh");

/// The paper's experiment and the costs.
const EXPERIMENT: &str = include_str!("../../../../kernel/detach/tests/experiment.sh");

/// Runs what the README names.
fn check_example(architecture: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(root.join("scripts/example-detached"))
        .args([architecture, "2"])
        .env_remove("RAMPART_METER")
        .finish_within(Duration::from_secs(900), Vec::new())
        .expect("scripts/example-detached starts");
    let text = stdout(&output, 0);
    for expected in [
        "the control loop runs on CPU 2, a build and an IO load on CPUs 0-1,3-4",
        "interrupts on CPU 2: 0",
        "after kill -9 Linux runs a program on CPU 2",
    ] {
        assert!(text.contains(expected), "no {expected:?}:\n{text}");
    }
}

#[test]
fn the_example_has_no_interrupt_and_gives_its_cpu_back_when_killed() {
    let _machine = beside_others();
    check_example("x86_64");
}

#[test]
fn the_example_on_arm64_has_no_interrupt_and_gives_its_cpu_back_when_killed() {
    let _machine = beside_others();
    if has_compiler("the example of a detached thread on arm64") {
        check_example("aarch64");
    }
}

/// Returns whether a program has the instruction `tpause %ecx` (Intel SDM 2B: 66 0F AE /6).
fn has_tpause(program: &Path) -> bool {
    let code = std::fs::read(program).expect("a program");
    code.windows(4)
        .any(|bytes| bytes == [0x66, 0x0f, 0xae, 0xf1])
}

#[test]
fn the_library_has_the_instruction_that_pauses_until_a_time() {
    if std::env::consts::ARCH != "x86_64" {
        return;
    }
    let location = tempfile::tempdir().expect("a directory");
    compile("x86_64", location.path());
    assert!(has_tpause(&location.path().join("control_loop")));
}
