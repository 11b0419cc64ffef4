// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Another machine over ssh: the system's ssh and an sshd of the test on the loopback address.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rampart_model::{Bench, Check, Evaluation, EvaluationState, Status};
use rampart_tests::limited::{Limited as _, ended, finished, wait_until};
use rampart_tests::processes::KillAtEnd;
use rampart_tests::programs::{
    alone, assert_refused, directory, exit_code, left_out, stderr, stdout,
};

/// Time limit for the first result of an evaluation.
const LIMIT: Duration = Duration::from_secs(240);

/// The other machine: `board` in the configuration of ssh.
struct Server {
    sshd: KillAtEnd,
    scratch: tempfile::TempDir,
}

impl Server {
    /// Returns `None`, and reports it, if there is no sshd.
    fn start() -> Option<Self> {
        let found = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"]
            .into_iter()
            .find(|path| Path::new(path).exists());
        let Some(program) = found else {
            left_out("a bench over ssh: sshd is not installed (apt-get install openssh-server)");
            return None;
        };
        let scratch = tempfile::tempdir().expect("a directory");
        let path = |name: &str| scratch.path().join(name);
        for key in ["host_key", "key", "stranger"] {
            let status = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(path(key))
                .status();
            assert!(status.expect("ssh-keygen").success());
        }
        fs::copy(path("key.pub"), path("authorized")).expect("copied");
        fs::create_dir(path("there")).expect("a directory");
        fs::create_dir(path("bin")).expect("a directory");
        // sshd as root needs this directory for its unprivileged process.
        let _ = fs::create_dir_all("/run/sshd");
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a port")
            .port();
        let there = path("there").display().to_string();
        let configuration = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n\
             KbdInteractiveAuthentication no\nSetEnv TMPDIR={there} RAMPART_STATE_DIR={there}/.state\n",
            path("host_key").display(),
            path("authorized").display(),
        );
        fs::write(path("sshd_config"), configuration).expect("written");
        let common = format!(
            "HostName 127.0.0.1\nPort {port}\nUserKnownHostsFile {}\nStrictHostKeyChecking accept-new\nIdentitiesOnly yes\n",
            path("known_hosts").display()
        );
        let configuration = format!(
            "Host board\n{common}IdentityFile {}\nHost stranger\n{common}IdentityFile {}\n\
             Host impostor\n{common}HostKeyAlias impostor\nIdentityFile {}\n",
            path("key").display(),
            path("stranger").display(),
            path("key").display(),
        );
        fs::write(path("ssh_config"), configuration).expect("written");
        // The system's ssh, with the configuration of this test.
        let wrapper = format!(
            "#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n",
            path("ssh_config").display()
        );
        fs::write(path("bin/ssh"), wrapper).expect("written");
        fs::set_permissions(path("bin/ssh"), fs::Permissions::from_mode(0o755)).expect("mode");
        let sshd = Command::new(program)
            .args(["-D", "-e", "-f"])
            .arg(path("sshd_config"))
            .stderr(File::create(path("sshd.log")).expect("a log"))
            .spawn()
            .expect("sshd");
        let server = Self {
            sshd: KillAtEnd(sshd),
            scratch,
        };
        wait_until("sshd listens", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Some(server)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn rampart(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(directory().join("rampart"));
        let path = std::env::var("PATH").expect("a path");
        command
            .args(arguments)
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .stdin(Stdio::null());
        command
    }

    /// Returns the files of Rampart on the other machine, and the programs that run from there.
    fn remains(&self) -> Vec<String> {
        let there = self.path("there");
        let mut left: Vec<String> = fs::read_dir(&there)
            .expect("listed")
            .flatten()
            .map(|entry| entry.path().display().to_string())
            .filter(|path| !path.ends_with(".state"))
            .collect();
        let there = there.display().to_string();
        for process in fs::read_dir("/proc").expect("listed").flatten() {
            let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if line.contains(&there) {
                left.push(line);
            }
        }
        left
    }

    fn assert_clean(&self) {
        wait_until("nothing is left on the other machine", || {
            self.remains().is_empty()
        });
    }

    /// Starts an evaluation, and waits for the result of its first run.
    fn long_evaluation(&self, out: &Path) -> Child {
        let mut command = self.rampart(&[
            "evaluate",
            "--on",
            "ssh:board",
            "--for",
            "10m",
            "--domains",
            "host",
            "--loads",
            "idle,cpu@others",
            "--disturb",
            "none",
            "--show-progress",
            "none",
            "--out",
        ]);
        // Many entries of the matrix make the runs short.
        command.arg(out).args(["--meters", "wakeup,loop"]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("rampart");
        let limit = Instant::now() + LIMIT;
        while Instant::now() < limit {
            let logs = fs::read_dir(out.join("histograms")).map_or(0, Iterator::count);
            if logs > 0 && document(out).is_some() {
                return child;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        child.kill().expect("killed");
        ended(&mut child);
        panic!("no result within {} s", LIMIT.as_secs());
    }
}

fn document(out: &Path) -> Option<Evaluation> {
    serde_json::from_slice(&fs::read(out.join("evaluation.json")).ok()?).ok()
}

fn finish(child: Child) -> (i32, String) {
    let output = finished(child);
    (exit_code(&output), stderr(&output))
}

#[test]
fn an_evaluation_runs_remotely_and_copies_its_results() {
    let Some(server) = Server::start() else {
        return;
    };
    // The other machine is this one.
    let _machine = alone();
    let out = server.path("out");
    let output = server
        .rampart(&[
            "evaluate",
            "--on=ssh:board",
            "--for",
            "2s",
            "--domains",
            "host",
            "--loads",
            "idle",
            "--disturb",
            "none",
            "--json",
            "--out",
        ])
        .arg(&out)
        .finish()
        .expect("rampart");
    let printed: Evaluation = serde_json::from_str(&stdout(&output, 0)).expect("a document");
    let written = document(&out).expect("a document");
    assert_eq!(printed, written);
    assert_eq!(written.state, EvaluationState::Complete);
    let host = "board".to_owned();
    assert_eq!(written.bench, Bench::Ssh { host });
    assert!(written.command.iter().any(|word| word == "--on=ssh:board"));
    let page = fs::read_to_string(out.join("report.html")).expect("a page");
    assert!(page.contains("<html"));
    // Each run has its whole log.
    for run in written.records.iter().flat_map(|record| &record.runs) {
        let log = fs::read_to_string(out.join(&run.histogram_log)).expect("a log");
        assert!(log.lines().any(|line| line.starts_with("Tag=")), "{log}");
    }
    let progress = stderr(&output);
    assert!(progress.contains("runs 1–"), "{progress}");
    server.assert_clean();
}

#[test]
fn other_commands_run_remotely_too() {
    let Some(server) = Server::start() else {
        return;
    };
    let output = server
        .rampart(&["domains", "--json", "--on", "ssh:board"])
        .finish();
    let there = stdout(&output.expect("rampart"), 0);
    let output = server.rampart(&["domains", "--json"]).finish();
    let here = stdout(&output.expect("rampart"), 0);
    assert_eq!(here.lines().count(), there.lines().count());
    // Exit codes and errors are relayed.
    let output = server
        .rampart(&["measure", "wakeup", "--cpus", "999", "--on", "ssh:board"])
        .finish()
        .expect("rampart");
    assert_eq!(exit_code(&output), 4, "{output:?}");
    assert!(stderr(&output).contains("999"));
    let output = server
        .rampart(&["measure", "wakeup", "--csv", "x", "--on", "ssh:board"])
        .finish()
        .expect("rampart");
    assert_eq!(exit_code(&output), 2, "{output:?}");
    server.assert_clean();
}

/// The user's key, configuration and jump host, without a change of the system's configuration.
#[test]
fn a_command_for_ssh_names_key_configuration_and_jump_host() {
    let Some(server) = Server::start() else {
        return;
    };
    let configuration = server.path("ssh_config").display().to_string();
    let run = |ssh: &str, machine: &str| {
        Command::new(directory().join("rampart"))
            .args(["domains", "--json", "--on", machine])
            .env("RAMPART_SSH", ssh)
            .stdin(Stdio::null())
            .finish()
            .expect("rampart")
    };
    // The jump host is the same server, which has to forward.
    let jump = format!("ssh -F '{configuration}' -J board");
    let output = run(&jump, "ssh:board");
    assert!(stdout(&output, 0).contains("\"host\""), "{output:?}");
    // `stranger` has another key in the configuration.
    let key = server.path("key").display().to_string();
    let with_key = format!("ssh -F '{configuration}' -i '{key}'");
    let output = run(&with_key, "ssh:stranger");
    assert!(stdout(&output, 0).contains("\"host\""), "{output:?}");
    let without_key = format!("ssh -F '{configuration}'");
    let fix = format!("see the cause with `{without_key} stranger true`");
    assert_refused(
        &run(&without_key, "ssh:stranger"),
        4,
        &["Permission denied", &fix],
    );
    server.assert_clean();
}

/// A plan that changes nothing of the machine but is active on it.
const PLAN: &str =
    "[machine]\nhousekeeping = \"0\"\npolicy = \"warn\"\n[host]\ndefault = \"skip\"\n";

#[test]
fn a_plan_from_here_is_applied_there() {
    let Some(server) = Server::start() else {
        return;
    };
    let own_state = tempfile::tempdir().expect("a directory");
    let run = |arguments: &[&str]| {
        server
            .rampart(&[arguments, &["--on", "ssh:board"]].concat())
            .env("RAMPART_STATE_DIR", own_state.path())
            .finish()
            .expect("rampart")
    };
    let check: Check =
        serde_json::from_slice(&run(&["check", "--json", "--cpus", "N"]).stdout).expect("a check");
    assert_eq!(check.real_time.len(), 1);
    let knob = stdout(&run(&["knobs", "sched_rt_runtime_us"]), 0);
    assert!(
        knob.contains("real-time-throttling") && knob.contains("here"),
        "{knob}"
    );
    assert_refused(&run(&["knobs", "isolcpu"]), 2, &["scheduler-isolation"]);

    // Files are read and written here.
    let proposed = server.path("proposed.toml");
    let proposed = proposed.to_str().expect("UTF-8");
    let output = run(&["plan", "propose", "--out", proposed]);
    assert_eq!(exit_code(&output), 0, "{output:?}");
    assert!(stderr(&output).contains(&format!("plan check {proposed} --on ssh:board")));
    assert!(
        fs::read_to_string(proposed)
            .expect("a plan")
            .contains("[[domain]]")
    );
    assert_refused(
        &run(&["plan", "propose", "--out", proposed]),
        2,
        &["exists"],
    );
    let page = server.path("page.html");
    let shown = run(&[
        "plan",
        "show",
        proposed,
        "--html",
        page.to_str().expect("UTF-8"),
    ]);
    assert!(
        fs::read_to_string(&page).expect("a page").contains("<html"),
        "{shown:?}"
    );
    let plan = server.path("plan.toml");
    fs::write(&plan, "[[domain]]\nnam = \"x\"\n").expect("written");
    let file = plan.to_str().expect("UTF-8");
    let misspelt = format!("{file}:2:1");
    assert_refused(
        &run(&["plan", "check", file]),
        2,
        &[&misspelt, "write `name`"],
    );

    // The plan is active there, also for the next commands, and not here.
    fs::write(&plan, PLAN).expect("written");
    let applied = run(&["apply", file]);
    assert_eq!(exit_code(&applied), 0, "{applied:?}");
    assert!(server.path("there/.state/plan.json").exists());
    assert!(!own_state.path().join("plan.json").exists());
    let status: Status =
        serde_json::from_str(&stdout(&run(&["status", "--json"]), 0)).expect("a status");
    // It names the file here, of which the machine has no copy.
    let named = status.plan.expect("a plan").file;
    assert!(named.ends_with(&format!(":{file}")), "{named}");
    assert_refused(&run(&["apply", file]), 4, &["rampart release"]);
    assert_eq!(exit_code(&run(&["release"])), 0);
    assert!(!server.path("there/.state/plan.json").exists());
    let recorded = run(&["check", "--machine", "/"]);
    assert_refused(&recorded, 2, &["--machine"]);
    assert_refused(&run(&["status", "--watch"]), 2, &["terminal"]);
    server.assert_clean();
}

#[test]
fn reports_an_unreachable_machine_with_the_error_of_ssh() {
    let Some(server) = Server::start() else {
        return;
    };
    fs::write(
        server.path("known_hosts"),
        format!(
            "impostor {}",
            fs::read_to_string(server.path("stranger.pub")).expect("key")
        ),
    )
    .expect("written");
    for (host, words) in [
        ("nowhere.invalid", "nowhere.invalid"),
        ("stranger", "Permission denied"),
        ("impostor", "verification failed"),
    ] {
        let out = server.path("refused");
        let output = server
            .rampart(&["evaluate", "--on", &format!("ssh:{host}"), "--out"])
            .arg(&out)
            .finish()
            .expect("rampart");
        assert_eq!(exit_code(&output), 4, "{output:?}");
        let error = stderr(&output);
        assert!(
            error.contains(&format!("ssh:{host}")) && error.contains(words),
            "{error}"
        );
        assert!(!out.exists(), "an empty directory is left");
    }
    server.assert_clean();
}

#[test]
fn refuses_a_crash_unless_it_is_permitted() {
    let Some(server) = Server::start() else {
        return;
    };
    for bench in ["ssh:board", "local"] {
        let output = server
            .rampart(&["evaluate", "--disturb", "crash:host", "--on", bench])
            .current_dir(server.scratch.path())
            .finish()
            .expect("rampart");
        assert_eq!(exit_code(&output), 2, "{output:?}");
        assert!(stderr(&output).contains("--allow-crash"), "{output:?}");
    }
}

#[test]
fn keeps_measurements_from_before_a_lost_connection() {
    let Some(server) = Server::start() else {
        return;
    };
    // The other machine is this one.
    let _machine = alone();
    let out = server.path("lost");
    let child = server.long_evaluation(&out);
    // Killing sshd's process for the connection breaks the connection without a message.
    let sessions = Command::new("pgrep")
        .args(["-P", &server.sshd.0.id().to_string()])
        .finish()
        .expect("pgrep");
    let sessions = String::from_utf8(sessions.stdout).expect("numbers");
    assert!(!sessions.trim().is_empty(), "no session");
    for session in sessions.split_whitespace() {
        let killed = Command::new("kill").args(["-9", session]).status();
        assert!(killed.expect("kill").success());
    }
    let (code, errors) = finish(child);
    assert_eq!(code, 6, "{errors}");
    assert!(errors.contains("ssh:board"), "{errors}");
    let evaluation = document(&out).expect("a document");
    assert_ne!(evaluation.state, EvaluationState::Complete);
    assert!(
        evaluation
            .findings
            .iter()
            .any(|finding| finding.location == "bench"),
        "{:?}",
        evaluation.findings
    );
    assert!(out.join("report.html").exists());
    server.assert_clean();
}

#[test]
fn ctrl_c_ends_a_remote_run_and_keeps_its_measurements() {
    let Some(server) = Server::start() else {
        return;
    };
    // The other machine is this one.
    let _machine = alone();
    let out = server.path("early");
    let child = server.long_evaluation(&out);
    let interrupted = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(interrupted.expect("kill").success());
    let (code, errors) = finish(child);
    assert_eq!(code, 5, "{errors}");
    let evaluation = document(&out).expect("a document");
    assert_eq!(evaluation.state, EvaluationState::EndedEarly);
    assert!(out.join("report.html").exists());
    server.assert_clean();

    // A local rampart that is killed leaves nothing on the other machine either.
    let out = server.path("killed");
    let mut child = server.long_evaluation(&out);
    child.kill().expect("killed");
    ended(&mut child);
    assert!(document(&out).is_some());
    server.assert_clean();
}
