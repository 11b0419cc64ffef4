// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machines that can be simulated, as one table with an entry for each: the usual machine of an
//! architecture, and boards.

use std::fmt;

use rampart_agent::MemoryRange;
use rampart_model::SIMULATED_BOARD;

use super::arguments::{AGENTS, port_name};
use super::error::SimError;
use super::options::{MOST_CPUS, USUAL_CPUS};

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

/// Where QEMU is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Emulator {
    /// A program of this machine.
    Installed(&'static str),
    /// A program in packages of a newer Debian, which are unpacked in the cache: this machine's QEMU may not
    /// have the board.
    Fetched {
        /// File name of the program.
        program: &'static str,
        /// The package that contains it.
        package: &'static str,
    },
}

/// The device tree of a board. QEMU itself creates the trees of other machines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BoardTree {
    /// File below the directory with the trees of the kernel's package.
    pub(super) file: &'static str,
    /// Paths of nodes to enable if they are disabled, as a boot loader does.
    pub(super) enabled: &'static [&'static str],
}

/// Firmware at EL3 that starts Linux, instead of QEMU, and serves its calls. It has the kernel's first instruction and
/// the device tree at fixed addresses (`scripts/firmware`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Firmware {
    /// File below the directory `firmware` among the files of `rampart`.
    pub(super) file: &'static str,
    /// Address of the kernel.
    pub(super) kernel: u64,
    /// Address of the initramfs: that of QEMU's own loader, behind the largest kernel.
    pub(super) initramfs: u64,
}

/// Memory of a board which its tree reserves, so that neither Linux nor a cell uses it. The agent uses its first
/// part, and its client on this machine, who has the board's memory as a file, the second one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AgentMemory {
    /// Address of the board's first byte of memory.
    pub(super) memory_start: u64,
    /// Address of the reserved part.
    pub(super) start: u64,
}

/// Size of each half of [`AgentMemory`] in bytes.
const AGENT_BYTES: u64 = 1 << 20;

impl AgentMemory {
    /// Returns what the agent writes.
    pub(super) fn of_agent(self) -> MemoryRange {
        MemoryRange {
            start: self.start,
            bytes: AGENT_BYTES,
        }
    }

    /// Returns the size that a board's memory has at least, in bytes.
    pub(super) fn least_bytes(self) -> u64 {
        self.of_client().start + AGENT_BYTES - self.memory_start
    }

    /// Returns what the client writes.
    pub(super) fn of_client(self) -> MemoryRange {
        MemoryRange {
            start: self.start + AGENT_BYTES,
            bytes: AGENT_BYTES,
        }
    }
}

/// The use of a serial port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SerialPort {
    /// The kernel's console.
    Console,
    /// For cells; nothing is connected.
    Unconnected,
}

/// The devices of the root file system and of the agents.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Devices {
    /// Devices of virtio on this bus, as at the end of QEMU's names of devices: `pci`, or `device` for MMIO.
    Virtio(&'static str),
    /// What a board has: a card. One agent is reached by memory.
    Board {
        /// Number of the card's slot in QEMU.
        card_slot: u32,
        /// The card in the machine.
        card: &'static str,
        /// Memory of the agent.
        memory: AgentMemory,
    },
}

impl Devices {
    /// Returns the device of the root file system in the machine.
    pub(super) fn root(&self) -> &'static str {
        match self {
            Self::Virtio(_) => "/dev/vda",
            Self::Board { card, .. } => card,
        }
    }

    /// Returns the arguments of an agent in the machine that describe how it is reached. A board has only the
    /// first one.
    pub(super) fn agent_arguments(&self, number: usize) -> Vec<String> {
        match self {
            Self::Virtio(_) => vec!["--port".to_owned(), port_name(number)],
            Self::Board { memory, .. } => vec![
                "--reads".to_owned(),
                memory.of_client().to_string(),
                "--writes".to_owned(),
                memory.of_agent().to_string(),
            ],
        }
    }

    /// Returns the number of agents: the first is for the command that booted the machine, the others for
    /// commands that join it.
    pub(super) fn agents(&self) -> usize {
        match self {
            Self::Virtio(_) => AGENTS,
            Self::Board { .. } => 1,
        }
    }
}

