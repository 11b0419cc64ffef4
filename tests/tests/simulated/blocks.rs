// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel module `blocksys` on a PREEMPT_RT kernel in the simulated machine: blocks, refusals, CPUs that go
//! offline while they are stopped, a hundred loads and unloads, and the measured blocks. The kernel log must have
//! no error.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rampart_tests::guest_cases;
use rampart_tests::guest_cases::case_line;
use rampart_tests::hypervisor::kernel_errors;
use rampart_tests::limited::Limited as _;
use rampart_tests::programs::{archive, beside_others, directory, exit_code, stdout};
use rampart_tests::verdicts::BlocktestResult;
use serde_json::Value;

const SCRIPT: &str = include_str!("blocks.sh");

fn assert_succeeds(mut command: Command) {
    let output = command
        .finish()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert_eq!(exit_code(&output), 0, "{command:?}: {output:?}");
}

/// Copies programs and modules to a directory.
fn copy_programs(to: &Path) {
    let bin = directory();
    let modules = bin.join("modules");
    assert!(
        modules.is_dir(),
        "{}: no modules to test; run `make modules`",
        modules.display()
    );
    let mut copy = Command::new("cp");
    copy.arg("-R")
        .arg(bin.join("rampart"))
        .arg(bin.join("rampart-meter"));
    copy.arg(&modules).arg(to);
    assert_succeeds(copy);
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel/blocksys/tests/blocksys-test.c");
    let mut compile = Command::new("cc");
    compile.args(["-Wall", "-Wextra", "-Werror", "-O2", "-static", "-o"]);
    compile.arg(to.join("blocksys-test")).arg(source);
    assert_succeeds(compile);
}

fn run() -> Option<String> {
    let _machine = beside_others();
    let location = tempfile::tempdir().expect("a directory");
    copy_programs(location.path());
    let archive = archive(location.path(), &["."]);
    let output = Command::new(directory().join("rampart"))
        .args([
            "sim", "run", "--own", "--cpus", "4", "--", "bash", "-c", SCRIPT,
        ])
        .env_remove("RAMPART_METER")
        .finish_within(Duration::from_secs(600), archive)
        .expect("rampart starts");
    let mut text = stdout(&output, 0);

    let result = text.lines().find_map(|line| line.strip_prefix("result "));
    let result = result.map(serde_json::from_str::<Value>);
    if let Some(Ok(result)) = result {
        let kind = &result["made"]["kind"];
        text += &case_line(
            "the_module_makes_the_blocks_of_the_test",
            kind == "module",
            &kind.to_string(),
        );
        let [stopped, other] = [1, 2].map(|cpu| BlocktestResult::of(&result, cpu));
        // The outcome depends on how busy this host is; the figures do not.
        let is_whole = (0.5..1.5).contains(&stopped.transfer()) && stopped.p_value() < 0.05;
        text += &case_line(
            "blocks_reach_the_stopped_cpu",
            is_whole,
            &format!("{stopped:?}"),
        );
        text += &case_line(
            "blocks_do_not_reach_another_cpu",
            other.transfer() < 0.3,
            &format!("{other:?}"),
        );
    }
    let errors = format!("{:?}", kernel_errors(&text, &["log "]));
    text += &case_line("the_kernel_log_has_no_error", errors == "[]", &errors);
    Some(text)
}

guest_cases! {
    /// PREEMPT_RT.
    fn the_module_makes_blocks_as_requested() = run;
    wrong_parameters_are_refused,
    the_module_is_loaded,
    the_device_refuses_and_makes_blocks,
    a_module_in_use_is_not_unloaded,
    the_module_is_unloaded_after_its_owner_was_killed,
    the_module_is_loaded_and_unloaded_a_hundred_times,
    blocks_are_made_beside_cyclictest,
    cyclictest_sees_a_block,
    a_block_longer_than_the_limit_is_refused,
    a_larger_share_than_the_limit_is_refused,
    a_test_of_blocks_ends,
    every_awaited_state_is_reached,
    the_module_makes_the_blocks_of_the_test,
    blocks_reach_the_stopped_cpu,
    blocks_do_not_reach_another_cpu,
    the_kernel_log_has_no_error,
}
