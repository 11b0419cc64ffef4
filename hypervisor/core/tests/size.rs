// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits the size of the trusted code. The monitor's linker script limits its `.text`.

use std::fs;
use std::path::Path;

/// Maximum lines of code of core, monitor and fast_path together, formatted with hypervisor/rustfmt.toml.
const LIMIT: usize = 5_999;

/// Files of core only for programs of the root (feature `std`), which are not in the image.
const NOT_IN_IMAGE: [&str; 2] = ["build.rs", "refusal_text.rs"];

/// Counts lines that are neither empty nor only a comment, in Rust, assembly and linker scripts.
fn lines(text: &str) -> usize {
    let comment = ["//", "/*", "* ", "*/"];
    text.lines()
        .map(str::trim_start)
        .filter(|line| !line.is_empty() && !comment.iter().any(|start| line.starts_with(start)))
        .count()
}

fn lines_below(directory: &Path) -> usize {
    fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.expect("an entry of a directory").path())
        .map(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            if path.is_dir() {
                lines_below(&path)
            } else if name.is_some_and(|name| NOT_IN_IMAGE.contains(&name)) {
                0
            } else {
                lines(&fs::read_to_string(&path).expect("source is text"))
            }
        })
        .sum()
}

#[test]
fn the_trusted_code_has_fewer_than_6000_lines() {
    assert_eq!(lines("a\n\n  // b\n/* c\n * d */\n  e // f\n"), 2);
    let core = Path::new(env!("CARGO_MANIFEST_DIR"));
    let hypervisor = core.join("..");
    let parts = ["core", "monitor", "fast_path"].map(|part| hypervisor.join(part).join("src"));
    let sum: usize = parts.iter().map(|part| lines_below(part)).sum();
    assert!(sum > 3_000, "{sum} lines: fewer than expected: the directories are wrong");
    assert!(sum <= LIMIT, "{sum} lines of code, at most {LIMIT}");
}
