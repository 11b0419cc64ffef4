// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart export libvirt` against libvirt: its schema, and a real libvirtd that defines the guest.
//!
//! The daemon runs in its own mount namespace with its directories in memory, so that it does not use the
//! libvirt of this machine and leaves no files. That needs root.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use rampart_tests::limited::Limited as _;
use rampart_tests::programs::{assert_refused, exit_code, rampart, stdout};

/// Starts libvirtd with empty directories, defines the guest from `$1`, and prints how libvirt configures it.
/// libvirtd needs the user that its package creates; if the package was only unpacked, the script adds the user
/// in the namespace.
const IN_A_NAMESPACE: &str = r#"
set -eu
for directory in /run /etc/libvirt /var/lib/libvirt /var/cache/libvirt /var/log/libvirt; do
    mkdir -p "$directory"
    mount -t tmpfs none "$directory"
done
cp /etc/passwd /etc/group /run/
grep -q '^libvirt-qemu:' /run/passwd || echo 'libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin' >> /run/passwd
grep -q '^kvm:' /run/group || echo 'kvm:x:64056:' >> /run/group
grep -q '^libvirt-qemu:' /run/group || echo 'libvirt-qemu:x:64055:' >> /run/group
mount --bind /run/passwd /etc/passwd
mount --bind /run/group /etc/group
printf 'auth_unix_rw = "none"\nauth_unix_ro = "none"\n' > /run/libvirtd.conf
printf 'user = "root"\ngroup = "root"\nswtpm_user = "root"\nswtpm_group = "root"\nsecurity_driver = "none"\ncgroup_controllers = []\nnamespaces = []\n' > /etc/libvirt/qemu.conf
setpriv --pdeathsig KILL libvirtd -f /run/libvirtd.conf > /run/libvirtd.log 2>&1 &
daemon=$!
ask() { virsh --connect qemu:///system "$@"; }
tries=0
until ask version > /dev/null 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -gt 300 ] || ! kill -0 "$daemon" 2> /dev/null; then
        cat /run/libvirtd.log >&2
        exit 7
    fi
    sleep 0.1
done
ask define --validate "$1"
echo '--- vcpupin'
ask vcpupin guest
echo '--- emulatorpin'
ask emulatorpin guest
echo '--- dumpxml'
ask dumpxml --inactive guest
echo '--- arguments'
ask domxml-to-native qemu-argv --domain guest
kill "$daemon"
wait "$daemon" || true
"#;

fn has(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .finish()
        .is_ok_and(|output| output.status.success())
}

/// Writes a kernel image that is only the header with the version, without modules: all drivers are built in.
fn kernel(directory: &Path) -> std::path::PathBuf {
    let boot = directory.join("package/boot");
    fs::create_dir_all(&boot).expect("a directory");
    let mut image = vec![0u8; 0x400];
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
    let version = b"6.1.0-test-rt (who@where) #1 SMP PREEMPT_RT";
    image[0x300..0x300 + version.len()].copy_from_slice(version);
    fs::write(boot.join("vmlinuz-6.1.0-test-rt"), image).expect("an image");
    directory.join("package")
}

fn export(directory: &Path, arguments: &[&str]) -> Output {
    let out = directory.join("out").display().to_string();
    let mut all = vec!["export", "libvirt", "--out", &out];
    all.extend(arguments);
    rampart(&directory.join("state"), &all)
        .env("RAMPART_GUEST_KERNEL", kernel(directory))
        .finish()
        .expect("rampart starts")
}

fn has_two_cpus() -> bool {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    online.trim() != "0"
}

#[test]
fn libvirt_accepts_the_guest() {
    if !has_two_cpus() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    for domain in ["vm", "vm:noisy", "vm:tcg"] {
        let output = export(
            directory.path(),
            &[
                "--domain",
                domain,
                "--name",
                "guest",
                "--cpus",
                "1",
                "--housekeeping",
                "0",
            ],
        );
        let xml = directory.path().join("out/guest.xml");
        assert_eq!(stdout(&output, 0).trim(), xml.display().to_string());
        assert!(directory.path().join("out/guest.initramfs").is_file());
        if has("virt-xml-validate") {
            let valid = Command::new("virt-xml-validate").arg(&xml).finish();
            let valid = valid.expect("virt-xml-validate starts");
            assert!(valid.status.success(), "{domain}: {valid:?}");
        }
    }
}

#[test]
fn a_real_libvirtd_defines_the_guest() {
    let can_run = rustix::process::geteuid().is_root()
        && has_two_cpus()
        && [
            "libvirtd",
            "virsh",
            "unshare",
            "setpriv",
            "qemu-system-x86_64",
        ]
        .iter()
        .all(|program| has(program))
        && Path::new("/dev/kvm").exists();
    if !can_run {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let output = export(
        directory.path(),
        &["--name", "guest", "--cpus", "1", "--housekeeping", "0"],
    );
    assert_eq!(exit_code(&output), 0, "{output:?}");
    let output = Command::new("unshare")
        .args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            IN_A_NAMESPACE,
            "sh",
        ])
        .arg(directory.path().join("out/guest.xml"))
        .finish()
        .expect("unshare starts");
    let text = stdout(&output, 0);
    let part = |from: &str, to: &str| {
        let begin = text
            .find(from)
            .unwrap_or_else(|| panic!("no {from} in {text}"));
        let rest = &text[begin..];
        rest[..rest.find(to).unwrap_or(rest.len())].to_owned()
    };
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let pins = words(&part("--- vcpupin", "--- emulatorpin"));
    assert!(pins.windows(2).any(|pair| pair == ["0", "0"]), "{pins:?}");
    assert!(pins.windows(2).any(|pair| pair == ["1", "1"]), "{pins:?}");
    let emulator = words(&part("--- emulatorpin", "--- dumpxml"));
    assert_eq!(emulator.last().map(String::as_str), Some("0"));
    let xml = part("--- dumpxml", "--- arguments");
    for part in [
        "<vcpusched vcpus='1' scheduler='fifo' priority='1'/>",
        "<nosharepages/>",
        "<memballoon model='none'/>",
        "mode='host-passthrough'",
        "<pmu state='off'/>",
    ] {
        assert!(xml.contains(part), "{part} is not in {xml}");
    }
    let arguments = part("--- arguments", "\u{0}");
    for part in [
        "pmu=off",
        "mem-merge=off",
        "nohz_full=1",
        "name\":\"rampart.agent\"",
    ] {
        assert!(arguments.contains(part), "{part} is not in {arguments}");
    }
}

#[test]
fn refuses_meaningless_requests() {
    let directory = tempfile::tempdir().expect("a directory");
    for arguments in [
        &["--domain", "task"][..],
        &["--cpus", "0", "--housekeeping", "0"],
        &["--cpus", "4000"],
        &["--name", "../x"],
    ] {
        let output = export(directory.path(), arguments);
        assert_eq!(exit_code(&output), 2, "{arguments:?}: {output:?}");
        assert!(!directory.path().join("out").exists(), "{arguments:?}");
    }
    let output = rampart(&directory.path().join("state"), &["export", "libvirt"])
        .current_dir(directory.path())
        .env("RAMPART_GUEST_KERNEL", directory.path().join("nothing"))
        .finish()
        .expect("rampart starts");
    assert_refused(&output, 4, &["RAMPART_GUEST_KERNEL"]);
}
