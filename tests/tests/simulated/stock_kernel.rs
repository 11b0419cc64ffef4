// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver on Debian's ordinary arm64 kernels, without PREEMPT_RT and with KVM: it launches and leaves the
//! hypervisor, and cells run, one of them with the same kernel and a device. The machine is that kernel with a
//! shell (Debian's busybox-static) as its first program. Its CPUs have VHE, which such a kernel uses by default.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rampart_initramfs::Archive;
use rampart_tests::hypervisor::{assert_nothing_failed, assert_programs_built, kernel_errors};
use rampart_tests::limited::Limited as _;
use rampart_tests::packages::{cache_of, fetched_of, unpack};
use rampart_tests::programs::{beside_others, directory};

const BEGIN: &str = r#"#!/bin/busybox sh
bb=/bin/busybox
$bb mount -t proc proc /proc
$bb mount -t sysfs sys /sys
$bb mount -t devtmpfs dev /dev
$bb dmesg -n 1
echo "release $($bb uname -r -v)"
$bb insmod /rampart.ko || echo 'FAILED  not loaded'
$bb dmesg -c >/dev/null
cd /cells
"#;

const CELLS: &str = r#"
./cells_agent cells . root alarm failures return || echo 'FAILED  cells'
$bb dmesg -c | $bb sed 's/^/log /'
./cells_agent guest || echo 'FAILED  guest'
# KVM warns that its code at EL2 does not answer.
$bb dmesg -c >/dev/null
./cells_agent leave 10 || echo 'FAILED  leave'
echo 9010000.pl031 >/sys/bus/amba/drivers/rtc-pl031/unbind || echo 'FAILED  the clock is still bound'
./cells_agent enable || echo 'FAILED  enable'
$bb dmesg -c | $bb sed 's/^/log /'
for state in freeze mem disk; do
    echo $state >/sys/power/state 2>/dev/null && echo "FAILED  $state"
done
$bb dmesg -c | $bb grep -c 'cannot suspend while the hypervisor is enabled' | $bb sed 's/^/refusals to suspend: /'
./linux_agent device /kernel /rampart-meter || echo 'FAILED  linux_agent'
./cells_agent disable || echo 'FAILED  disable'
[ "$($bb cat /sys/devices/system/cpu/online)" = 0-3 ] || echo 'FAILED  CPUs are offline'
"#;

/// Without what only a part of the tests of the older kernel is about.
const SHORT: &str = r#"
./cells_agent cells . root alarm || echo 'FAILED  cells'
./cells_agent leave 5 || echo 'FAILED  leave'
echo 9010000.pl031 >/sys/bus/amba/drivers/rtc-pl031/unbind || echo 'FAILED  the clock is still bound'
./cells_agent enable || echo 'FAILED  enable'
./linux_agent device /kernel /rampart-meter || echo 'FAILED  linux_agent'
./cells_agent disable || echo 'FAILED  disable'
"#;

/// On a CPU with all features of QEMU, of which a cell sees a part (docs/hypervisor.md, "Identification registers").
const NEWEST: &str = r#"
echo 9010000.pl031 >/sys/bus/amba/drivers/rtc-pl031/unbind || echo 'FAILED  the clock is still bound'
$bb grep -q ' mte ' /proc/cpuinfo || echo 'FAILED  the root has no MTE'
./cells_agent enable || echo 'FAILED  enable'
./linux_agent device /kernel /rampart-meter || echo 'FAILED  linux_agent'
./cells_agent disable || echo 'FAILED  disable'
"#;

const REFUSED: &str = r#"
./cells_agent enable && echo 'FAILED  enabled'
[ "$($bb cat /sys/devices/virtual/misc/rampart/enabled)" = 0 ] || echo 'FAILED  still enabled'
"#;

const END: &str = r#"
$bb rmmod rampart || echo 'FAILED  not unloaded'
$bb dmesg | $bb sed 's/^/log /'
echo finished
$bb poweroff -f
"#;

