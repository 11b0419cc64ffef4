// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first cell on QEMU's model of the AMD ZCU102: a GICv2, four Cortex-A53, Debian's kernel and device tree,
//! unmodified.
//!
//! It is no simulated machine of `rampart`: QEMU does not model the firmware of the board, by which its serial ports and
//! cards get their clocks (`xlnx,zynqmp-firmware`). So no driver of a device binds: the kernel has no root file system,
//! and its messages come from the early console. All programs are in the initramfs, with a shell that needs no other
//! file; they write to the kernel's log.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rampart_bench::sim::{Architecture, Sim};
use rampart_initramfs::Archive;
use rampart_tests::limited::Limited as _;
use rampart_tests::packages::{cache, newest, unpack};
use rampart_tests::programs::{beside_others, directory};

use crate::boards::first_steps;

const TREE: &str = "xilinx/zynqmp-zcu102-rev1.0.dtb";
/// Of 2 GiB, so that memory remains for the hypervisor and the cell. The console is UART0 without its driver.
const COMMAND_LINE: &str = "earlycon=cdns,mmio,0xff000000,115200n8 keep_bootcon printk.devkmsg=on loglevel=7 \
                            panic=-1 mem=1792M";

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

#[test]
fn the_first_cell_on_a_zcu102() {
    let _slot = beside_others();
    let architecture = Architecture::named("aarch64").expect("known");
    let image = Sim::image(architecture, &mut |_| {}).expect("an image");
    let release = &image.record().kernel_release;
    let location = tempfile::tempdir().expect("a directory");
    let archives = cache().join("archives");
    for (package, pattern) in [
        (format!("linux-image-{release}_"), format!("*/{TREE}")),
        ("klibc-utils_".to_owned(), "*/klibc/bin/*".to_owned()),
        ("libklibc_".to_owned(), "*/klibc-*.so".to_owned()),
    ] {
        let package = newest(&archives, &package).expect("a package of the image");
        unpack(&package, &[&pattern], location.path());
    }
    let tree = location
        .path()
        .join(format!("usr/lib/linux-image-{release}/{TREE}"));

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
        let content = fs::read(built.join(&from)).unwrap_or_else(|error| panic!("{from}: {error}"));
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

    let output = Command::new("qemu-system-aarch64")
        .args([
            "-machine",
            "xlnx-zcu102,virtualization=on",
            "-smp",
            "4",
            "-m",
            "2048",
        ])
        .args(["-display", "none", "-no-reboot", "-serial", "stdio", "-dtb"])
        .arg(tree)
        .arg("-kernel")
        .arg(image.kernel())
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", COMMAND_LINE])
        .finish_within(Duration::from_secs(300), Vec::new())
        .expect("QEMU starts, and the machine ends");
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
