// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulated machine, as `rampart sim` has it.
//!
//! The image is this user's own, in the usual cache: it is made once, which needs a network, and
//! then serves every test. One machine at a time: two would share the CPUs of a small host.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rampart_model::Measurement;
use rampart_tests::limited::{Limited as _, ended};
use rampart_tests::programs::{directory, exit_code, left_out, stdout};

/// Far longer than anything here takes; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(300);

/// A machine was lost (`ExitCode::MachineLost`).
const MACHINE_LOST: i32 = 6;

/// Two CPUs are enough for what is not about CPUs, and boot faster.
const SMALL: [&str; 3] = ["--own", "--cpus", "2"];

/// The image is there, and no other test of this file has a machine.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    static BUILT: OnceLock<()> = OnceLock::new();
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    BUILT.get_or_init(|| {
        let output = sim(&["build"]).finish().expect("rampart starts");
        let text = stdout(&output, 0);
        assert!(text.contains("-rt-"), "{text}");
    });
    guard
}

fn sim(arguments: &[&str]) -> Command {
    let mut command = Command::new(directory().join("rampart"));
    command
        .arg("sim")
        .args(arguments)
        .env_remove("RAMPART_METER")
        .stdin(Stdio::null());
    command
}

/// `rampart sim run OPTIONS -- COMMAND`.
fn run(options: &[&str], command: &[&str]) -> Command {
    sim(&[&["run"], options, &["--"], command].concat())
}

fn finish(mut command: Command) -> Output {
    command.finish().expect("rampart starts")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The emulators below a process.
fn emulators_of(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("processes").flatten() {
        let Some(process) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // Behind the name, which stands in brackets: state and parent (proc_pid_stat(5)).
        let Some((name, rest)) = stat.rsplit_once(')') else {
            continue;
        };
        let parent_of_it = rest
            .split_whitespace()
            .nth(1)
            .and_then(|id| id.parse().ok());
        if parent_of_it == Some(parent) && name.contains("(qemu-system") {
            found.push(process);
        }
    }
    found
}

fn is_alive(process: u32) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Ends what a failed test left.
struct KillAtEnd(Child);

impl Drop for KillAtEnd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_command_runs_on_a_real_time_kernel_with_its_streams_and_status() {
    let _alone = alone();
    let script = "uname -a; cat /proc/cmdline; cat; echo away >&2; exit 7";
    // More than any buffer in between.
    let sent = vec![b'x'; 3 << 20];
    let output = run(&["--own"], &["sh", "-c", script])
        .finish_within(Duration::from_secs(300), sent.clone())
        .expect("rampart starts");
    let text = stdout(&output, 7);
    assert!(text.contains("PREEMPT_RT"), "{}", &text[..200]);
    assert!(
        text.contains("isolcpus=managed_irq,domain,1-4 nohz_full=1-4 rcu_nocbs=1-4 irqaffinity=0"),
        "{}",
        &text[..400]
    );
    assert_eq!(
        text.matches('x').count() - text[..1000].matches('x').count(),
        {
            let head = 1000 - text.find("xxxx").expect("input comes back");
            (3 << 20) - head
        }
    );
    assert!(errors(&output).contains("away"), "{}", errors(&output));
}

#[test]
fn what_an_evaluation_needs_is_there() {
    let _alone = alone();
    let script = "set -e
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
        echo complete";
    let output = finish(run(&SMALL, &["sh", "-c", script]));
    assert!(stdout(&output, 0).contains("complete"), "{output:?}");
}

#[test]
fn no_emulator_outlives_a_command_that_is_killed() {
    let _alone = alone();
    let mut command = run(&SMALL, &["sh", "-c", "echo up; sleep 1000"]);
    let mut child = KillAtEnd(command.stdout(Stdio::piped()).spawn().expect("started"));
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().expect("a pipe"))
        .read_line(&mut line)
        .expect("read");
    assert_eq!(line, "up\n");
    let emulators = emulators_of(child.0.id());
    assert_eq!(emulators.len(), 1, "{emulators:?}");
    child.0.kill().expect("killed with SIGKILL");
    ended(&mut child.0);
    wait_for("the emulator ends", || !is_alive(emulators[0]));
}

