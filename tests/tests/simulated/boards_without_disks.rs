// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first cell on boards whose serial ports and cards no driver of Debian's kernel uses in emulation:
//!
//! - AMD ZCU102: QEMU does not model the firmware by which its devices get their clocks (`xlnx,zynqmp-firmware`).
//! - Raspberry Pi 4: QEMU models no storage that its firmware could boot from.
//!
//! So they are no simulated machines of `rampart`. The kernel has no root file system: all programs are in the
//! initramfs, with a shell that needs no other file; they write to the kernel's log.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use dtoolkit::ToPropertyValue;
use dtoolkit::fdt::Fdt;
use dtoolkit::model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty};
use rampart_bench::sim::{Architecture, Image, Sim, newer_qemu};
use rampart_initramfs::Archive;
use rampart_tests::limited::Limited as _;
use rampart_tests::packages::{cache, newest, unpack};
use rampart_tests::programs::{beside_others, directory, left_out};
use tempfile::TempDir;

use crate::boards::first_steps;

/// All messages, from the early console on.
const COMMAND_LINE: &str = "keep_bootcon printk.devkmsg=on loglevel=7 panic=-1";
/// Time limit for a machine.
const LIMIT: Duration = Duration::from_secs(300);

/// Process 1. A reset ends the machine.
fn init(steps: &[String]) -> String {
    let steps = steps.iter().map(|step| {
        format!("echo 'step {step}'; {{ {step} || echo 'FAILED  {step}'; }} 2>&1 | while read -r line; do echo \"$line\"; done\n")
    });
    let steps: String = steps.collect();
    format!(
        "#!/bin/sh\nexport PATH=/bin\n\
         mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev\n\
         exec >/dev/kmsg 2>&1\ncd /opt\necho 'first step'\n{steps}\
         echo \"online $(cat /sys/devices/system/cpu/online)\"\necho b >/proc/sysrq-trigger\n"
    )
}

/// Adds the files of a directory, without its subdirectories.
fn add(archive: &mut Archive<Vec<u8>>, from: &Path, to: &str) {
    for entry in fs::read_dir(from).expect("a directory").flatten() {
        let name = entry.file_name().into_string().expect("a name");
        let content = fs::read(entry.path()).expect("a file");
        let added = archive.file(&format!("{to}/{name}"), 0o755, &content);
        added.expect("memory");
    }
}

/// What boots a board.
struct Boot {
    image: Image,
    /// Debian's device tree.
    tree: PathBuf,
    /// The file of the initramfs, and the directory of both.
    initramfs: PathBuf,
    location: TempDir,
}

impl Boot {
    /// Builds an initramfs whose first program does the first steps of the document of boards.
    fn of(tree: &str) -> Self {
        let architecture = Architecture::named("aarch64").expect("known");
        let image = Sim::image(architecture, &mut |_| {}).expect("an image");
        let release = image.record().kernel_release.clone();
        let location = tempfile::tempdir().expect("a directory");
        let archives = cache().join("archives");
        for (package, pattern) in [
            (format!("linux-image-{release}_"), format!("*/{tree}")),
            ("klibc-utils_".to_owned(), "*/klibc/bin/*".to_owned()),
            ("libklibc_".to_owned(), "*/klibc-*.so".to_owned()),
        ] {
            let package = newest(&archives, &package).expect("a package of the image");
            unpack(&package, &[&pattern], location.path());
        }
        let tree = location
            .path()
            .join(format!("usr/lib/linux-image-{release}/{tree}"));

        let mut archive = Archive::new(Vec::new());
        archive
            .character_device("/dev/console", 0o600, (5, 1))
            .expect("memory");
        for directory in ["/proc", "/sys", "/tmp", "/run", "/var/lib"] {
            archive.directory(directory).expect("memory");
        }
        add(
            &mut archive,
            &location.path().join("usr/lib/klibc/bin"),
            "/bin",
        );
        add(&mut archive, &location.path().join("lib"), "/lib");
        let built = directory();
        for (from, to) in [
            ("aarch64/rampart".to_owned(), "/bin/rampart"),
            ("aarch64/rampart-meter".to_owned(), "/bin/rampart-meter"),
            (
                "hypervisor/rampart-gicv2.bin".to_owned(),
                "/lib/firmware/rampart-gicv2.bin",
            ),
            (
                "hypervisor/rampart-cell-irq".to_owned(),
                "/opt/rampart-cell-irq",
            ),
            (format!("modules/{release}/rampart.ko"), "/opt/rampart.ko"),
        ] {
            let content =
                fs::read(built.join(&from)).unwrap_or_else(|error| panic!("{from}: {error}"));
            archive.file(to, 0o755, &content).expect("memory");
        }
        // Nothing has loaded the module.
        let steps: Vec<String> = first_steps()
            .into_iter()
            .filter(|step| *step != "rampart cell describe")
            .map(|step| step.replace("cell enable", "cell enable --module rampart.ko"))
            .collect();
        assert!(steps.len() > 5, "{steps:?}");
        archive
            .file("/init", 0o755, init(&steps).as_bytes())
            .expect("memory");
        let initramfs = location.path().join("initramfs");
        fs::write(&initramfs, archive.finish().expect("memory")).expect("written");
        Self {
            image,
            tree,
            initramfs,
            location,
        }
    }
}

