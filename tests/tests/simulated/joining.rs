// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated machine that is up: commands that join it, ssh through a forwarded port, and a crash in an
//! evaluation over ssh.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};
use std::thread;

use rampart_model::{
    Bench, Check, Evaluation, EvaluationState, Measurement, Question, Status, VerdictOutcome,
};
use rampart_tests::limited::{Limited as _, ended};
use rampart_tests::processes::KillAtEnd;
use rampart_tests::programs::{assert_refused, evaluation, exit_code, only_machine_up, stdout};
use rampart_tests::simulated::{MACHINE_LOST, MISSING, finish, rampart, sim};

fn run(command: &[&str]) -> Command {
    sim(&[&["run", "--"], command].concat())
}

/// A machine that is up, with an ssh server.
struct Machine {
    home: tempfile::TempDir,
    held: KillAtEnd,
    output: BufReader<ChildStderr>,
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
        let mut output = BufReader::new(held.0.stderr.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("read");
        assert!(line.contains("is up after"), "{line}");
        let server = serve_ssh(home.path(), port);
        Self {
            home,
            held,
            output,
            server,
        }
    }
}

#[test]
fn a_running_machine_serves_many_commands_and_ssh() {
    let _only = only_machine_up();
    let mut machine = Machine::up();
    assert_eq!(
        exit_code(&finish(sim(&["up"]))),
        1,
        "a second machine is refused"
    );
    serves_several_commands();
    applies_a_plan(machine.home.path());
    measures_over_ssh(machine.home.path());
    measures_a_detached_thread_over_ssh(machine.home.path());
    drop(machine.server);
    assert_eq!(exit_code(&finish(sim(&["down"]))), 0);
    assert_eq!(ended(&mut machine.held.0).code(), Some(0));
    assert_eq!(
        exit_code(&finish(sim(&["down"]))),
        MISSING,
        "a machine is up"
    );
    // Without a machine that stays, a plan would be lost.
    let plan = machine.home.path().join("plan.toml");
    let refused = finish(rampart(&[
        "apply",
        plan.to_str().expect("UTF-8"),
        "--on",
        "sim",
    ]));
    assert_refused(&refused, MISSING, &["rampart sim up"]);
}

#[test]
fn a_machine_is_crashed_over_ssh() {
    let _only = only_machine_up();
    let mut machine = Machine::up();
    crash_over_ssh(machine.home.path());
    drop(machine.server);
    assert_eq!(ended(&mut machine.held.0).code(), Some(MACHINE_LOST));
    let mut rest = String::new();
    machine.output.read_to_string(&mut rest).expect("read");
    assert!(rest.contains("kernel panicked"), "{rest}");
    // The last lines of the console; their number differs.
    let console = |line: &str| line.trim_start().starts_with("[ ");
    assert!(rest.lines().any(console), "{rest}");
}

/// Runs commands while one stays.
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
    // Both commands ran in the same machine.
    assert_eq!(stdout(&finish(run(&["cat", "/tmp/kept"])), 0), "kept\n");
    let below = Command::new("pgrep")
        .args(["-P", &staying.0.id().to_string()])
        .finish()
        .expect("pgrep starts");
    assert_eq!(
        exit_code(&below),
        1,
        "the command started its own machine: {below:?}"
    );
    staying.0.kill().expect("killed");
    ended(&mut staying.0);
    let script = "while pgrep -x sleep; do sleep 0.2; done";
    let gone = finish(run(&["timeout", "60", "sh", "-c", script]));
    assert!(
        exit_code(&gone) == 0,
        "the program of the killed command still runs: {gone:?}"
    );
}

/// Applies a plan in the machine, where later commands find it, and takes it back.
fn applies_a_plan(home: &Path) {
    let plan = home.join("plan.toml");
    fs::write(
        &plan,
        "[[domain]]\nname = \"press\"\nkind = \"task\"\ncpus = \"1-4\"\n",
    )
    .expect("written");
    let plan = plan.to_str().expect("UTF-8");
    let on_sim = |arguments: &[&str]| finish(rampart(&[arguments, &["--on", "sim"]].concat()));
    let active = || {
        // Without a plan its exit code depends on what runs on the CPUs that the command line isolates.
        let output = on_sim(&["status", "--json"]);
        let status: Status = serde_json::from_slice(&output.stdout).expect("a status");
        status.plan
    };
    assert!(active().is_none());
    let check: Check =
        serde_json::from_slice(&on_sim(&["check", "--json"]).stdout).expect("a check");
    assert!(check.machine.kernel_release.contains("-rt-"), "{check:?}");
    assert!(stdout(&on_sim(&["knobs"]), 0).contains("preempt-rt"));
    let proposed = stdout(&on_sim(&["plan", "propose"]), 0);
    assert!(proposed.contains("[[domain]]"), "{proposed}");
    let checked = on_sim(&["plan", "check", plan]);
    assert_eq!(exit_code(&checked), 0, "{checked:?}");
    let applied = on_sim(&["apply", plan]);
    assert!([0, 5].contains(&exit_code(&applied)), "{applied:?}");
    // It names the file here, of which the machine has no copy.
    let file = active().expect("a plan").file;
    assert!(file.ends_with(&format!(":{plan}")), "{file}");
    assert_eq!(exit_code(&on_sim(&["release"])), 0);
    assert!(active().is_none());
    let left = stdout(&finish(run(&["sh", "-c", "ls /tmp"])), 0);
    assert!(!left.contains("rampart-bench"), "programs are left: {left}");
}

