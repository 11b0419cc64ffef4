// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart sim run` and `rampart sim up`; `joining.rs` tests how commands join a running machine.
//!
//! The image is in the user's cache. It is built once, which needs a network, and used by every test. The tests
//! that hold a machine which commands join (`sim up`) run one at a time.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use rampart_tests::limited::{Limited as _, ended, wait_until};
use rampart_tests::processes::{KillAtEnd, children_of, is_alive, send};
use rampart_tests::programs::{
    Machine, beside_others, directory, exit_code, left_out, only_machine_up, stderr as errors,
    stdout,
};
use rampart_tests::simulated::{MACHINE_LOST, MISSING, finish, sim};
use rustix::process::Signal;

/// A machine with two CPUs, which boots faster.
const SMALL: [&str; 3] = ["--own", "--cpus", "2"];

/// Builds the image once.
fn with_image(machine: Machine) -> Machine {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let output = sim(&["build"]).finish().expect("rampart starts");
        let text = stdout(&output, 0);
        assert!(text.contains("-rt-"), "{text}");
    });
    machine
}

/// Returns `rampart sim run OPTIONS -- COMMAND`.
fn run(options: &[&str], command: &[&str]) -> Command {
    sim(&[&["run"], options, &["--"], command].concat())
}

/// Returns the emulators that a process started.
fn emulators_of(parent: u32) -> Vec<u32> {
    let is_emulator = |process: &u32| {
        let name = fs::read_to_string(format!("/proc/{process}/comm"));
        name.is_ok_and(|name| name.starts_with("qemu-system"))
    };
    let children = children_of(parent).into_iter();
    children.filter(is_emulator).collect()
}

