// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a test of the current test program inside a simulated machine, which it may change freely.

use std::process::Command;
use std::time::Duration;

use crate::limited::Limited as _;
use crate::programs::{directory, stdout};

/// Set only in the simulated machine, so that a test never changes the settings of the host.
const INSIDE: &str = "RAMPART_TEST_IN_THE_MACHINE";

/// Printed at the end of a test, to distinguish a passed test from one that did not run.
const COMPLETED: &str = "test completed";

/// Returns whether the program runs inside the simulated machine.
#[must_use]
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Reports to the outer test that this test ran.
#[expect(clippy::print_stdout, reason = "the outer test reads it")]
pub fn report_completion() {
    println!("{COMPLETED}");
}

/// Boots a machine with these options of `rampart sim run` and runs one test of this program in it, for at
/// most `limit`.
///
/// # Panics
/// If the test fails there or does not report its completion.
pub fn run_inside(test: &str, options: &[&str], limit: Duration) {
    let ourselves = std::env::current_exe().expect("this program");
    let name = ourselves.file_name().expect("a name");
    let archive = Command::new("tar")
        .args(["-c", "-C"])
        .arg(directory())
        .args(["rampart", "rampart-meter", "-C"])
        .arg(ourselves.parent().expect("a directory"))
        .arg(name)
        .finish()
        .expect("tar starts");
    assert!(archive.status.success(), "{archive:?}");
    let script = format!(
        "set -e; cd \"$(mktemp -d)\"; tar -x; export RAMPART_BIN=$PWD {INSIDE}=1; \
         exec timeout {} ./{} --exact {test} --nocapture",
        limit.as_secs(),
        name.display()
    );
    let output = Command::new(directory().join("rampart"))
        .args(["sim", "run", "--own"])
        .args(options)
        .args(["--", "sh", "-c", &script])
        .env_remove("RAMPART_METER")
        .finish_within(limit + Duration::from_secs(80), archive.stdout)
        .expect("rampart starts");
    let text = stdout(&output, 0);
    assert!(text.contains("1 passed"), "{text}");
    assert!(text.contains(COMPLETED), "{text}");
}
