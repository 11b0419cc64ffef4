// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds QEMU's arguments for a description. Pure.

use std::ffi::OsString;
use std::path::Path;

use rampart_model::Accelerator;

use super::description::{Board, Description, PORT};

/// Name of the agent's socket in the guest's directory.
pub(super) const AGENT_SOCKET: &str = "agent";
/// Megabytes of translated code that QEMU keeps; its default of a gigabyte would be locked too.
const TRANSLATED_MEBIBYTES: u64 = 96;

/// Returns the arguments after those that [`rampart_qemu::Qemu::start`] adds; sockets are created
/// in `directory`.
pub(super) fn arguments(guest: &Description, directory: &Path) -> Vec<OsString> {
    let mut list = Arguments(Vec::new());
    list.word("-nodefaults");
    list.word("-no-reboot");
    // Its virtual CPUs are placed before they run their first instruction.
    list.word("-S");
    list.pair("-machine", machine(guest));
    list.pair("-accel", accelerator(guest));
    list.pair("-cpu", processor(guest));
    let count = guest.cpus.len();
    list.pair("-smp", format!("{count},sockets=1,cores={count},threads=1"));
    let memory = &guest.memory;
    let size = format!("{}M", memory.mebibytes);
    let object = memory_object(&size, memory.huge_page, guest.real_time, memory.node);
    list.pair("-m", size);
    list.pair("-object", object);
    if guest.memory.locked {
        list.pair("-overcommit", "mem-lock=on");
    }
    list.pair("-kernel", guest.kernel.as_os_str());
    list.pair("-initrd", guest.initramfs.as_os_str());
    list.pair("-append", guest.kernel_command_line());
    list.pair("-serial", "chardev:console");
    list.pair(
        "-chardev",
        rampart_qemu::socket_option(directory, AGENT_SOCKET),
    );
    list.pair(
        "-device",
        match guest.board {
            Board::Microvm => "virtio-serial-device,max_ports=2",
            Board::Pc | Board::Q35 => "virtio-serial-pci,max_ports=2",
        },
    );
    list.pair(
        "-device",
        format!("virtserialport,chardev={AGENT_SOCKET},name={PORT}"),
    );
    list.0
}

struct Arguments(Vec<OsString>);

impl Arguments {
    fn word(&mut self, word: &str) {
        self.0.push(word.into());
    }

    fn pair(&mut self, option: &str, value: impl Into<OsString>) {
        self.word(option);
        self.0.push(value.into());
    }
}

fn machine(guest: &Description) -> String {
    let board = match guest.board {
        // ACPI describes the devices to the guest: kernels without
        // `CONFIG_VIRTIO_MMIO_CMDLINE_DEVICES` do not read them from the kernel command line.
        Board::Microvm => {
            "microvm,acpi=on,pit=off,pic=off,rtc=on,isa-serial=on,x-option-roms=off".to_owned()
        }
        Board::Pc => "pc,usb=off,hpet=off,vmport=off".to_owned(),
        Board::Q35 => "q35,usb=off,hpet=off,vmport=off,smbus=off,sata=off".to_owned(),
    };
    format!("{board},mem-merge=off,memory-backend=memory")
}

fn accelerator(guest: &Description) -> String {
    match guest.accelerator {
        Accelerator::Kvm => "kvm".to_owned(),
        Accelerator::Tcg => format!("tcg,thread=multi,tb-size={TRANSLATED_MEBIBYTES}"),
    }
}

fn processor(guest: &Description) -> String {
    match guest.accelerator {
        Accelerator::Kvm => {
            // `host` has the deadline timer if KVM supports it.
            let mut text = "host,pmu=off".to_owned();
            if guest.is_dedicated() {
                text.push_str(",kvm-hint-dedicated=on");
            }
            text
        }
        Accelerator::Tcg => "max".to_owned(),
    }
}

/// Returns the memory backend `memory`; `size` is in QEMU's notation.
pub(super) fn memory_object(
    size: &str,
    huge_page: Option<u64>,
    real_time: bool,
    node: Option<u32>,
) -> String {
    let mut text = match huge_page {
        Some(bytes) => format!(
            "memory-backend-memfd,id=memory,size={size},hugetlb=on,hugetlbsize={bytes},share=off"
        ),
        None => format!("memory-backend-ram,id=memory,size={size}"),
    };
    text.push_str(",merge=off,dump=off");
    if real_time {
        // Avoids page faults at the guest's first access.
        text.push_str(",prealloc=on");
    }
    if let Some(node) = node {
        text.push_str(&format!(",host-nodes={node},policy=bind"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::description::tests::example;
    use super::*;

    fn text(guest: &Description) -> String {
        let mut text = String::new();
        for argument in arguments(guest, Path::new("/run/guest")) {
            let argument = argument.to_string_lossy().into_owned();
            text.push(if argument.starts_with('-') { '\n' } else { ' ' });
            text.push_str(&argument);
        }
        text
    }

    #[test]
    fn builds_arguments_of_a_real_time_guest() {
        insta::assert_snapshot!(text(&example(Accelerator::Kvm, Board::Microvm)));
    }

    #[test]
    fn builds_arguments_of_an_emulated_guest() {
        let mut guest = example(Accelerator::Tcg, Board::Pc);
        guest.memory.huge_page = None;
        guest.memory.node = None;
        guest.memory.locked = false;
        insta::assert_snapshot!(text(&guest));
    }

    #[test]
    fn hints_at_dedicated_cpus_only_if_they_are() {
        let mut guest = example(Accelerator::Kvm, Board::Q35);
        guest.emulator = guest.housekeeping.clone();
        assert!(!processor(&guest).contains("hint"));
        guest.emulator = "1".parse().expect("a CPU");
        assert!(processor(&guest).contains("kvm-hint-dedicated=on"));
        assert!(machine(&guest).starts_with("q35"));
    }
}
