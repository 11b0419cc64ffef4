// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver on Debian's ordinary arm64 kernel, the one without PREEMPT_RT and with KVM: it loads, the
//! hypervisor is launched and left, cells run. The machine has nothing else: the kernel from its
//! package, and as its first program a shell (Debian's busybox-static).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rampart_initramfs::Archive;
use rampart_tests::hypervisor::{complaints, programs_are_there};
use rampart_tests::limited::Limited as _;
use rampart_tests::packages::{cache, fetched, unpack};
use rampart_tests::programs::directory;

const FIRST_PROGRAM: &str = r#"#!/bin/busybox sh
bb=/bin/busybox
$bb mount -t proc proc /proc
$bb mount -t sysfs sys /sys
$bb mount -t devtmpfs dev /dev
$bb dmesg -n 1
echo "release $($bb uname -r -v)"
$bb insmod /rampart.ko || echo 'FAILED  not loaded'
$bb dmesg -c >/dev/null
cd /cells
./cells_hand cells . root alarm failures || echo 'FAILED  cells'
./cells_hand leave 10 || echo 'FAILED  leave'
[ "$($bb cat /sys/devices/system/cpu/online)" = 0-3 ] || echo 'FAILED  CPUs are missing'
$bb rmmod rampart || echo 'FAILED  not unloaded'
$bb dmesg | $bb sed 's/^/log /'
echo finished
$bb poweroff -f
"#;

/// The release of the ordinary kernel that the modules were built for.
fn release() -> String {
    let modules = directory().join("modules");
    let releases = fs::read_dir(&modules).unwrap_or_else(|error| {
        panic!(
            "{}: {error}; run `make modules ARCH=aarch64`",
            modules.display()
        )
    });
    releases
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|release| release.ends_with("-arm64") && !release.ends_with("-rt-arm64"))
        .max()
        .expect("no modules for the ordinary kernel; run `make modules ARCH=aarch64`")
}

fn initramfs(busybox: &Path, module: &Path) -> Vec<u8> {
    let read =
        |path: &Path| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let hypervisor = directory().join("hypervisor");
    let written = |archive: &mut Archive<Vec<u8>>| -> std::io::Result<()> {
        for directory in ["proc", "sys", "dev", "tmp"] {
            archive.directory(directory)?;
        }
        archive.character_device("dev/console", 0o600, (5, 1))?;
        archive.file("init", 0o755, FIRST_PROGRAM.as_bytes())?;
        archive.file("bin/busybox", 0o755, &read(busybox))?;
        archive.file("rampart.ko", 0o644, &read(module))?;
        let image = read(&hypervisor.join("rampart.bin"));
        archive.file("lib/firmware/rampart.bin", 0o644, &image)?;
        for entry in fs::read_dir(&hypervisor)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            archive.file(&format!("cells/{name}"), 0o755, &read(&entry.path()))?;
        }
        Ok(())
    };
    let mut archive = Archive::new(Vec::new());
    written(&mut archive).expect("an archive in memory");
    archive.finish().expect("an archive in memory")
}

/// The kernel, and the shell for its first program.
fn from_packages(release: &str, place: &Path) -> (PathBuf, PathBuf) {
    let fetch = |name: &str, pattern: &str| {
        let package = fetched(name, &cache().join("stock-kernel"))
            .unwrap_or_else(|| panic!("the archive has no {name}"));
        unpack(&package, pattern, place);
    };
    fetch(&format!("linux-image-{release}"), "./boot/vmlinuz-*");
    fetch("busybox-static", "*/busybox");
    let shell = ["bin/busybox", "usr/bin/busybox"];
    let shell = shell.map(|path| place.join(path));
    let shell = shell.into_iter().find(|path| path.exists());
    (
        place.join(format!("boot/vmlinuz-{release}")),
        shell.expect("busybox in its package"),
    )
}

#[test]
fn the_hypervisor_on_a_kernel_that_is_not_for_real_time() {
    programs_are_there();
    let release = release();
    let place = tempfile::tempdir().expect("a directory");
    let (kernel, busybox) = from_packages(&release, place.path());
    let module = directory()
        .join("modules")
        .join(&release)
        .join("rampart.ko");
    let archive = place.path().join("initramfs");
    fs::write(&archive, initramfs(&busybox, &module)).expect("written");
    let output = Command::new("qemu-system-aarch64")
        .args(["-machine", "virt,virtualization=on,gic-version=3,its=off"])
        .args(["-cpu", "cortex-a57", "-smp", "4", "-m", "1024"])
        .args(["-nodefaults", "-display", "none", "-no-reboot"])
        .args(["-serial", "stdio", "-kernel"])
        .arg(&kernel)
        .arg("-initrd")
        .arg(&archive)
        .args(["-append", "mem=768M iomem=relaxed quiet panic=-1"])
        .finish_within(Duration::from_secs(400), Vec::new())
        .expect("qemu-system-aarch64 starts");
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    let said = format!("{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(&format!("release {release} ")), "{said}");
    assert!(!text.contains("PREEMPT_RT"), "{said}");
    for wanted in [
        "timer: no exit for an interrupt",
        "a device of the cell: no exit for an interrupt",
        "failures: the root is told in time",
        "disabled 10 times under load",
        "finished",
    ] {
        assert!(text.contains(wanted), "no {wanted:?}:\n{said}");
    }
    assert!(!text.contains("FAILED"), "{said}");
    let complaints = complaints(&text, &["log "]);
    assert!(complaints.is_empty(), "{complaints:#?}");
}
