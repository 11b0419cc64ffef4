// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Support for cells in a simulated machine: memory that its Linux does not use, the hypervisor's
//! image as firmware, the program for cells without an operating system, and a kernel for the others.

use std::path::Path;

use super::options::{CopiedFile, SimOptions};

/// Memory reserved for the hypervisor and the cells, in MiB: one cell with Linux, some without.
const KEPT_MEBIBYTES: u64 = 384;
/// Least memory for the machine's own Linux, in MiB.
const LEAST_FOR_LINUX: u64 = 1024;

/// File names of the hypervisor's images: for a GICv3, also with an SMMU, and for a GICv2.
const IMAGE: &str = "rampart.bin";
const IMAGE_SMMU: &str = "rampart-smmu.bin";
const IMAGE_GICV2: &str = "rampart-gicv2.bin";
/// File name of the program that measures in cells without an operating system.
const PROGRAM: &str = "rampart-cell-meter";
/// File name of the program of a first cell, whose timer interrupts it.
const FIRST_PROGRAM: &str = "rampart-cell-irq";
/// Directory of the programs that `rampart cell create` finds by their names.
const INSTALLED: &str = "/usr/libexec/rampart/hypervisor";

impl SimOptions {
    /// Prepares the machine for cells. Returns `false` and changes nothing if its architecture is not
    /// the hypervisor's, its memory is too small, or `hypervisor` lacks the built hypervisor.
    pub fn hold_cells(&mut self, hypervisor: &Path, kernel: &Path) -> bool {
        let words = self.append.as_deref().unwrap_or_default();
        let is_limited = words
            .split_whitespace()
            .any(|word| word.starts_with("mem="));
        let is_built = [IMAGE, IMAGE_SMMU, IMAGE_GICV2, PROGRAM, FIRST_PROGRAM]
            .iter()
            .all(|name| hypervisor.join(name).is_file());
        if self.architecture.processor() != "aarch64"
            || self.mebibytes < KEPT_MEBIBYTES + LEAST_FOR_LINUX
            || !is_built
        {
            return false;
        }
        let file = |here: &Path, there: String| CopiedFile {
            here: here.to_owned(),
            there,
        };
        let image = match self.architecture.smmu {
            Some(_) => IMAGE_SMMU,
            None if self.gicv2 => IMAGE_GICV2,
            None => IMAGE,
        };
        self.files.extend([
            file(
                &hypervisor.join(image),
                format!("/usr/lib/firmware/{image}"),
            ),
            file(
                &hypervisor.join(PROGRAM),
                format!("/usr/lib/rampart/{PROGRAM}"),
            ),
            file(
                &hypervisor.join(FIRST_PROGRAM),
                format!("{INSTALLED}/{FIRST_PROGRAM}"),
            ),
            file(kernel, "/usr/lib/rampart/vmlinuz".to_owned()),
        ]);
        // A limit set by the user has precedence.
        if !is_limited {
            let limit = format!("mem={}M", self.mebibytes - KEPT_MEBIBYTES);
            self.append = Some(format!("{limit} {words}").trim_end().to_owned());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::sim::Architecture;

    fn options(name: &str) -> SimOptions {
        let architecture = Architecture::named(name).expect("known");
        SimOptions::new(architecture, PathBuf::from("meter"), None)
    }

    #[test]
    fn reserves_memory_if_the_hypervisor_is_built() {
        let location = tempfile::tempdir().expect("a directory");
        let kernel = Path::new("/kernel");
        let mut machine = options("aarch64");
        assert!(!machine.hold_cells(location.path(), kernel));
        assert_eq!(machine.append, None);
        for name in [IMAGE, IMAGE_SMMU, IMAGE_GICV2, PROGRAM, FIRST_PROGRAM] {
            std::fs::write(location.path().join(name), "").expect("written");
        }
        assert!(machine.hold_cells(location.path(), kernel));
        assert_eq!(machine.append.as_deref(), Some("mem=2688M"));
        assert_eq!(machine.files.len(), 4);
        let mut machine = options("aarch64");
        machine.append = Some("mem=1G quiet".to_owned());
        assert!(machine.hold_cells(location.path(), kernel));
        assert_eq!(machine.append.as_deref(), Some("mem=1G quiet"));
        machine.mebibytes = 1024;
        assert!(!machine.hold_cells(location.path(), kernel));
        assert!(!options("x86_64").hold_cells(location.path(), kernel));
    }
}