/// A kernel: the begin of its release, and the simulated machine whose package lists have it.
type Kernel = [&'static str; 2];

const OLDER: Kernel = ["6.1.", "aarch64"];
const NEWER: Kernel = ["6.12.", "aarch64-backports"];

/// Returns the release of an ordinary kernel that the modules were built for.
fn release(begin: &str) -> String {
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
        .filter(|release| {
            release.starts_with(begin)
                && release.ends_with("-arm64")
                && !release.ends_with("-rt-arm64")
        })
        .max()
        .unwrap_or_else(|| {
            panic!("no modules for the ordinary kernel {begin}; run `make test-code`")
        })
}

/// Returns the initramfs of the machine, which runs the script.
fn initramfs(script: &str, kernel: &Path, busybox: &Path, module: &Path) -> Vec<u8> {
    let read =
        |path: &Path| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let hypervisor = directory().join("hypervisor");
    let meter = directory().join("aarch64/rampart-meter");
    let first = [BEGIN, script, END].concat();
    let written = |archive: &mut Archive<Vec<u8>>| -> std::io::Result<()> {
        for directory in ["proc", "sys", "dev", "tmp"] {
            archive.directory(directory)?;
        }
        archive.character_device("dev/console", 0o600, (5, 1))?;
        archive.file("init", 0o755, first.as_bytes())?;
        archive.file("bin/busybox", 0o755, &read(busybox))?;
        archive.file("rampart.ko", 0o644, &read(module))?;
        archive.file("kernel", 0o644, &read(kernel))?;
        archive.file("rampart-meter", 0o755, &read(&meter))?;
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

/// Fetches the kernel and busybox, and returns their paths.
fn from_packages(machine: &str, release: &str, location: &Path) -> (PathBuf, PathBuf) {
    let fetch = |name: &str, pattern: &str| {
        let package = fetched_of(machine, name, &cache_of(machine).join("stock-kernel"))
            .unwrap_or_else(|| panic!("the archive has no {name}"));
        unpack(&package, &[pattern], location);
    };
    fetch(&format!("linux-image-{release}"), "./boot/vmlinuz-*");
    fetch("busybox-static", "*/busybox");
    let shell = ["bin/busybox", "usr/bin/busybox"];
    let shell = shell.map(|path| location.join(path));
    let shell = shell.into_iter().find(|path| path.exists());
    (
        location.join(format!("boot/vmlinuz-{release}")),
        shell.expect("busybox in its package"),
    )
}

/// Properties of the machine, and its CPUs.
const ORDINARY: [&str; 2] = ["", "cortex-a76"];

/// Runs a script in the machine, with these kernel arguments, and returns the output.
fn run(kernel: Kernel, script: &str, kernel_arguments: &str, model: [&str; 2]) -> String {
    let _machine = beside_others();
    assert_programs_built();
    let [begin, machine] = kernel;
    let release = release(begin);
    let location = tempfile::tempdir().expect("a directory");
    let (kernel, busybox) = from_packages(machine, &release, location.path());
    let module = directory()
        .join("modules")
        .join(&release)
        .join("rampart.ko");
    let archive = location.path().join("initramfs");
    fs::write(&archive, initramfs(script, &kernel, &busybox, &module)).expect("written");
    let output = Command::new("qemu-system-aarch64")
        .arg("-machine")
        .arg(format!(
            "virt,virtualization=on,gic-version=3,its=off{}",
            model[0]
        ))
        .args(["-cpu", model[1], "-smp", "4", "-m", "1024"])
        .args(["-nodefaults", "-display", "none", "-no-reboot"])
        .args(["-serial", "stdio", "-kernel"])
        .arg(&kernel)
        .arg("-initrd")
        .arg(&archive)
        .args(["-append"])
        .arg(format!(
            "mem=768M iomem=relaxed quiet panic=-1 nokaslr {kernel_arguments}"
        ))
        .finish_within(Duration::from_secs(400), Vec::new())
        .expect("qemu-system-aarch64 starts");
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    let all = format!("{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(all.contains(&format!("release {release} ")), "{all}");
    assert!(!text.contains("PREEMPT_RT"), "{all}");
    assert_nothing_failed(&all);
    let errors = kernel_errors(&text, &["log "]);
    assert!(errors.is_empty(), "{errors:#?}");
    all
}

fn assert_contains(output: &str, expected: &[&str]) {
    for expected in expected {
        assert!(output.contains(expected), "no {expected:?}:\n{output}");
    }
}

#[test]
fn the_hypervisor_runs_on_an_ordinary_kernel() {
    let output = run(OLDER, CELLS, "kvm-arm.mode=nvhe", ORDINARY);
    assert_contains(
        &output,
        &[
            "timer: no exit for an interrupt",
            "a device of the cell: no exit for an interrupt",
            "failures: the root learns of a failure in time",
            "return: destroying reports that a CPU is offline",
            "return: the CPU comes online later",
            "guest: no guest runs while the hypervisor is enabled",
            "guest: a guest runs after the hypervisor has ended",
            "disabled 10 times under load",
            "refusals to suspend: 3",
            "ok  device: its interrupts arrive",
            "ok  device: no exit for its interrupts",
            "finished",
        ],
    );
}

#[test]
fn refuses_a_kernel_at_el2_with_a_fix() {
    let output = run(OLDER, REFUSED, "", ORDINARY);
    assert_contains(
        &output,
        &["(VHE); boot it with kvm-arm.mode=nvhe", "finished"],
    );
}

#[test]
fn an_ordinary_kernel_runs_in_a_cell_on_a_cpu_with_memory_tags() {
    let output = run(
        OLDER,
        NEWEST,
        "kvm-arm.mode=nvhe",
        [",mte=on", "max,pauth-impdef=on"],
    );
    assert_contains(&output, &["ok  device: its interrupts arrive", "finished"]);
}

#[test]
fn the_hypervisor_runs_on_a_newer_ordinary_kernel() {
    let arguments = "kvm-arm.mode=nvhe kvm.enable_virt_at_load=0";
    let output = run(NEWER, SHORT, arguments, ORDINARY);
    assert_contains(
        &output,
        &[
            "timer: no exit for an interrupt",
            "alarm: the other cell is not disturbed",
            "disabled 5 times under load",
            "ok  device: its interrupts arrive",
            "ok  device: no exit for its interrupts",
            "finished",
        ],
    );
}