/// A machine that can be simulated: the usual one of an architecture, or a board.
#[derive(Debug, PartialEq, Eq)]
pub struct Architecture {
    /// Name of the machine; for the usual machine of an architecture that of the architecture.
    pub(super) name: &'static str,
    /// Name of the architecture as `uname -m` prints it.
    pub(super) processor: &'static str,
    /// Name in the distribution.
    pub(super) debian: &'static str,
    /// The suite of its kernel, if it is not that of the other packages.
    pub(super) kernel_suite: Option<&'static str>,
    /// The packages of this architecture alone: its real-time kernel, and QEMU for guests inside the
    /// machine.
    pub(super) packages: &'static [&'static str],
    /// The emulator.
    pub(super) emulator: Emulator,
    /// QEMU's options for the emulated machine.
    pub(super) machine: &'static [&'static str],
    /// Its firmware; `None` if QEMU starts Linux and implements PSCI itself.
    pub(super) firmware: Option<Firmware>,
    /// Further options for two security states, as on boards with firmware at EL3; `None` if the
    /// machine has them in any case, or its architecture has none.
    pub(super) two_security_states: Option<&'static [&'static str]>,
    /// Further options for a GICv2; `None` if the architecture has no GIC.
    pub(super) gicv2: Option<&'static [&'static str]>,
    /// Path of its SMMU in QEMU's tree, which is left to the hypervisor; `None` if it has none. All its PCI functions
    /// are behind it, among them some for cells ([`super::arguments`]).
    pub(super) smmu: Option<&'static str>,
    /// Its number of CPUs at most, and by default.
    pub(super) most_cpus: u32,
    /// Number of further CPUs that QEMU counts, but on which Linux does not run.
    pub(super) other_cpus: u32,
    /// The tree of a board.
    pub(super) tree: Option<BoardTree>,
    /// Its serial ports, in the order of QEMU.
    pub(super) serial_ports: &'static [SerialPort],
    /// Devices of the root file system and of the agents.
    pub(super) devices: Devices,
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
    processor: "x86_64",
    debian: "amd64",
    kernel_suite: None,
    packages: &["linux-image-rt-amd64", "qemu-system-x86"],
    emulator: Emulator::Installed("qemu-system-x86_64"),
    machine: &[
        "-machine",
        "pc,vmport=on,usb=off",
        // check=off: no warning for each feature that software does not emulate.
        "-cpu",
        "EPYC,-hypervisor,+svm,+npt,check=off",
        "-smbios",
        "type=1,serial=VMware-42 35",
    ],
    firmware: None,
    two_security_states: None,
    gicv2: None,
    smmu: None,
    most_cpus: MOST_CPUS,
    other_cpus: 0,
    tree: None,
    serial_ports: &[SerialPort::Console],
    devices: Devices::Virtio("pci"),
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

/// The packages of arm64. No QEMU for guests, because the distribution's real-time kernel has no KVM.
const ARM64_PACKAGES: &[&str] = &["linux-image-rt-arm64"];

/// The devices of QEMU's `virt`, and the modules for them.
const VIRT_MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_blk",
    "virtio_console",
    "squashfs",
    "overlay",
];

/// Debian 12 on arm64.
///
/// The kernel is entered at EL2, as by the firmware of a board, so that it can start a hypervisor.
/// `its=off`: every interrupt is a line of the distributor, none is written to memory by a device.
/// The core has no VHE, because with VHE the kernel would stay at EL2.
/// `nokaslr`: a kernel at a random address isolates its page tables from programs (Linux 6.1,
/// arch/arm64/kernel/cpufeature.c, `unmap_kernel_at_el0`), and QEMU then empties its TLB twice for each system call,
/// which takes twenty times as long.
const VIRT_ARM64: Architecture = Architecture {
    name: "aarch64",
    processor: "aarch64",
    debian: "arm64",
    kernel_suite: None,
    packages: ARM64_PACKAGES,
    emulator: Emulator::Installed("qemu-system-aarch64"),
    machine: &[
        "-machine",
        "virt,virtualization=on,gic-version=3,its=off",
        "-cpu",
        "cortex-a57",
    ],
    firmware: None,
    // QEMU's loader switches from EL3 to EL2, and QEMU implements PSCI.
    two_security_states: Some(&["-machine", "secure=on"]),
    gicv2: Some(&["-machine", "gic-version=2"]),
    smmu: None,
    most_cpus: MOST_CPUS,
    other_cpus: 0,
    tree: None,
    serial_ports: &[SerialPort::Console],
    devices: Devices::Virtio("pci"),
    console: "ttyAMA0",
    kernel_form: KernelForm::Image,
    kernel_command_line: &["nokaslr"],
    early_modules: VIRT_MODULES,
    late_modules: &[],
    panic_device: None,
};

