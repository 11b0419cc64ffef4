// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `make` makes of the exit codes of the command.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use rampart_tests::limited::Limited as _;
use rampart_tests::programs::{exit_code, stderr};

/// A missed deadline is a result; make knows only success and failure.
#[test]
fn make_ends_without_an_error_if_a_deadline_is_missed() {
    let makefile = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../Makefile"));
    let location = tempfile::tempdir().expect("a directory");
    let program = location.path().join("bin/rampart");
    fs::create_dir(location.path().join("bin")).expect("created");
    fs::write(&program, "#!/bin/sh\nexit $CODE\n").expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("mode");
    for (code, of_make) in [(0, 0), (3, 0), (1, 2), (4, 2), (5, 2), (6, 2)] {
        let output = Command::new("make")
            .arg("--file")
            .arg(makefile)
            // Nothing is installed or built.
            .args(["--old-file=setup-run", "--old-file=build", "evaluate"])
            .current_dir(location.path())
            .env("CODE", code.to_string())
            .env_remove("MAKEFLAGS")
            .finish()
            .expect("make");
        assert_eq!(exit_code(&output), of_make, "{code}: {output:?}");
        let error = stderr(&output);
        assert_eq!(error.contains("Error"), of_make != 0, "{code}: {error}");
    }
}
