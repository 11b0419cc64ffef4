// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated machine that is up, for everything that needs one: commands that join it, ssh through a
//! port that leads into it, and its crash in an evaluation over ssh.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};
use std::thread;

use rampart_model::{Bench, Evaluation, EvaluationState, Measurement, Question, VerdictOutcome};
use rampart_tests::limited::{Limited as _, ended};
use rampart_tests::programs::{alone, evaluation, exit_code, stdout};
use rampart_tests::simulated::{KillAtEnd, MACHINE_LOST, MISSING, finish, rampart, sim};

/// Nobody measures for longer than this when the kernel below is dead.
const AT_ONCE: i64 = 2_000_000_000;

fn run(command: &[&str]) -> Command {
    sim(&[&["run", "--"], command].concat())
}

/// A machine that is up and that ssh reaches.
struct Machine {
    home: tempfile::TempDir,
    held: KillAtEnd,
    said: BufReader<ChildStderr>,
    server: KillAtEnd,
}

impl Machine {
    fn up() -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a port")
            .port();
        let mut held = sim(&["up", "--forward", &format!("{port}:22")]);
        let mut held = KillAtEnd(held.stderr(Stdio::piped()).spawn().expect("started"));
        let mut said = BufReader::new(held.0.stderr.take().expect("a pipe"));
        let mut line = String::new();
        said.read_line(&mut line).expect("read");
        assert!(line.contains("is up after"), "{line}");
        let server = serve_ssh(home.path(), port);
        Self {
            home,
            held,
            said,
            server,
        }
    }
}

#[test]
fn a_running_machine_serves_many_commands_and_ssh() {
    let _alone = alone();
    let mut machine = Machine::up();
    assert_eq!(exit_code(&finish(sim(&["up"]))), 1, "a second is refused");
    serves_several_commands();
    measures_over_ssh(machine.home.path());
    drop(machine.server);
    assert_eq!(exit_code(&finish(sim(&["down"]))), 0);
    assert_eq!(ended(&mut machine.held.0).code(), Some(0));
    assert_eq!(exit_code(&finish(sim(&["down"]))), MISSING, "none is up");
}

#[test]
#[ignore = "a busy host makes the machine silent before it crashes; make test-long runs it"]
fn a_machine_is_crashed_over_ssh() {
    let _alone = alone();
    let mut machine = Machine::up();
    is_crashed_over_ssh(machine.home.path());
    drop(machine.server);
    assert_eq!(ended(&mut machine.held.0).code(), Some(MACHINE_LOST));
    let mut rest = String::new();
    machine.said.read_to_string(&mut rest).expect("read");
    assert!(rest.contains("kernel panicked"), "{rest}");
    // With the last lines of its console; how many lines the kernel says after the cause differs.
    let console = |line: &str| line.trim_start().starts_with("[ ");
    assert!(rest.lines().any(console), "{rest}");
}

/// One of them stays while others come and go.
fn serves_several_commands() {
    let mut staying = run(&["sh", "-c", "echo here; sleep 1000"]);
    let mut staying = KillAtEnd(staying.stdout(Stdio::piped()).spawn().expect("started"));
    let mut here = String::new();
    BufReader::new(staying.0.stdout.take().expect("a pipe"))
        .read_line(&mut here)
        .expect("read");
    assert_eq!(here, "here\n");
    let kept = finish(run(&["sh", "-c", "echo kept > /tmp/kept"]));
    assert_eq!(exit_code(&kept), 0, "{kept:?}");
    // It would not be there if this were another machine.
    assert_eq!(stdout(&finish(run(&["cat", "/tmp/kept"])), 0), "kept\n");
    let below = Command::new("pgrep")
        .args(["-P", &staying.0.id().to_string()])
        .finish()
        .expect("pgrep starts");
    assert_eq!(exit_code(&below), 1, "it has joined: {below:?}");
    staying.0.kill().expect("killed");
    ended(&mut staying.0);
    let script = "while pgrep -x sleep; do sleep 0.2; done";
    let gone = finish(run(&["timeout", "60", "sh", "-c", script]));
    assert!(
        exit_code(&gone) == 0,
        "the program of who left has ended: {gone:?}"
    );
}

/// A server for ssh in the machine, which lets in the key that comes on standard input. It stays
/// in front: what a command leaves behind ends with it.
const SERVER: &str = "ssh-keygen -q -A && mkdir -p /run/sshd && cat > /run/sshd/keys \
    && exec /usr/sbin/sshd -D -e -o AuthorizedKeysFile=/run/sshd/keys";

