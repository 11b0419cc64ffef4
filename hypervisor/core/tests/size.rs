// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits the size of the trusted code. The monitor's linker script limits its `.text`. The limit is that of the image
//! for a GICv3; what only the image for a GICv2 has is limited apart.

use std::fs;
use std::path::Path;

/// Maximum lines of code of core, monitor and fast_path together, formatted with hypervisor/rustfmt.toml.
const LIMIT: usize = 6_055;

/// Maximum lines of the files that only the image for a GICv2 has.
const GICV2_LIMIT: usize = 450;

/// Files that only the image for an SMMU has, with what the others have instead, and their maximum lines.
const SMMU: [&str; 5] = ["dma.rs", "smmu.rs", "no_smmu.rs", "pci.rs", "streams.rs"];
const SMMU_LIMIT: usize = 800;

/// Maximum lines of the files that only start the root again.
const RESTART_LIMIT: usize = 110;

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

/// Counts the lines of the files that are in the image and for which `counted` is true.
fn lines_below(directory: &Path, counted: fn(&str) -> bool) -> usize {
    fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.expect("an entry of a directory").path())
        .map(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() {
                lines_below(&path, counted)
            } else if NOT_IN_IMAGE.contains(&name) || !counted(name) {
                0
            } else {
                lines(&fs::read_to_string(&path).expect("source is text"))
            }
        })
        .sum()
}

#[test]
fn the_trusted_code_has_few_lines() {
    assert_eq!(lines("a\n\n  // b\n/* c\n * d */\n  e // f\n"), 2);
    let core = Path::new(env!("CARGO_MANIFEST_DIR"));
    let hypervisor = core.join("..");
    let parts = ["core", "monitor", "fast_path"].map(|part| hypervisor.join(part).join("src"));
    let sum = |counted: fn(&str) -> bool| -> usize {
        parts.iter().map(|part| lines_below(part, counted)).sum()
    };
    let gicv2 = sum(|name| name == "gicv2.rs");
    assert!(gicv2 > 0 && gicv2 <= GICV2_LIMIT, "{gicv2} lines for a GICv2, at most {GICV2_LIMIT}");
    let smmu = sum(|name| SMMU.contains(&name));
    assert!(smmu > 0 && smmu <= SMMU_LIMIT, "{smmu} lines for an SMMU, at most {SMMU_LIMIT}");
    let restart = sum(|name| name == "restart.rs");
    assert!(restart > 0 && restart <= RESTART_LIMIT, "{restart} lines, at most {RESTART_LIMIT}");
    let sum = sum(|name| !["gicv2.rs", "restart.rs"].contains(&name) && !SMMU.contains(&name));
    assert!(sum > 3_000, "{sum} lines: fewer than expected: the directories are wrong");
    assert!(sum <= LIMIT, "{sum} lines of code, at most {LIMIT}");
}