static AARCH64: Architecture = VIRT_ARM64;

/// The same with the newest kernel for Debian 12. Its KVM would take EL2 when the kernel starts (Linux 6.12,
/// Documentation/admin-guide/kernel-parameters.txt, `kvm.enable_virt_at_load`).
static AARCH64_BACKPORTS: Architecture = Architecture {
    name: "aarch64-backports",
    kernel_suite: Some("bookworm-backports"),
    packages: &["linux-image-rt-arm64/bookworm-backports"],
    kernel_command_line: &["nokaslr", "kvm.enable_virt_at_load=0"],
    ..VIRT_ARM64
};

/// The same machine with an SMMUv3 that is left to the hypervisor, with stage 2 (QEMU 8.1 and newer). With an ITS, without
/// which QEMU has no root port; so the root's own functions send messages.
static AARCH64_SMMU: Architecture = Architecture {
    name: "aarch64-smmu",
    emulator: QEMU_10,
    machine: &[
        "-machine",
        "virt,virtualization=on,gic-version=3,its=on,iommu=smmuv3",
        "-cpu",
        "cortex-a57",
    ],
    // The hypervisor has no image for these with an SMMU.
    two_security_states: None,
    gicv2: None,
    smmu: Some("/smmuv3@9050000"),
    ..VIRT_ARM64
};

/// The same machine with firmware of a board, Trusted Firmware-A: it starts Linux at EL2, implements PSCI, and has
/// the distributor in two security states.
static AARCH64_FIRMWARE: Architecture = VIRT_FIRMWARE;

const VIRT_FIRMWARE: Architecture = Architecture {
    name: "aarch64-firmware",
    machine: &[
        "-machine",
        "virt,secure=on,virtualization=on,gic-version=3,its=off",
        "-cpu",
        "cortex-a57",
    ],
    firmware: Some(TRUSTED_FIRMWARE),
    two_security_states: None,
    gicv2: None,
    ..VIRT_ARM64
};

const TRUSTED_FIRMWARE: Firmware = Firmware {
    file: "virt.bin",
    kernel: 0x4020_0000,
    initramfs: 0x4800_0000,
};

/// The same with a firmware that takes interrupts of its own while Linux runs (SCR_EL3.FIQ is 1), for SDEI.
static AARCH64_FIRMWARE_SDEI: Architecture = Architecture {
    name: "aarch64-firmware-sdei",
    firmware: Some(Firmware {
        file: "virt-sdei.bin",
        ..TRUSTED_FIRMWARE
    }),
    ..VIRT_FIRMWARE
};

/// QEMU's model of the NXP i.MX 8M Plus EVK, from QEMU 10.0 on, with the tree of Debian's kernel.
///
/// The kernel has no driver for the PHY of its PCIe, so the root file system is on the SD card of the third
/// controller, and the agent is reached by the memory of the signal processor, which QEMU does not model. UART2 is the
/// console; the others stay for cells. None of them is fit for the agent: if the ageing timer of QEMU's model expires
/// between the driver's look at the flags and its last read, the interrupt stays asserted until the next byte arrives
/// (QEMU 10, hw/char/imx_serial.c: a write of USR1 clears the flag and does not update the line). With an emulated CPU
/// that waits for its host, 1,500 bytes caused 170,000 interrupts, whose thread left the agent no time.
static IMX8MP: Architecture = Architecture {
    name: "imx8mp",
    processor: "aarch64",
    debian: "arm64",
    kernel_suite: None,
    packages: ARM64_PACKAGES,
    emulator: QEMU_10,
    machine: &["-machine", "imx8mp-evk"],
    firmware: None,
    two_security_states: Some(&["-global", "arm-gicv3.has-security-extensions=on"]),
    gicv2: None,
    smmu: None,
    most_cpus: 4,
    other_cpus: 0,
    tree: Some(BoardTree {
        file: "freescale/imx8mp-evk.dtb",
        enabled: &["/reserved-memory/dsp@92400000"],
    }),
    serial_ports: &[
        SerialPort::Unconnected,
        SerialPort::Console,
        SerialPort::Unconnected,
        SerialPort::Unconnected,
    ],
    devices: Devices::Board {
        card_slot: 2,
        card: "/dev/mmcblk2",
        memory: AgentMemory {
            memory_start: 0x4000_0000,
            start: 0x9240_0000,
        },
    },
    console: "ttymxc1,115200",
    kernel_form: KernelForm::Image,
    // Linux 6.1 cannot probe the power domains of cameras and displays (no driver for their interconnect), and warns
    // when it gives up.
    kernel_command_line: &["deferred_probe_timeout=-1", SIMULATED_BOARD],
    early_modules: &["sdhci-esdhc-imx", "squashfs", "overlay"],
    late_modules: &[],
    panic_device: None,
};

