// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The differences between processor architectures, as one table with an entry for each.

use std::fmt;

use super::error::SimError;

/// Format of the distribution's kernel image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KernelForm {
    /// x86: a header for the boot loader, a decompressor and the compressed kernel
    /// (Linux, Documentation/arch/x86/boot.rst).
    BzImage,
    /// arm64: a header and the kernel as in memory; the whole may be compressed
    /// (Linux, Documentation/arch/arm64/booting.rst).
    Image,
}

/// An architecture that can be simulated.
#[derive(Debug, PartialEq, Eq)]
pub struct Architecture {
    /// Name as `uname -m` prints it; also that of its directory in the cache.
    pub(super) name: &'static str,
    /// Name in the distribution.
    pub(super) debian: &'static str,
    /// The packages of this architecture alone: its real-time kernel, and QEMU for guests inside the
    /// machine.
    pub(super) packages: &'static [&'static str],
    /// The emulator, a program of this machine.
    pub(super) emulator: &'static str,
    /// QEMU's options for the emulated machine.
    pub(super) machine: &'static [&'static str],
    /// Further options for two security states, as on boards with firmware at EL3; `None` if the
    /// architecture has no security states.
    pub(super) two_security_states: Option<&'static [&'static str]>,
    /// Further options for a GICv2; `None` if the architecture has no GIC.
    pub(super) gicv2: Option<&'static [&'static str]>,
    /// Name of the console on the kernel's command line.
    pub(super) console: &'static str,
    /// Format of the kernel image.
    pub(super) kernel_form: KernelForm,
    /// Kernel parameters beside the console.
    pub(super) kernel_command_line: &'static [&'static str],
    /// Modules for the root file system and the connection to the agent.
    pub(super) early_modules: &'static [&'static str],
    /// Modules that are loaded after the root file system is mounted.
    pub(super) late_modules: &'static [&'static str],
    /// The device that reports a panic to QEMU; `None` if the kernel has no driver for one, so that
    /// the console is searched for the panic.
    pub(super) panic_device: Option<&'static str>,
}

/// Debian 12 on x86-64.
///
/// The reasons for this machine, found by experiment: on a PREEMPT_RT kernel kvm-amd loads only with
/// a constant time stamp counter. The kernel accepts the counter of an emulated processor as constant
/// only if the hypervisor reports it so, and only VMware is recognised without the hypervisor bit (by
/// its serial number and its port). The EPYC model is the oldest with the nested paging that QEMU
/// emulates.
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
    gicv2: None,
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
/// The kernel is entered at EL2, as by the firmware of a board, so that it can start a hypervisor.
/// `its=off`: every interrupt is a line of the distributor, none is written to memory by a device.
/// The core has no VHE, because with VHE the kernel would stay at EL2.
static AARCH64: Architecture = Architecture {
    name: "aarch64",
    debian: "arm64",
    // No QEMU for guests, because the distribution's real-time kernel has no KVM.
    packages: &["linux-image-rt-arm64"],
    emulator: "qemu-system-aarch64",
    machine: &[
        "-machine",
        "virt,virtualization=on,gic-version=3,its=off",
        "-cpu",
        "cortex-a57",
    ],
    // QEMU's loader switches from EL3 to EL2, and QEMU implements PSCI.
    two_security_states: Some(&["-machine", "secure=on"]),
    gicv2: Some(&["-machine", "gic-version=2"]),
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

/// All architectures that can be simulated.
pub(super) static ARCHITECTURES: [&Architecture; 2] = [&X86_64, &AARCH64];

impl Architecture {
    /// Returns the architecture of this machine.
    ///
    /// # Errors
    /// Returns an error if it cannot be simulated.
    pub fn of_this_machine() -> Result<&'static Self, SimError> {
        let present = std::env::consts::ARCH;
        Self::named(present).ok_or_else(|| SimError::NoArchitecture {
            present,
            known: Self::names().to_vec(),
        })
    }

    /// Returns the architecture with this `uname -m` name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        ARCHITECTURES
            .iter()
            .copied()
            .find(|architecture| architecture.name == name)
    }

    /// Returns the names of all architectures.
    #[must_use]
    pub fn names() -> [&'static str; ARCHITECTURES.len()] {
        ARCHITECTURES.map(|each| each.name)
    }

    /// Returns its name as `uname -m` prints it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns whether the programs of this machine run on it.
    #[must_use]
    pub fn is_of_this_machine(&self) -> bool {
        self.name == std::env::consts::ARCH
    }

    /// Returns the option that selects it in `rampart sim`; empty for this machine's architecture.
    #[must_use]
    pub fn option(&self) -> String {
        self.unless_this_machine(|name| format!(" --architecture {name}"))
    }

    /// Returns the name of its simulated bench.
    #[must_use]
    pub fn bench_name(&self) -> String {
        format!("sim{}", self.unless_this_machine(|name| format!(":{name}")))
    }

    fn unless_this_machine(&self, words: impl FnOnce(&str) -> String) -> String {
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
    fn names_the_architectures_that_can_be_simulated() {
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
    fn names_only_another_architecture_in_options() {
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
