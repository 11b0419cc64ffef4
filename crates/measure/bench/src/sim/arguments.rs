// SPDX-License-Identifier: Apache-2.0 OR MIT
//! QEMU's command line for a simulated machine. Pure.

use std::ffi::OsString;
use std::path::Path;

use rampart_qemu::{escaped, socket_option};

use super::architecture::{Devices, Firmware, SerialPort};
use super::options::SimOptions;

/// Number of agents: the first is for the command that booted the machine, the others for commands
/// that join it.
pub(super) const AGENTS: usize = 9;

/// Network functions for cells, behind an SMMU. Of the four interrupts by which the slots of the bus are wired in turn,
/// those of the root use two, in the slots 1, 2, 5 and 6, and each of these one of its own. One is behind a root port.
const ROOT_PORT: &str = "pcie-root-port,id=link,addr=0x3";
const FOR_CELLS: [&str; 2] = [
    "e1000e,addr=0x4,romfile=",
    "virtio-net-pci,bus=link,romfile=,iommu_platform=on,disable-legacy=on",
];

/// Returns the name of an agent's port, inside the machine and of its socket.
pub(super) fn port_name(number: usize) -> String {
    format!("org.rampart.agent.{number}")
}

/// The files of one boot.
#[derive(Debug)]
pub(super) struct BootFiles<'a> {
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a Path,
    pub(super) root: &'a Path,
    pub(super) directory: &'a Path,
    pub(super) disk: Option<&'a Path>,
    /// The firmware, and the size of the initramfs in bytes.
    pub(super) firmware: Option<(Firmware, &'a Path, u64)>,
    /// The device tree of a board.
    pub(super) tree: Option<&'a Path>,
    /// The file with a board's memory.
    pub(super) memory: Option<&'a Path>,
    /// The kernel command line without the words for process 1.
    pub(super) line: &'a str,
}

/// Returns the command line without the arguments that `rampart-qemu` adds.
pub(super) fn qemu_arguments(options: &SimOptions, files: &BootFiles<'_>) -> Vec<OsString> {
    let architecture = options.architecture;
    let mut arguments = machine_arguments(options);
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(OsString::from));
    // A reset ends the machine, because a second boot would look like the first. After a panic the
    // machine continues, because an evaluation tests which domains survive.
    add(&["-nodefaults", "-no-reboot", "-action", "panic=none"]);
    for port in architecture.serial_ports {
        let end = match port {
            SerialPort::Console => "chardev:console",
            SerialPort::Unconnected => "null",
        };
        add(&["-serial", end]);
    }
    if let Some(device) = architecture.panic_device {
        add(&["-device", device]);
    }
    let devices = &architecture.devices;
    if let Some(memory) = files.memory {
        let size = options.mebibytes;
        let mut backend = OsString::from(format!(
            "memory-backend-file,id=ram,size={size}M,share=on,mem-path="
        ));
        backend.push(escaped(memory));
        arguments.extend(["-object".into(), backend]);
        arguments.extend(["-machine".into(), "memory-backend=ram".into()]);
    }
    match devices {
        Devices::Virtio(bus) => arguments.extend(virtio_devices(bus, options, files)),
        Devices::Board { card_slot, .. } => {
            // A card is writable, which the image is not: what the machine writes is lost with it.
            let mut card = OsString::from(format!(
                "if=sd,bus={card_slot},format=raw,snapshot=on,file="
            ));
            card.push(escaped(files.root));
            arguments.extend(["-drive".into(), card]);
        }
    }
    if let Some(tree) = files.tree {
        arguments.extend(["-dtb".into(), tree.into()]);
    }
    // With firmware QEMU uses the kernel only for the command line in the device tree.
    arguments.push("-kernel".into());
    arguments.push(files.kernel.into());
    let mut line = files.line.to_owned();
    if let Some((firmware, path, initramfs_bytes)) = files.firmware {
        arguments.extend(["-bios".into(), path.into()]);
        for (file, address) in [
            (files.kernel, firmware.kernel),
            (files.initramfs, firmware.initramfs),
        ] {
            let mut loader = OsString::from(format!("loader,addr={address:#x},force-raw=on,file="));
            loader.push(escaped(file));
            arguments.extend(["-device".into(), loader]);
        }
        line = format!("{line} initrd={:#x},{initramfs_bytes}", firmware.initramfs);
    } else {
        arguments.push("-initrd".into());
        arguments.push(files.initramfs.into());
    }
    arguments.push("-append".into());
    arguments.push(format!("{line} {}", options.init.boot_words(devices)).into());
    arguments
}