/// QEMU's model of the AMD Versal, with QEMU's own tree: two Cortex-A72 whose firmware, in QEMU, has two security
/// states, and virtio devices without PCI.
static VERSAL: Architecture = Architecture {
    name: "versal",
    processor: "aarch64",
    debian: "arm64",
    kernel_suite: None,
    packages: ARM64_PACKAGES,
    emulator: Emulator::Installed("qemu-system-aarch64"),
    machine: &["-machine", "xlnx-versal-virt"],
    firmware: None,
    two_security_states: None,
    gicv2: None,
    smmu: None,
    most_cpus: 2,
    // The Cortex-R5F, which are off.
    other_cpus: 2,
    tree: None,
    serial_ports: &[SerialPort::Console],
    devices: Devices::Virtio("device"),
    console: "ttyAMA0",
    kernel_form: KernelForm::Image,
    kernel_command_line: &[SIMULATED_BOARD],
    early_modules: &[
        "virtio_mmio",
        "virtio_blk",
        "virtio_console",
        "squashfs",
        "overlay",
    ],
    late_modules: &[],
    panic_device: None,
};

/// QEMU of Debian 13.
const QEMU_10: Emulator = Emulator::Fetched {
    program: "qemu-system-aarch64",
    package: "qemu-system-arm",
};

/// All machines that can be simulated; the usual one of each architecture first.
pub(super) static ARCHITECTURES: [&Architecture; 8] = [
    &X86_64,
    &AARCH64,
    &AARCH64_BACKPORTS,
    &AARCH64_SMMU,
    &AARCH64_FIRMWARE,
    &AARCH64_FIRMWARE_SDEI,
    &IMX8MP,
    &VERSAL,
];

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

    /// Returns the machine with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        ARCHITECTURES
            .iter()
            .copied()
            .find(|architecture| architecture.name == name)
    }

    /// Returns the names of all machines.
    #[must_use]
    pub fn names() -> [&'static str; ARCHITECTURES.len()] {
        ARCHITECTURES.map(|each| each.name)
    }

    /// Returns the name of the machine.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the name of its architecture as `uname -m` prints it.
    #[must_use]
    pub fn processor(&self) -> &'static str {
        self.processor
    }

    /// Returns its number of CPUs if no option selects another one.
    #[must_use]
    pub fn usual_cpus(&self) -> u32 {
        self.most_cpus.min(USUAL_CPUS)
    }

    /// Returns all machines with the same image.
    pub(super) fn of_same_image(&self) -> impl Iterator<Item = &'static Self> {
        let name = self.image_name();
        let all = ARCHITECTURES.iter().copied();
        all.filter(move |machine| machine.image_name() == name)
    }

    /// Returns the name of its image, and of its directories in the cache.
    pub(super) fn image_name(&self) -> String {
        let processor = self.processor;
        self.kernel_suite.map_or_else(
            || processor.to_owned(),
            |suite| format!("{processor}-{suite}"),
        )
    }

    /// Returns whether it is the usual machine of this machine's architecture.
    #[must_use]
    pub fn is_of_this_machine(&self) -> bool {
        self.name == std::env::consts::ARCH
    }

    /// Returns whether the programs of this machine run on it.
    #[must_use]
    pub(super) fn runs_programs_of_this_machine(&self) -> bool {
        self.processor == std::env::consts::ARCH
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
