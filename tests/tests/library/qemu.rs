// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The real `qemu-system-x86_64` with its software emulation, without a guest.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rampart_qemu::{Qemu, QemuError};
use serde_json::json;

const PROGRAM: &str = "qemu-system-x86_64";
const TIMEOUT: Duration = Duration::from_secs(30);

/// Environment variable that makes this test's program the parent to be killed.
const PARENT: &str = "RAMPART_TEST_QEMU_DIRECTORY";

fn arguments(more: &[&str]) -> Vec<OsString> {
    ["-nodefaults", "-machine", "none", "-S"]
        .iter()
        .chain(more)
        .map(OsString::from)
        .collect()
}

fn is_alive(process: u32) -> bool {
    // A zombie counts as dead.
    fs::read_to_string(format!("/proc/{process}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}

fn wait_until_dead(process: u32) -> bool {
    let deadline = Instant::now() + TIMEOUT;
    while is_alive(process) {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

#[test]
fn starts_answers_and_ends() {
    let directory = tempfile::tempdir().expect("a directory");
    let qemu = Qemu::start(PROGRAM, arguments(&[]), directory.path()).expect("started");
    let status = qemu
        .qmp()
        .execute("query-status", json!({}))
        .expect("answered");
    assert_eq!(status["running"], json!(false), "{status}");
    let error = qemu
        .qmp()
        .execute("no-such-command", json!({}))
        .expect_err("refused");
    assert!(error.to_string().contains("CommandNotFound"), "{error}");
    let process = qemu.process();
    assert!(is_alive(process));
    qemu.end();
    assert!(!is_alive(process));
}

#[test]
fn delivers_events() {
    let directory = tempfile::tempdir().expect("a directory");
    let qemu = Qemu::start(PROGRAM, arguments(&[]), directory.path()).expect("started");
    qemu.qmp().execute("cont", json!({})).expect("runs");
    let names: Vec<_> = std::iter::from_fn(|| qemu.qmp().next_event(TIMEOUT))
        .map(|event| event.name)
        .take(1)
        .collect();
    assert_eq!(names, ["RESUME"]);
}

#[test]
fn reports_a_wrong_argument() {
    let directory = tempfile::tempdir().expect("a directory");
    let error = Qemu::start(
        PROGRAM,
        arguments(&["-device", "warp-drive"]),
        directory.path(),
    )
    .expect_err("no such device");
    assert!(matches!(error, QemuError::EndedAtOnce { .. }), "{error}");
    assert!(error.to_string().contains("warp-drive"), "{error}");
}

#[test]
fn reports_a_missing_program() {
    let directory = tempfile::tempdir().expect("a directory");
    let error = Qemu::start("/nowhere/qemu", Vec::new(), directory.path()).expect_err("missing");
    assert!(error.to_string().contains("/nowhere/qemu"), "{error}");
}

#[test]
fn kills_qemu_when_dropped() {
    let directory = tempfile::tempdir().expect("a directory");
    let qemu = Qemu::start(PROGRAM, arguments(&[]), directory.path()).expect("started");
    let process = qemu.process();
    drop(qemu);
    assert!(!is_alive(process));
}

/// Not a test by itself: the parent that the next test kills.
#[test]
fn parent_that_is_killed() {
    let Some(directory) = std::env::var_os(PARENT) else {
        return;
    };
    // From a thread that ends at once: QEMU must live as long as the process, not the thread.
    let directory = Path::new(&directory).to_owned();
    let qemu = thread::spawn(move || Qemu::start(PROGRAM, arguments(&[]), &directory))
        .join()
        .expect("joined")
        .expect("started");
    thread::sleep(Duration::from_millis(200));
    assert!(is_alive(qemu.process()));
    writeln!(std::io::stderr(), "qemu {}", qemu.process()).expect("written");
    thread::sleep(TIMEOUT);
}

#[test]
fn does_not_outlive_a_killed_parent() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut parent = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "qemu::parent_that_is_killed", "--nocapture"])
        .env(PARENT, directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let errors = parent.stderr.take().expect("a pipe");
    let process = BufReader::new(errors)
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("qemu ").and_then(|id| id.parse().ok()))
        .expect("its number");
    assert!(is_alive(process));
    parent.kill().expect("killed with SIGKILL");
    parent.wait().expect("waited for");
    assert!(
        wait_until_dead(process),
        "QEMU {process} outlives its parent"
    );
}