/// Checks what an evaluation needs, then uses the streams and the exit code of a command.
const INSPECT: &str = "set -e
    test -c /dev/kvm; grep -q '^kvm_amd ' /proc/modules
    test -c /dev/cpu_dma_latency
    test -d /sys/kernel/tracing/events/osnoise
    grep -qw cpuset /sys/fs/cgroup/cgroup.controllers
    test -r /boot/vmlinuz-$(uname -r)
    test -r /boot/vmlinux-$(uname -r)
    test \"$(hostname)\" = rampart-sim
    for program in runc stress-ng cyclictest oslat rtla qemu-system-x86_64 modprobe sshd; do
        command -v $program >/dev/null || { echo \"no $program\"; exit 1; }
    done
    modprobe tun
    test \"$(id -u)\" = 0
    touch /etc/written /usr/bin/written
    test \"$(stat -c %u /usr/bin/bash)\" = 0
    uname -a; cat /proc/cmdline; cat; echo to-stderr >&2; exit 7";

#[test]
fn a_command_runs_on_a_real_time_kernel_with_its_streams_and_exit_code() {
    let _machine = with_image(beside_others());
    // More than any buffer on the way.
    let sent = vec![b'~'; 3 << 20];
    let output = run(&["--own"], &["sh", "-c", INSPECT])
        .finish_within(Duration::from_secs(300), sent)
        .expect("rampart starts");
    let text = stdout(&output, 7);
    let without = text.replace('~', "");
    assert!(without.contains("PREEMPT_RT"), "{without}");
    assert!(
        without
            .contains("isolcpus=managed_irq,domain,1-4 nohz_full=1-4 rcu_nocbs=1-4 irqaffinity=0"),
        "{without}"
    );
    assert_eq!(text.len() - without.len(), 3 << 20, "input is lost");
    assert!(errors(&output).contains("to-stderr"), "{}", errors(&output));
}

#[test]
fn a_panic_ends_the_command_with_console_and_exit_code() {
    let _machine = with_image(beside_others());
    // The panic waits until the first line arrives, because output on its way is lost with the machine.
    let script = "echo before; read go; echo c > /proc/sysrq-trigger; sleep 1000";
    let mut command = run(&SMALL, &["sh", "-c", script]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = KillAtEnd(command.spawn().expect("started"));
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().expect("a pipe"))
        .read_line(&mut line)
        .expect("read");
    assert_eq!(line, "before\n");
    let mut go = child.0.stdin.take().expect("a pipe");
    go.write_all(b"go\n").expect("written");
    let status = ended(&mut child.0);
    let mut text = String::new();
    let mut errors = child.0.stderr.take().expect("a pipe");
    errors.read_to_string(&mut text).expect("read");
    assert_eq!(status.code(), Some(MACHINE_LOST), "{text}");
    assert!(text.contains("panicked"), "{text}");
    assert!(text.contains("Kernel panic - not syncing"), "{text}");
}

#[test]
fn a_boot_failure_ends_the_command_with_console_and_exit_code() {
    let _machine = with_image(beside_others());
    // Without a first process the kernel panics before the guest agent runs.
    let options = [&SMALL[..], &["--append", "rdinit=/nowhere root=/nowhere"]].concat();
    let output = finish(run(&options, &["true"]));
    assert_eq!(exit_code(&output), MACHINE_LOST, "{output:?}");
    let text = errors(&output);
    assert!(text.contains("guest-reset"), "{text}");
    assert!(text.contains("Kernel panic - not syncing"), "{text}");
}

#[test]
fn a_boot_timeout_ends_the_command_with_its_exit_code() {
    let _machine = with_image(beside_others());
    let options = [
        &SMALL[..],
        &[
            "--boot-timeout",
            "8",
            "--append",
            "rdinit=/carried/usr/bin/nothing init=/nothing panic=0",
        ],
    ]
    .concat();
    let output = finish(run(&options, &["true"]));
    assert_eq!(exit_code(&output), MACHINE_LOST, "{output:?}");
    assert!(errors(&output).contains("8 s"), "{}", errors(&output));
}

#[test]
fn detects_a_machine_that_hangs() {
    let machine = with_image(beside_others());
    let mut command = run(&SMALL, &["sh", "-c", "echo up; sleep 1000"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = KillAtEnd(command.spawn().expect("started"));
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().expect("a pipe"))
        .read_line(&mut line)
        .expect("read");
    // Stopping QEMU looks like a hang of every CPU with interrupts off.
    let emulator = emulators_of(child.0.id())[0];
    send(emulator, Signal::STOP);
    // Other tests may run: the machine uses no CPU, and detection takes a minute.
    drop(machine);
    let status = ended(&mut child.0);
    let mut text = String::new();
    let mut errors = child.0.stderr.take().expect("a pipe");
    errors.read_to_string(&mut text).expect("read");
    assert_eq!(status.code(), Some(MACHINE_LOST), "{text}");
    assert!(text.contains("has not responded"), "{text}");
    assert!(!is_alive(emulator));
}

#[test]
fn a_machine_with_a_disk_keeps_its_files_over_a_restart() {
    let _machine = with_image(only_machine_up());
    let location = tempfile::tempdir().expect("a directory");
    let disk = location.path().join("disk");
    let disk = disk.to_str().expect("text");
    let mut held = sim(&["up", "--cpus", "2", "--disk", disk]);
    let mut held = KillAtEnd(held.stderr(Stdio::piped()).spawn().expect("started"));
    let mut output = BufReader::new(held.0.stderr.take().expect("a pipe")).lines();
    let mut next = || output.next().expect("a line").expect("text");
    assert!(next().contains("is up after"));
    let script = "grep -q isolcpus=managed_irq,domain,1 /proc/cmdline
        echo kept > /var/lib/rampart/kept
        sed -i 's/append.*/& restarted=yes/' /boot/extlinux/extlinux.conf
        reboot
        sleep 60";
    let lost = finish(run(&[], &["sh", "-ec", script]));
    assert_eq!(exit_code(&lost), MACHINE_LOST, "{lost:?}");
    assert!(next().contains("restarts"));
    assert!(next().contains("is up after"));
    let script = "cat /var/lib/rampart/kept /proc/cmdline";
    let text = stdout(&finish(run(&[], &["sh", "-c", script])), 0);
    assert!(text.starts_with("kept\n"), "{text}");
    assert!(
        text.contains("domain,1 ") && text.contains(" restarted=yes -- "),
        "{text}"
    );
    assert_eq!(exit_code(&finish(sim(&["down"]))), 0);
    assert_eq!(ended(&mut held.0).code(), Some(0));
    assert_eq!(
        exit_code(&finish(sim(&["down"]))),
        MISSING,
        "a machine is up"
    );
}

#[test]
fn a_signal_ends_a_boot() {
    let _machine = with_image(only_machine_up());
    let mut held = KillAtEnd(
        sim(&["up", "--no-snapshot"])
            .stderr(Stdio::null())
            .spawn()
            .expect("started"),
    );
    wait_until("the emulator starts", || {
        !emulators_of(held.0.id()).is_empty()
    });
    let emulator = emulators_of(held.0.id())[0];
    send(held.0.id(), Signal::INT);
    let code = ended(&mut held.0).code();
    assert_eq!(code, Some(5));
    wait_until("the emulator ends", || !is_alive(emulator));
}

/// Copies programs and image to a directory of an unprivileged user, and returns the command.
fn copy_for_unprivileged(to: &Path) -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").expect("HOME")).join(".cache"),
        PathBuf::from,
    );
    let images = cache.join("rampart/sim").join(std::env::consts::ARCH);
    let current = images.join("current");
    let identity = fs::read_link(&current).expect("an image");
    let target = to.join("cache/rampart/sim").join(std::env::consts::ARCH);
    let commands = [
        vec!["mkdir".into(), "-p".into(), target.clone().into_os_string()],
        vec![
            "cp".into(),
            "-a".into(),
            current.into_os_string(),
            images.join(identity).into_os_string(),
            target.into_os_string(),
        ],
        vec![
            "cp".into(),
            directory().join("rampart").into_os_string(),
            directory().join("rampart-meter").into_os_string(),
            to.as_os_str().to_owned(),
        ],
        vec![
            "chown".into(),
            "-R".into(),
            "65534:65534".into(),
            to.as_os_str().to_owned(),
        ],
    ];
    for words in commands {
        let status = Command::new(&words[0])
            .args(&words[1..])
            .status()
            .expect("started");
        assert!(status.success(), "{words:?}");
    }
    to.join("rampart")
}