#[test]
fn a_panic_ends_the_command_with_the_console_and_its_code() {
    let _alone = alone();
    let script = "echo before; echo c > /proc/sysrq-trigger; sleep 1000";
    let output = finish(run(&SMALL, &["sh", "-c", script]));
    assert_eq!(exit_code(&output), MACHINE_LOST, "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "before\n");
    let text = errors(&output);
    assert!(text.contains("panicked"), "{text}");
    assert!(text.contains("Kernel panic - not syncing"), "{text}");
}

#[test]
fn a_kernel_that_cannot_boot_ends_the_command_with_the_console_and_its_code() {
    let _alone = alone();
    // No first process: the kernel panics before anybody could tell of it.
    let options = [&SMALL[..], &["--append", "rdinit=/nowhere root=/nowhere"]].concat();
    let output = finish(run(&options, &["true"]));
    assert_eq!(exit_code(&output), MACHINE_LOST, "{output:?}");
    let text = errors(&output);
    assert!(text.contains("guest-reset"), "{text}");
    assert!(text.contains("Kernel panic - not syncing"), "{text}");
}

#[test]
fn a_machine_that_never_comes_up_ends_the_command_with_its_code() {
    let _alone = alone();
    let options = [
        &SMALL[..],
        &[
            "--patience",
            "20",
            "--append",
            "rdinit=/carried/usr/bin/nothing init=/nothing panic=0",
        ],
    ]
    .concat();
    let output = finish(run(&options, &["true"]));
    assert_eq!(exit_code(&output), MACHINE_LOST, "{output:?}");
    assert!(errors(&output).contains("20 s"), "{}", errors(&output));
}

#[test]
fn a_machine_that_hangs_is_noticed() {
    let alone = alone();
    let mut command = run(&SMALL, &["sh", "-c", "echo up; sleep 1000"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = KillAtEnd(command.spawn().expect("started"));
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().expect("a pipe"))
        .read_line(&mut line)
        .expect("read");
    // Stopped as a whole: to us as if every CPU hung with its interrupts off.
    let emulator = emulators_of(child.0.id())[0];
    signal(emulator, rustix::process::Signal::STOP);
    // It takes no CPU any more, and a minute until somebody notices.
    drop(alone);
    let status = ended(&mut child.0);
    let mut text = String::new();
    let mut errors = child.0.stderr.take().expect("a pipe");
    errors.read_to_string(&mut text).expect("read");
    assert_eq!(status.code(), Some(MACHINE_LOST), "{text}");
    assert!(text.contains("hung"), "{text}");
    assert!(!is_alive(emulator));
}

fn signal(process: u32, signal: rustix::process::Signal) {
    let process = i32::try_from(process)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(process.expect("a process"), signal).expect("signalled");
}

#[test]
fn a_machine_that_is_up_serves_several_commands_until_it_is_taken_down() {
    let _alone = alone();
    let mut held = KillAtEnd(
        sim(&["up"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("started"),
    );
    let mut line = String::new();
    BufReader::new(held.0.stderr.take().expect("a pipe"))
        .read_line(&mut line)
        .expect("read");
    assert!(line.contains("is up after"), "{line}");
    assert_eq!(exit_code(&finish(sim(&["up"]))), 1, "a second is refused");

    // One of them stays while others come and go.
    let mut staying = run(&[], &["sh", "-c", "echo here; sleep 1000"]);
    let mut staying = KillAtEnd(staying.stdout(Stdio::piped()).spawn().expect("started"));
    let mut here = String::new();
    BufReader::new(staying.0.stdout.take().expect("a pipe"))
        .read_line(&mut here)
        .expect("read");
    assert_eq!(here, "here\n");
    let kept = finish(run(&[], &["sh", "-c", "echo kept > /tmp/kept"]));
    assert_eq!(exit_code(&kept), 0, "{kept:?}");
    assert_eq!(
        stdout(&finish(run(&[], &["cat", "/tmp/kept"])), 0),
        "kept\n"
    );
    assert!(emulators_of(staying.0.id()).is_empty(), "it has joined");
    staying.0.kill().expect("killed");
    ended(&mut staying.0);
    let script = "while pgrep -x sleep; do sleep 0.2; done";
    let gone = finish(run(&[], &["timeout", "60", "sh", "-c", script]));
    assert!(
        exit_code(&gone) == 0,
        "the program of who left has ended: {gone:?}"
    );

    assert_eq!(exit_code(&finish(sim(&["down"]))), 0);
    assert_eq!(ended(&mut held.0).code(), Some(0));
    assert_eq!(exit_code(&finish(sim(&["down"]))), 4, "none is up");
}

#[test]
fn a_machine_with_a_disk_restarts_with_what_it_wrote() {
    let _alone = alone();
    let place = tempfile::tempdir().expect("a directory");
    let disk = place.path().join("disk");
    let disk = disk.to_str().expect("text");
    let mut held = sim(&["up", "--cpus", "2", "--disk", disk]);
    let mut held = KillAtEnd(held.stderr(Stdio::piped()).spawn().expect("started"));
    let mut said = BufReader::new(held.0.stderr.take().expect("a pipe")).lines();
    let mut next = || said.next().expect("a line").expect("text");
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
}

#[test]
fn a_signal_ends_a_boot() {
    let _alone = alone();
    let mut held = KillAtEnd(sim(&["up"]).stderr(Stdio::null()).spawn().expect("started"));
    wait_for("the emulator starts", || {
        !emulators_of(held.0.id()).is_empty()
    });
    let emulator = emulators_of(held.0.id())[0];
    signal(held.0.id(), rustix::process::Signal::INT);
    let code = ended(&mut held.0).code();
    assert_eq!(code, Some(5));
    wait_for("the emulator ends", || !is_alive(emulator));
}

/// Copies what a user of that name needs to boot: programs, and the image as its own cache.
fn copy_for_nobody(to: &Path) -> PathBuf {
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
            "nobody".into(),
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

#[test]
fn it_needs_no_root() {
    let _alone = alone();
    if !rustix::process::geteuid().is_root() {
        left_out("the simulated machine without root: its other tests are without root already");
        return;
    }
    let home = tempfile::Builder::new()
        .prefix("sim")
        .tempdir_in("/tmp")
        .expect("a directory");
    let program = copy_for_nobody(home.path());
    let mut command = Command::new("runuser");
    command
        .args(["-u", "nobody", "--"])
        .arg(program)
        .args(["sim", "run"])
        .args(SMALL)
        .args(["--", "id", "-u"])
        .env("XDG_CACHE_HOME", home.path().join("cache"))
        .env("HOME", home.path())
        .env_remove("RAMPART_METER")
        .current_dir("/")
        .stdin(Stdio::null());
    let output = finish(command);
    assert_eq!(stdout(&output, 0), "0\n");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_starts() {
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

/// A server for ssh in the machine, which lets in the key that comes on standard input. It stays
/// in front: what a command leaves behind ends with it.
const SERVER: &str = "ssh-keygen -q -A && mkdir -p /run/sshd && cat > /run/sshd/keys \
    && exec /usr/sbin/sshd -D -e -o AuthorizedKeysFile=/run/sshd/keys";

#[test]
fn it_is_reached_by_ssh_through_a_forwarded_port() {
    let _alone = alone();
    let home = tempfile::tempdir().expect("a directory");
    let key = home.path().join("key");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&key)
        .finish()
        .expect("ssh-keygen starts");
    assert!(made.status.success(), "{made:?}");
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port")
        .port();
    let mut held = sim(&["up", "--forward", &format!("{port}:22")]);
    let mut held = KillAtEnd(held.stderr(Stdio::piped()).spawn().expect("started"));
    let mut line = String::new();
    BufReader::new(held.0.stderr.take().expect("a pipe"))
        .read_line(&mut line)
        .expect("read");
    assert!(line.contains("is up after"), "{line}");
    let public = File::open(key.with_extension("pub")).expect("the key");
    let mut server = run(&[], &["sh", "-c", SERVER]);
    server.stdin(public).stderr(Stdio::piped());
    let mut server = KillAtEnd(server.spawn().expect("rampart starts"));
    let said = BufReader::new(server.0.stderr.take().expect("a pipe")).lines();
    let listens = |line: &io::Result<String>| {
        line.as_ref()
            .is_ok_and(|line| line.contains("listening on 0.0.0.0"))
    };
    let mut said = said.skip_while(move |line| !listens(line));
    assert!(said.next().is_some(), "it listens");
    // Somebody has to go on reading what it says.
    thread::spawn(move || said.for_each(drop));

    // The real ssh, with a user's configuration that is ours.
    let wrapper = format!(
        "#!/bin/sh\nexec /usr/bin/ssh -F /dev/null -p {port} -i {} -o IdentitiesOnly=yes \
         -o StrictHostKeyChecking=accept-new -o UserKnownHostsFile={} \"$@\"\n",
        key.display(),
        home.path().join("known").display(),
    );
    fs::write(home.path().join("ssh"), wrapper).expect("written");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(home.path().join("ssh"), executable).expect("mode");
    let path = std::env::var("PATH").expect("a path");
    let mut there = Command::new(directory().join("rampart"));
    there
        .args([
            "measure", "wakeup", "--cpus", "1-4", "--for", "1s", "--json",
        ])
        .args(["--show-progress", "none", "--on", "ssh:root@127.0.0.1"])
        .env("PATH", format!("{}:{path}", home.path().display()))
        .env_remove("RAMPART_METER");
    let text = stdout(&finish(there), 0);
    let measurement: Measurement = serde_json::from_str(&text).expect("a measurement");
    let cpus: Vec<u32> = measurement.threads.iter().map(|one| one.cpu.0).collect();
    assert_eq!(cpus, [1, 2, 3, 4], "{text}");
    assert!(measurement.threads.iter().all(|one| one.samples > 10));
    assert_eq!(exit_code(&finish(sim(&["down"]))), 0);
    ended(&mut held.0);
}
