// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs in C that detach threads: the example, and the driver's test program.

use std::path::Path;
use std::process::Command;

use crate::limited::Limited as _;
use crate::programs::left_out;

/// Returns the C compiler for an architecture.
fn compiler(architecture: &str) -> &'static str {
    if architecture == std::env::consts::ARCH {
        "cc"
    } else {
        "aarch64-linux-gnu-gcc"
    }
}

/// Returns whether programs for arm64 can be compiled; otherwise reports the test as left out.
#[must_use]
pub fn has_compiler(test: &str) -> bool {
    let compiler = compiler("aarch64");
    let found = Command::new(compiler).arg("--version").finish();
    if found.is_err() {
        left_out(&format!("{test}: no {compiler}; run `scripts/setup test`"));
    }
    found.is_ok()
}

/// Compiles the static programs `control_loop` and `detach-test` into a directory.
///
/// # Panics
/// If the compiler does not start, or fails.
pub fn compile(architecture: &str, to: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let library = root.join("crates/domains/detached/c");
    for (name, source) in [
        ("control_loop", library.join("examples/control_loop.c")),
        (
            "detach-test",
            root.join("kernel/detach/tests/detach-test.c"),
        ),
    ] {
        let output = Command::new(compiler(architecture))
            .args([
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
                "-Wno-infinite-recursion",
            ])
            .args(["-Werror", "-O2", "-static", "-pthread", "-I"])
            .arg(&library)
            .arg("-I")
            .arg(root.join("kernel/detach"))
            .arg("-o")
            .arg(to.join(name))
            .arg(source)
            .arg(library.join("detached.c"))
            .finish()
            .expect("the compiler starts");
        assert!(output.status.success(), "{output:?}");
    }
}
