// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts the hypervisor's instructions on a simulated machine. Counts do not depend on the load of the
//! host, but on the compiler, so small differences from the documented ones are permitted.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

fn counted() -> &'static [Value] {
    static COUNTED: OnceLock<Vec<Value>> = OnceLock::new();
    COUNTED.get_or_init(count)
}

fn count() -> Vec<Value> {
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

/// Returns the cells of the rows of a document's tables.
fn rows(document: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = document.lines().filter_map(|line| line.strip_prefix("| "));
    lines.map(|line| line.trim_end_matches(" |").split(" | ").collect())
}

/// Returns the greatest count of each row of the table in docs/hypervisor.md, "Costs".
fn documented() -> BTreeMap<&'static str, u64> {
    let of_table = |row: Vec<&'static str>| {
        let [what, _native, _least, greatest, _, _, _, _] = row[..] else {
            return None;
        };
        Some((what, greatest.parse().ok()?))
    };
    rows(include_str!("../../docs/hypervisor.md"))
        .filter_map(of_table)
        .collect()
}

/// A count that grows is a change that has to be documented.
#[test]
fn every_count_is_the_documented_one() {
    let documented = documented();
    let counted = counted();
    assert_eq!(counted.len(), documented.len(), "{documented:?}");
    for row in counted {
        let (what, greatest) = (&row["what"], &row["greatest"]);
        let what = what.as_str().expect("a name");
        let greatest = greatest.as_u64().expect("a count");
        let expected = *documented
            .get(what)
            .unwrap_or_else(|| panic!("docs/hypervisor.md has no row {what:?}"));
        // 2 %, of which counts up to 49 have nothing.
        assert!(
            greatest.abs_diff(expected) <= expected / 50,
            "{what}: {greatest}, but docs/hypervisor.md has {expected}"
        );
    }
}

/// The ways to share clocks and registers cost what the table of all counts has.
#[test]
fn the_comparison_of_ways_to_share_clocks_has_the_same_counts() {
    let documented = documented();
    for (way, counts) in [
        (
            "SCMI",
            &["a doorbell by SMC (SCMI)", "a hypercall (Interface)"][..],
        ),
        (
            "a gate in a shared register",
            &[
                "bits of a shared register, write",
                "bits of a shared register, read",
            ],
        ),
        (
            "a function of the firmware",
            &["a function of the firmware, forwarded"],
        ),
    ] {
        let row = rows(include_str!("../../docs/boards.md")).find(|row| row[0] == way);
        let row = row.unwrap_or_else(|| panic!("docs/boards.md has no row {way:?}"));
        let numbers = row[2].split(|character: char| !character.is_ascii_digit());
        let found: Vec<u64> = numbers.filter_map(|word| word.parse().ok()).collect();
        let expected: Vec<u64> = counts.iter().map(|what| documented[what]).collect();
        assert_eq!(found, expected, "{way}");
    }
}
