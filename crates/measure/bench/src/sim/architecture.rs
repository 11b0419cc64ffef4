// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What differs between processor architectures, in one table. A new one is a new entry.

use std::fmt;

use super::error::SimError;

/// How the distribution packs its kernel image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KernelForm {
    /// x86: a boot loader's header, a program that unpacks, and the packed kernel
    /// (Linux, Documentation/arch/x86/boot.rst).
    BzImage,
    /// arm64: the kernel as it lies in memory, behind a header, as it is or packed as a whole
    /// (Linux, Documentation/arch/arm64/booting.rst).
    Image,
}

/// One architecture that can be simulated.
#[derive(Debug, PartialEq, Eq)]
pub struct Architecture {
    /// As `uname -m` says it, and as the cache names its directory.
    pub(super) name: &'static str,
    /// As the distribution says it.
    pub(super) debian: &'static str,
    /// The packages that only this architecture has: its real-time kernel, and QEMU for guests
    /// inside the machine.
    pub(super) packages: &'static [&'static str],
    /// The emulator, a program of the machine at hand.
    pub(super) emulator: &'static str,
    /// The machine that it emulates.
    pub(super) machine: &'static [&'static str],
    /// What is added for a machine with two security states, as boards with firmware at EL3 have; none
    /// where the architecture has no such thing.
    pub(super) two_security_states: Option<&'static [&'static str]>,
    /// Name of the console on the kernel's command line.
    pub(super) console: &'static str,
    /// How the kernel image is packed.
    pub(super) kernel_form: KernelForm,
    /// What the kernel is told beside the console.
    pub(super) kernel_command_line: &'static [&'static str],
    /// Modules without which there is no root file system and no word to the outside.
    pub(super) early_modules: &'static [&'static str],
    /// Modules loaded when the root file system is there.
    pub(super) late_modules: &'static [&'static str],
    /// The device that tells QEMU of a panic; none where the kernel has no driver for one, and its
    /// console has to tell.
    pub(super) panic_device: Option<&'static str>,
}

/// Debian 12 on x86-64.
///
/// Why this machine, found by trying: the kernel accepts the time stamp counter of a simulated
/// processor as constant only under a hypervisor that says so, and of those only VMware's can be
/// recognised without a hypervisor bit (by its serial number and its port); without a constant
/// counter kvm-amd refuses to load on a PREEMPT_RT kernel. The EPYC model is the oldest with the
/// nested paging that QEMU's software emulates.
static X86_64: Architecture = Architecture {
    name: "x86_64",
    debian: "amd64",
    packages: &["linux-image-rt-amd64", "qemu-system-x86"],
    emulator: "qemu-system-x86_64",
    machine: &[
        "-machine",
        "pc,vmport=on,usb=off",
        // check=off: no warning for each feature that software does not emulate.
        "-cpu",
        "EPYC,-hypervisor,+svm,+npt,check=off",
        "-smbios",
        "type=1,serial=VMware-42 35",
    ],
    two_security_states: None,
    console: "ttyS0",
    kernel_form: KernelForm::BzImage,
    kernel_command_line: &["no_timer_check", "i8042.noaux", "i8042.nopnp"],
    early_modules: &[
        "virtio_pci",
        "virtio_blk",
        "virtio_console",
        "pvpanic-pci",
        "squashfs",
        "overlay",
    ],
    late_modules: &["kvm_amd"],
    panic_device: Some("pvpanic-pci"),
};

/// Debian 12 on arm64.
///
/// The kernel is entered at EL2, as on a board whose firmware leaves it there, so that a hypervisor
/// can be started from it. `its=off`: no device writes its interrupts to memory, each has a line
/// that the distributor owns. The core is one that has no VHE, with which a kernel stays at EL2.
static AARCH64: Architecture = Architecture {
    name: "aarch64",
    debian: "arm64",
    // Its real-time kernel has no KVM, so that there is no QEMU for guests.
    packages: &["linux-image-rt-arm64"],
    emulator: "qemu-system-aarch64",
    machine: &[
        "-machine",
        "virt,virtualization=on,gic-version=3,its=off",
        "-cpu",
        "cortex-a57",
    ],
    // QEMU's own loader leaves EL3 for EL2, and QEMU itself answers PSCI.
    two_security_states: Some(&["-machine", "secure=on"]),
    console: "ttyAMA0",
    kernel_form: KernelForm::Image,
    kernel_command_line: &[],
    early_modules: &[
        "virtio_pci",
        "virtio_blk",
        "virtio_console",
        "squashfs",
        "overlay",
    ],
    late_modules: &[],
    panic_device: None,
};

/// All of them.
pub(super) static ARCHITECTURES: [&Architecture; 2] = [&X86_64, &AARCH64];

impl Architecture {
    /// That of the machine at hand.
    ///
    /// # Errors
    /// If none is simulated for it.
    pub fn of_this_machine() -> Result<&'static Self, SimError> {
        let present = std::env::consts::ARCH;
        Self::named(present).ok_or_else(|| SimError::NoArchitecture {
            present,
            known: Self::names().to_vec(),
        })
    }

    /// The one that `uname -m` calls so.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        ARCHITECTURES
            .iter()
            .copied()
            .find(|architecture| architecture.name == name)
    }

    /// The names of all.
    #[must_use]
    pub fn names() -> [&'static str; ARCHITECTURES.len()] {
        ARCHITECTURES.map(|each| each.name)
    }

    /// As `uname -m` says it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the programs of the machine at hand run in it.
    #[must_use]
    pub fn is_of_this_machine(&self) -> bool {
        self.name == std::env::consts::ARCH
    }

    /// The option behind `rampart sim up` or another that names it.
    #[must_use]
    pub fn option(&self) -> String {
        self.unless_here(|name| format!(" --architecture {name}"))
    }

    /// The bench that is simulated so.
    #[must_use]
    pub fn bench_name(&self) -> String {
        format!("sim{}", self.unless_here(|name| format!(":{name}")))
    }

    fn unless_here(&self, words: impl FnOnce(&str) -> String) -> String {
        if self.is_of_this_machine() {
            String::new()
        } else {
            words(self.name)
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_one_of_its_own_is_told_which_there_are() {
        let error = SimError::NoArchitecture {
            present: "riscv64",
            known: Architecture::names().to_vec(),
        };
        let text = error.to_string();
        assert!(
            text.contains("riscv64") && text.contains("--on sim:x86_64"),
            "{text}"
        );
    }

    #[test]
    fn what_is_of_another_architecture_is_named() {
        let debian = |name| Architecture::named(name).map(|architecture| architecture.debian);
        assert_eq!(debian("x86_64"), Some("amd64"));
        assert_eq!(debian("aarch64"), Some("arm64"));
        assert_eq!(debian("riscv64"), None);
        for architecture in ARCHITECTURES {
            let words = [architecture.option(), architecture.bench_name()];
            if architecture.is_of_this_machine() {
                assert_eq!(words, ["", "sim"]);
            } else {
                let name = architecture.name;
                assert_eq!(
                    words,
                    [format!(" --architecture {name}"), format!("sim:{name}")]
                );
            }
        }
    }
}