/// Returns the arguments on which the machine's device tree depends.
pub(super) fn machine_arguments(options: &SimOptions) -> Vec<OsString> {
    let architecture = options.architecture;
    let mut arguments: Vec<OsString> = architecture.machine.iter().map(OsString::from).collect();
    if options.two_security_states {
        let more = architecture.two_security_states.unwrap_or_default();
        arguments.extend(more.iter().map(OsString::from));
    }
    if options.gicv2 {
        let more = architecture.gicv2.unwrap_or_default();
        arguments.extend(more.iter().map(OsString::from));
    }
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(OsString::from));
    if options.count_instructions {
        // 16 ns, a tick of the counter at 62.5 MHz.
        add(&["-accel", "tcg,thread=single", "-icount", "shift=4"]);
    } else {
        add(&["-accel", "tcg,thread=multi"]);
    }
    let cpus = options.cpus + architecture.other_cpus;
    let smp = format!("cpus={cpus},sockets=1,cores={cpus},threads=1");
    add(&["-smp", &smp]);
    add(&["-m", &format!("{}M", options.mebibytes)]);
    arguments
}

/// Returns the devices of virtio on a bus: ports of the agents, disks, network.
fn virtio_devices(bus: &str, options: &SimOptions, files: &BootFiles<'_>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    let is_behind_smmu = options.architecture.smmu.is_some();
    let of_root = |slot| match is_behind_smmu {
        true => format!(",iommu_platform=on,disable-legacy=on,addr={slot:#x}"),
        false => String::new(),
    };
    let serial = format!("virtio-serial-{bus},id=serial{}", of_root(1));
    arguments.extend(["-device".into(), serial.into()]);
    for number in 0..options.architecture.devices.agents() {
        let name = port_name(number);
        arguments.push("-chardev".into());
        arguments.push(socket_option(files.directory, &name));
        let port = format!("virtserialport,bus=serial.0,chardev={name},name={name}");
        arguments.extend(["-device".into(), port.into()]);
    }
    let disks = [
        ("root", ",readonly=on", Some(files.root), 2),
        ("disk", "", files.disk, 5),
    ];
    for (id, readonly, path, slot) in disks {
        let Some(path) = path else { continue };
        let mut drive = OsString::from(format!("if=none,id={id},format=raw{readonly},file="));
        drive.push(escaped(path));
        arguments.extend(["-drive".into(), drive]);
        let device = format!("virtio-blk-{bus},drive={id}{}", of_root(slot));
        arguments.extend(["-device".into(), device.into()]);
    }
    if !options.forwards.is_empty() {
        let mut network = "user,id=network".to_owned();
        for forward in &options.forwards {
            network += &format!(",hostfwd=tcp:127.0.0.1:{}-:{}", forward.here, forward.there);
        }
        // No option ROM: the machine does not boot from the network.
        let device = format!("virtio-net-{bus},netdev=network,romfile={}", of_root(6));
        arguments.extend(["-netdev".into(), network.into()]);
        arguments.extend(["-device".into(), device.into()]);
    }
    if is_behind_smmu {
        arguments.extend(["-device".into(), ROOT_PORT.into()]);
        for (number, device) in FOR_CELLS.iter().enumerate() {
            let id = format!("cell{number}");
            arguments.extend(["-netdev".into(), format!("user,id={id}").into()]);
            arguments.extend(["-device".into(), format!("{device},netdev={id}").into()]);
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::architecture::Architecture;
    use super::super::options::Forward;
    use super::*;

    fn options(architecture: &str) -> SimOptions {
        let architecture = Architecture::named(architecture).expect("known");
        SimOptions::new(architecture, PathBuf::from("/bin/rampart-meter"), None)
    }

    fn lines(options: &SimOptions) -> String {
        let files = BootFiles {
            kernel: Path::new("/image/kernel"),
            initramfs: Path::new("/run/initramfs"),
            root: Path::new("/image/a,b"),
            directory: Path::new("/run"),
            disk: None,
            firmware: None,
            tree: None,
            memory: None,
            line: &options.kernel_command_line(),
        };
        let lines: Vec<_> = qemu_arguments(options, &files)
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .filter(|word| !(1..AGENTS - 1).any(|number| word.contains(&port_name(number))))
            .collect();
        lines.join("\n")
    }

    #[test]
    fn x86_64_command_line() {
        let mut options = options("x86_64");
        options.forwards = vec![Forward {
            here: 2222,
            there: 22,
        }];
        insta::assert_snapshot!(lines(&options));
    }

    #[test]
    fn aarch64_command_line() {
        insta::assert_snapshot!(lines(&options("aarch64")));
    }

    #[test]
    fn requests_two_security_states_after_the_machine() {
        let one = lines(&options("aarch64"));
        let mut options = options("aarch64");
        options.two_security_states = true;
        let two = lines(&options);
        assert_eq!(two.replacen("-machine\nsecure=on\n", "", 1), one);
        assert_ne!(two, one);
        let location = |wanted| two.find(wanted).expect("there");
        assert!(
            location("virtualization=on") < location("secure=on"),
            "{two}"
        );
    }

    #[test]
    fn an_instruction_is_a_tick_of_the_counter() {
        let mut options = options("aarch64");
        options.count_instructions = true;
        let lines = lines(&options);
        assert!(
            lines.contains("-accel\ntcg,thread=single\n-icount\nshift=4\n"),
            "{lines}"
        );
        assert!(!lines.contains("thread=multi"), "{lines}");
    }

    #[test]
    fn firmware_starts_what_is_loaded_at_its_addresses() {
        let options = options("aarch64-firmware");
        let firmware = options.architecture.firmware.expect("firmware");
        let files = BootFiles {
            kernel: Path::new("/image/kernel"),
            initramfs: Path::new("/run/a,b"),
            root: Path::new("/image/root"),
            directory: Path::new("/run"),
            disk: None,
            firmware: Some((firmware, Path::new("/firmware/virt.bin"), 4711)),
            tree: None,
            memory: None,
            line: "quiet",
        };
        let arguments = qemu_arguments(&options, &files);
        for wanted in [
            "/firmware/virt.bin",
            "loader,addr=0x40200000,force-raw=on,file=/image/kernel",
            "loader,addr=0x48000000,force-raw=on,file=/run/a,,b",
        ] {
            assert!(arguments.iter().any(|word| word == wanted), "{arguments:?}");
        }
        let line = arguments.last().expect("a command line").to_string_lossy();
        assert!(
            line.starts_with("quiet initrd=0x48000000,4711 -- "),
            "{line}"
        );
        assert!(!arguments.iter().any(|word| word == "-initrd"));
    }

    #[test]
    fn puts_the_disk_after_the_root() {
        let options = options("x86_64");
        let files = BootFiles {
            kernel: Path::new("/image/kernel"),
            initramfs: Path::new("/run/initramfs"),
            root: Path::new("/image/root"),
            directory: Path::new("/run"),
            disk: Some(Path::new("/home/a,b")),
            firmware: None,
            tree: None,
            memory: None,
            line: "quiet",
        };
        let arguments = qemu_arguments(&options, &files);
        let location = |wanted: &str| arguments.iter().position(|word| word == wanted);
        let root = location("virtio-blk-pci,drive=root").expect("a root");
        assert_eq!(
            location("if=none,id=disk,format=raw,file=/home/a,,b"),
            Some(root + 2)
        );
        assert!(location("quiet -- enter-root /dev/vda /usr/bin/rampart-meter agent --init --stay --port org.rampart.agent.0").is_some());
    }
}