/// Checks what a board has printed.
fn assert_first_cell(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let (before, after) = text.split_once("first step").unwrap_or((&text, ""));
    assert!(before.contains("CPU: All CPU(s) started at EL2"), "{text}");
    for wanted in [
        "0 of them for interrupts",
        "cell press is destroyed",
        "disabled",
        "online 0-3",
    ] {
        assert!(after.contains(wanted), "no {wanted:?}: {text}");
    }
    let wrong = ["FAILED", "WARNING:", "BUG:", "Oops", "Call trace"];
    assert!(!wrong.iter().any(|word| after.contains(word)), "{text}");
}

/// A GICv2, four Cortex-A53, Debian's kernel and device tree, unmodified.
#[test]
fn the_first_cell_on_a_zcu102() {
    let _slot = beside_others();
    let boot = Boot::of("xilinx/zynqmp-zcu102-rev1.0.dtb");
    // Of 2 GiB, so that memory remains for the hypervisor and the cell. The console is UART0 without its driver.
    let arguments = format!("earlycon=cdns,mmio,0xff000000,115200n8 {COMMAND_LINE} mem=1792M");
    let output = Command::new("qemu-system-aarch64")
        .args(["-machine", "xlnx-zcu102,virtualization=on"])
        .args(["-smp", "4", "-m", "2048", "-display", "none", "-no-reboot"])
        .args(["-serial", "stdio", "-dtb"])
        .arg(&boot.tree)
        .arg("-kernel")
        .arg(boot.image.kernel())
        .arg("-initrd")
        .arg(&boot.initramfs)
        .args(["-append", &arguments])
        .finish_within(LIMIT, Vec::new())
        .expect("QEMU starts, and the machine ends");
    assert_first_cell(&output);
}

/// The device tree's location, as `scripts/firmware` has it, and that of the initramfs.
const TREE: u64 = 0x1f00_0000;
const INITRAMFS: u64 = 0x2000_0000;
/// Where the firmware enters the kernel.
const KERNEL: u64 = 0x8_0000;

/// Returns Debian's tree with what the board's GPU adds to it (memory, command line, initramfs), and without devices
/// that QEMU does not model.
fn tree_of_the_gpu(tree: &[u8], initramfs: u64) -> Vec<u8> {
    let mut tree = DeviceTree::from_fdt(&Fdt::new(tree).expect("a tree"));
    fn set(node: &mut DeviceTreeNode, name: &str, value: impl ToPropertyValue) {
        node.remove_property(name);
        node.add_property(DeviceTreeProperty::new_unchecked(name, value));
    }
    for path in [
        "/soc/avs-monitor@7d5d2000/thermal",
        "/soc/clock@7ef00000",
        "/soc/i2c@7ef04500",
        "/soc/i2c@7ef09500",
        "/soc/interrupt-controller@7ef00100",
        "/soc/rng@7e104000",
        "/scb/ethernet@7d580000",
        "/scb/pcie@7d500000",
    ] {
        set(
            tree.find_node_mut(path).expect("a node"),
            "status",
            "disabled",
        );
    }
    // The first GiB without the memory of the GPU.
    let memory = tree.find_node_mut("/memory@0").expect("a node");
    set(memory, "reg", [0, 0, 0x3b40_0000_u32].as_slice());
    let chosen = tree.find_node_mut("/chosen").expect("a node");
    let arguments = format!("earlycon=pl011,0xfe201000 {COMMAND_LINE} mem=768M");
    set(chosen, "bootargs", arguments.as_str());
    set(chosen, "linux,initrd-start", INITRAMFS);
    set(chosen, "linux,initrd-end", INITRAMFS + initramfs);
    tree.to_dtb()
}

/// Four Cortex-A72 and a GICv2 with two security states, started by Trusted Firmware-A, which has the PSCI that the
/// firmware of the Raspberry Pi lacks.
#[test]
fn the_first_cell_on_a_raspberry_pi_4() {
    let _slot = beside_others();
    let firmware = directory().join("firmware/raspberry-pi-4.bin");
    if !firmware.exists() {
        left_out("the firmware of the Raspberry Pi 4 was not built (scripts/firmware)");
        return;
    }
    let boot = Boot::of("broadcom/bcm2711-rpi-4-b.dtb");
    let tree = fs::read(&boot.tree).expect("a tree");
    let bytes = fs::metadata(&boot.initramfs).expect("written").len();
    let changed = boot.location.path().join("tree");
    fs::write(&changed, tree_of_the_gpu(&tree, bytes)).expect("written");
    let loader = |file: &Path, address: u64| {
        let file = file.display();
        [
            "-device".to_owned(),
            format!("loader,file={file},addr={address:#x},force-raw=on"),
        ]
    };
    let qemu = newer_qemu().expect("an emulator");
    let output = Command::new(&qemu.program)
        .args(&qemu.arguments)
        .envs(qemu.environment)
        .args([
            "-machine",
            "raspi4b",
            "-display",
            "none",
            "-no-reboot",
            "-serial",
            "stdio",
        ])
        // As the board's GIC-400 is. QEMU's model leaves the second security state out.
        .args(["-global", "arm_gic.has-security-extensions=on"])
        .args(loader(&firmware, 0))
        .args(loader(&boot.image.kernel(), KERNEL))
        .args(loader(&changed, TREE))
        .args(loader(&boot.initramfs, INITRAMFS))
        .finish_within(LIMIT, Vec::new())
        .expect("QEMU starts, and the machine ends");
    assert_first_cell(&output);
}
