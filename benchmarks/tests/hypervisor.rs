// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts the hypervisor's instructions on a simulated machine. Counts do not depend on the load of the
//! host, but on the compiler, so only the aims are asserted.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

fn counted() -> Vec<Value> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let programs = std::env::var_os("RAMPART_BIN").map_or(root.join("bin"), PathBuf::from);
    let output = Command::new(env!("CARGO_BIN_EXE_rampart-bench-hypervisor"))
        .arg("--json")
        .arg("--hypervisor")
        .arg(programs.join("hypervisor"))
        .output()
        .expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("rows")
}

#[test]
fn interrupts_add_no_instructions_in_a_cell() {
    let rows = counted();
    // Frames of a network have a native count too.
    let is_interrupt = |row: &&Value| {
        row["what"]
            .as_str()
            .is_some_and(|what| what.contains("interrupt"))
    };
    let with_native = rows.iter().filter(|row| !row["native"].is_null());
    let interrupts: Vec<_> = with_native.filter(is_interrupt).collect();
    assert_eq!(interrupts.len(), 4, "{rows:?}");
    for row in interrupts {
        assert_eq!(row["ours"], row["native"], "{row}");
    }
}
