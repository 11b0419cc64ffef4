// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A test of this very program that runs inside a simulated machine: there it may do to the machine
//! what nobody does to one they need.

use std::process::Command;
use std::time::Duration;

use crate::limited::Limited as _;
use crate::programs::{directory, stdout};

/// Set in the simulated machine: elsewhere nobody's settings are changed by a test.
const INSIDE: &str = "RAMPART_TEST_IN_THE_MACHINE";

/// What a test says at its end, so that one that did not run is not taken for one that passed.
const TO_THE_END: &str = "seen to the end";

/// Whether this runs inside.
#[must_use]
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Tells the one outside that the test ran.
#[expect(clippy::print_stdout, reason = "the one outside sees that it ran")]
pub fn seen_to_the_end() {
    println!("{TO_THE_END}");
}

/// Boots a machine with these options of `rampart sim run` and runs one test of this program in it,
/// for at most so long.
///
/// # Panics
/// If it fails there, or does not say that it was seen to the end.
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
    assert!(text.contains(TO_THE_END), "{text}");
}