/// Runs an ssh server in the machine, which accepts the key from standard input. It stays in the foreground,
/// because the processes of a command end with it.
const SERVER: &str = "ssh-keygen -q -A && mkdir -p /run/sshd && cat > /run/sshd/keys \
    && exec /usr/sbin/sshd -D -e -o AuthorizedKeysFile=/run/sshd/keys";

/// Starts the server, and writes a command `ssh` to `home` that connects to it for any host name.
fn serve_ssh(home: &Path, port: u16) -> KillAtEnd {
    let key = home.join("key");
    let output = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&key)
        .finish()
        .expect("ssh-keygen starts");
    assert!(output.status.success(), "{output:?}");
    let public = File::open(key.with_extension("pub")).expect("the key");
    let mut server = run(&["sh", "-c", SERVER]);
    server.stdin(public).stderr(Stdio::piped());
    let mut server = KillAtEnd(server.spawn().expect("rampart starts"));
    let log = BufReader::new(server.0.stderr.take().expect("a pipe")).lines();
    let listens = |line: &io::Result<String>| {
        line.as_ref()
            .is_ok_and(|line| line.contains("listening on 0.0.0.0"))
    };
    let mut log = log.skip_while(move |line| !listens(line));
    assert!(log.next().is_some(), "the server does not listen");
    // A full pipe would stop the server.
    thread::spawn(move || log.for_each(drop));

    // The system's ssh, with the options of this test.
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

/// Returns `rampart ARGUMENTS --on` the machine, with the `ssh` in `home`.
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

/// The fixed work quantum of docs/detached.md on another machine.
fn measures_a_detached_thread_over_ssh(home: &Path) {
    let arguments = ["measure", "fwq", "--domain", "detached", "--cpus", "2"];
    let rest = ["--for", "2s", "--json", "--show-progress", "none"];
    let output = finish(over_ssh(home, &[&arguments[..], &rest].concat()));
    let text = stdout(&output, 0);
    let measurement: Measurement = serde_json::from_str(&text).expect("a measurement");
    let counts = measurement.detached.expect("the driver's counts");
    assert_eq!((counts.interrupts, counts.system_calls), (0, 0), "{text}");
    assert!(measurement.threads.iter().all(|one| one.samples > 10));
}

/// Crashes the kernel, which does not restart. The evaluation is complete, with its measurements and the last sign
/// of life of each domain.
fn crash_over_ssh(home: &Path) {
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
    assert_measured_before(&evaluation);
    let crash = evaluation.crash.as_ref().expect("a crash");
    let confirmed = crash.confirmed.as_deref().expect("a confirmation");
    assert!(
        confirmed.contains("accepts no new connection"),
        "{confirmed}"
    );
    for domain in ["host", "task"] {
        let witness = crash.witnesses.iter().find(|one| one.domain == domain);
        let witness = witness.unwrap_or_else(|| panic!("no witness {domain}: {crash:?}"));
        let lived = witness.lived.expect("a last sign of life").0;
        let verdict = evaluation
            .verdicts
            .iter()
            .find(|verdict| verdict.question == Question::Crash && verdict.domain == domain)
            .unwrap_or_else(|| panic!("no verdict on the crash in {domain}"));
        let statement = &verdict.statement;
        // On a busy host a domain may be silent for longer than its margin before the crash. The figures and the
        // verdict have to agree then, too.
        let margin = i64::try_from(witness.uncertainty.0).expect("a time");
        let expected = if lived < -margin {
            VerdictOutcome::Inconclusive
        } else {
            VerdictOutcome::Fails
        };
        assert_eq!(verdict.outcome, expected, "{statement}: {witness:?}");
    }
    assert!(text.contains("Crash of the host"), "{text}");
    assert!(results.join("report.html").is_file());
    assert!(
        !results.join("crash.json").exists(),
        "the signs of life are not only in the document"
    );
}

fn assert_measured_before(evaluation: &Evaluation) {
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