/// Starts it, and makes an `ssh` in `home` that finds it under any name.
fn serve_ssh(home: &Path, port: u16) -> KillAtEnd {
    let key = home.join("key");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&key)
        .finish()
        .expect("ssh-keygen starts");
    assert!(made.status.success(), "{made:?}");
    let public = File::open(key.with_extension("pub")).expect("the key");
    let mut server = run(&["sh", "-c", SERVER]);
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
        home.join("known").display(),
    );
    fs::write(home.join("ssh"), wrapper).expect("written");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(home.join("ssh"), executable).expect("mode");
    server
}

/// `rampart ARGUMENTS --on` the machine, by the `ssh` in `home`.
fn over_ssh(home: &Path, arguments: &[&str]) -> Command {
    let path = std::env::var("PATH").expect("a path");
    let mut there = rampart(arguments);
    there
        .args(["--on", "ssh:root@127.0.0.1"])
        .env("PATH", format!("{}:{path}", home.display()));
    there
}

fn measures_over_ssh(home: &Path) {
    let there = over_ssh(
        home,
        &[
            "measure",
            "wakeup",
            "--cpus",
            "1-4",
            "--for",
            "1s",
            "--json",
            "--show-progress",
            "none",
        ],
    );
    let text = stdout(&finish(there), 0);
    let measurement: Measurement = serde_json::from_str(&text).expect("a measurement");
    let cpus: Vec<u32> = measurement.threads.iter().map(|one| one.cpu.0).collect();
    assert_eq!(cpus, [1, 2, 3, 4], "{text}");
    assert!(measurement.threads.iter().all(|one| one.samples > 10));
}

/// Its kernel panics for good: no machine answers any more. What was measured is here, with until when
/// each domain lived, and the evaluation is complete.
fn is_crashed_over_ssh(home: &Path) {
    let results = home.join("results");
    let output = over_ssh(
        home,
        &[
            "evaluate",
            "--domains",
            "host,task",
            "--loads",
            "idle",
            "--disturb",
            "crash:host",
            "--allow-crash",
            "--for",
            "16s",
            "--show-progress",
            "lines",
            "--out",
            results.to_str().expect("a path in UTF-8"),
        ],
    );
    let output = finish(output);
    let text = stdout(&output, 0);
    let evaluation = evaluation(&results);
    assert!(
        matches!(&evaluation.bench, Bench::Ssh { host } if host == "root@127.0.0.1"),
        "{:?}",
        evaluation.bench
    );
    assert_eq!(evaluation.state, EvaluationState::Complete);
    was_measured_before(&evaluation);
    let crash = evaluation.crash.as_ref().expect("the host was crashed");
    let who = crash.confirmed.as_deref().expect("somebody knows");
    assert!(who.contains("answers no new connection"), "{who}");
    for domain in ["host", "task"] {
        let witness = crash.witnesses.iter().find(|one| one.domain == domain);
        let witness = witness.unwrap_or_else(|| panic!("no witness {domain}: {crash:?}"));
        let lived = witness.lived.expect("it measured").0;
        assert!(lived <= AT_ONCE, "{witness:?}");
        let verdict = evaluation
            .verdicts
            .iter()
            .find(|verdict| verdict.question == Question::Crash && verdict.domain == domain)
            .unwrap_or_else(|| panic!("no verdict on the crash in {domain}"));
        let statement = &verdict.statement;
        // On a host that is busy with much else a domain may be silent for long before: then its end
        // proves nothing, and that is what is said.
        let silent = lived < -AT_ONCE && verdict.outcome == VerdictOutcome::Inconclusive;
        assert!(
            silent || verdict.outcome == VerdictOutcome::Fails,
            "{statement}"
        );
    }
    assert!(text.contains("Crash of the host"), "{text}");
    assert!(results.join("report.html").is_file());
    assert!(
        !results.join("crash.json").exists(),
        "signs of life are in the document"
    );
}

fn was_measured_before(evaluation: &Evaluation) {
    let ids: Vec<&str> = evaluation
        .records
        .iter()
        .map(|record| record.id.as_str())
        .collect();
    assert_eq!(ids, ["host/wakeup/idle", "task/wakeup/idle"]);
    for record in &evaluation.records {
        assert!(record.exposure.samples > 0, "{}", record.id);
    }
}
