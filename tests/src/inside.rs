// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a test of the current test program inside a simulated machine, which it may change freely.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::limited::Limited as _;
use crate::programs::{
    Machine, archive, beside_others, directory, is_root_with_cpus, left_out, stdout,
};

/// Set only in the simulated machine, so that a test never changes the settings of the host.
const INSIDE: &str = "RAMPART_TEST_IN_THE_MACHINE";

/// Printed at the end of a test, to distinguish a passed test from one that did not run.
const COMPLETED: &str = "test completed";

/// Version of glibc in the simulated machine, which is Debian 12.
const LIBRARY_INSIDE: (u32, u32) = (2, 36);

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

/// Prints how long a step of a test took.
#[expect(clippy::print_stdout, reason = "shows what takes time in a long test")]
pub fn report_time(step: &str, began: Instant) {
    println!("{:6.1} s  {step}", began.elapsed().as_secs_f64());
}

/// Waits for the machine, for a test that runs another one in the simulated machine. Returns `None`, and
/// reports the reason, if the test cannot run: without root, with one CPU, or if this program is linked with
/// a C library that is newer than the one inside.
#[must_use]
pub fn machine_for_inside(test: &str) -> Option<Machine> {
    if !is_root_with_cpus(test, 2) {
        return None;
    }
    // getconf(1) of glibc prints its version; other C libraries print something else or have no getconf.
    let answer = Command::new("getconf").arg("GNU_LIBC_VERSION").finish();
    let answer = answer.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let answer = answer.unwrap_or_default();
    if library_version(&answer).is_some_and(|version| version > LIBRARY_INSIDE) {
        let (major, minor) = LIBRARY_INSIDE;
        left_out(&format!(
            "{test}: it is linked with {answer}; the simulated machine has glibc {major}.{minor}"
        ));
        return None;
    }
    Some(beside_others())
}

/// Parses `glibc 2.36`.
fn library_version(answer: &str) -> Option<(u32, u32)> {
    let (major, minor) = answer.strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}

/// Boots a machine with these options of `rampart sim run` and runs one test of this program in it, for at
/// most `limit`. The test may use every CPU of that machine, those isolated for real-time work too.
///
/// # Panics
/// If the test fails there or does not report its completion.
pub fn run_inside(test: &str, options: &[&str], limit: Duration) {
    let program = std::env::current_exe().expect("this program");
    let location = program.parent().expect("a directory").to_str();
    let name = program.file_name().and_then(|name| name.to_str());
    let (location, name) = (location.expect("UTF-8"), name.expect("UTF-8"));
    let archive = archive(
        &directory(),
        &["rampart", "rampart-meter", "-C", location, name],
    );
    let script = format!(
        "set -e; cd \"$(mktemp -d)\"; tar -x; export RAMPART_BIN=$PWD {INSIDE}=1; \
         exec timeout {} taskset -c \"0-$(($(nproc --all) - 1))\" ./{name} --exact {test} --nocapture",
        limit.as_secs(),
    );
    let output = Command::new(directory().join("rampart"))
        .args(["sim", "run", "--own"])
        .args(options)
        .args(["--", "sh", "-c", &script])
        .env_remove("RAMPART_METER")
        .finish_within(limit + Duration::from_secs(80), archive)
        .expect("rampart starts");
    let text = stdout(&output, 0);
    assert!(text.contains("1 passed"), "{text}");
    assert!(text.contains(COMPLETED), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_a_newer_c_library() {
        assert_eq!(library_version("glibc 2.36"), Some(LIBRARY_INSIDE));
        for newer in ["glibc 2.41", "glibc 2.37.9000", "glibc 3.0"] {
            assert!(library_version(newer).is_some_and(|version| version > LIBRARY_INSIDE));
        }
        assert!(library_version("glibc 2.9").is_some_and(|version| version < LIBRARY_INSIDE));
        assert_eq!(library_version(""), None);
    }
}
