// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What differs between processor architectures, in one table. A new one is a new entry.

use super::error::SimError;

/// How the distribution packs its kernel image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KernelForm {
    /// x86: a boot loader's header, a program that unpacks, and the packed kernel
    /// (Linux, Documentation/arch/x86/boot.rst).
    BzImage,
}

/// One architecture that can be simulated.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Architecture {
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
    /// Name of the console on the kernel's command line.
    pub(super) console: &'static str,
    /// How the kernel image is packed.
    pub(super) kernel_form: KernelForm,
    /// What the kernel is told beside the console.
    pub(super) boot_line: &'static [&'static str],
    /// Modules without which there is no root file system and no word to the outside.
    pub(super) early_modules: &'static [&'static str],
    /// Modules loaded when the root file system is there.
    pub(super) late_modules: &'static [&'static str],
    /// The device that tells QEMU of a panic.
    pub(super) panic_device: &'static str,
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
    console: "ttyS0",
    kernel_form: KernelForm::BzImage,
    boot_line: &["no_timer_check", "i8042.noaux", "i8042.nopnp"],
    early_modules: &[
        "virtio_pci",
        "virtio_blk",
        "virtio_console",
        "pvpanic-pci",
        "squashfs",
        "overlay",
    ],
    late_modules: &["kvm_amd"],
    panic_device: "pvpanic-pci",
};

/// All of them.
pub(super) static ARCHITECTURES: &[&Architecture] = &[&X86_64];

impl Architecture {
    /// The one that simulates the machine at hand. Another could be emulated, but what goes inside
    /// are this machine's programs.
    pub(super) fn of_this_machine() -> Result<&'static Self, SimError> {
        Self::named(std::env::consts::ARCH)
    }

    fn named(name: &'static str) -> Result<&'static Self, SimError> {
        ARCHITECTURES
            .iter()
            .copied()
            .find(|architecture| architecture.name == name)
            .ok_or_else(|| SimError::NoArchitecture {
                present: name,
                known: ARCHITECTURES.iter().map(|each| each.name).collect(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_architecture_is_refused_with_those_there_are() {
        assert_eq!(
            Architecture::named("x86_64").expect("known").debian,
            "amd64"
        );
        let error = Architecture::named("aarch64").expect_err("unknown");
        let text = error.to_string();
        assert!(
            text.contains("aarch64") && text.contains("x86_64"),
            "{text}"
        );
        assert_eq!(
            error.exit_code(),
            rampart_model::ExitCode::PreconditionMissing
        );
    }
}