/// Returns `rampart sim run` as an unprivileged user.
fn without_root(home: &Path, command: &[&str]) -> Command {
    let words = [&["sim", "run"], &SMALL[..], &["--"], command].concat();
    let mut whole = if rustix::process::geteuid().is_root() {
        let mut setpriv = Command::new("setpriv");
        setpriv
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(copy_for_unprivileged(home))
            .env("XDG_CACHE_HOME", home.join("cache"))
            .env("HOME", home);
        setpriv
    } else {
        left_out(
            "the simulated machine as another user: it needs root; the other tests ran without root",
        );
        Command::new(directory().join("rampart"))
    };
    whole
        .args(words)
        .env_remove("RAMPART_METER")
        .current_dir("/")
        .stdin(Stdio::null());
    whole
}

#[test]
fn needs_no_root_and_no_emulator_survives_a_killed_command() {
    let _machine = with_image(beside_others());
    let home = tempfile::Builder::new()
        .prefix("sim")
        .tempdir_in("/tmp")
        .expect("a directory");
    let mut command = without_root(home.path(), &["sh", "-c", "id -u; echo up; sleep 1000"]);
    let mut child = KillAtEnd(command.stdout(Stdio::piped()).spawn().expect("started"));
    let mut output = BufReader::new(child.0.stdout.take().expect("a pipe")).lines();
    let mut next = || output.next().expect("a line").expect("text");
    assert_eq!((&*next(), &*next()), ("0", "up"));
    let emulators = emulators_of(child.0.id());
    assert_eq!(emulators.len(), 1, "{emulators:?}");
    child.0.kill().expect("killed with SIGKILL");
    ended(&mut child.0);
    wait_until("the emulator ends", || !is_alive(emulators[0]));
}

#[test]
fn refuses_meaningless_requests_before_the_start() {
    let refused = finish(run(
        &["--own", "--cpus", "2", "--real-time-cpus", "0-1"],
        &["true"],
    ));
    assert_eq!(exit_code(&refused), 2, "{refused:?}");
    assert!(errors(&refused).contains("CPU 0"), "{}", errors(&refused));
    // A pipe is no terminal.
    let file = File::open("/dev/null").expect("opened");
    let output = sim(&["shell", "--own"])
        .stdin(file)
        .finish()
        .expect("started");
    assert_eq!(exit_code(&output), 2, "{output:?}");
}
