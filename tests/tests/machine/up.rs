// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart up` and `rampart down`: programs under their supervisors, in control groups that each
//! test makes for itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rampart_model::{CpuSet, SupervisedDomain, SupervisedState};
use rampart_tests::limited::Limited as _;
use rampart_tests::programs::{exit_code, left_out, machine, rampart, stdout};
use rampart_tests::standing::{Group, stand};

const MACHINE: &str = "[machine]\nhousekeeping = \"0\"\npolicy = \"warn\"\n";

fn run(state: &Path, arguments: &[&str]) -> Output {
    rampart(state, arguments).finish().expect("rampart starts")
}

/// Ends everything that was started, however the test ends.
struct Down<'a>(&'a Path);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        let _ = rampart(self.0, &["down", "--within", "1s"]).finish();
    }
}

fn record(state: &Path, name: &str) -> SupervisedDomain {
    let text = fs::read(state.join(format!("domains/{name}.json"))).expect("a record");
    serde_json::from_slice(&text).expect("a domain")
}

/// The record as soon as it is as wanted.
fn await_record(
    state: &Path,
    name: &str,
    wanted: impl Fn(&SupervisedDomain) -> bool,
) -> SupervisedDomain {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let record = record(state, name);
        if wanted(&record) {
            return record;
        }
        assert!(Instant::now() < end, "{record:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a file says as soon as that is in it.
fn await_text(path: &Path, wanted: &str) -> String {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let text = fs::read_to_string(path).unwrap_or_default();
        if text.contains(wanted) {
            return text;
        }
        assert!(Instant::now() < end, "{wanted} is not in: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn program(record: &SupervisedDomain) -> u32 {
    record.program.expect("it runs").process
}

fn allowed(process: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("alive");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .expect("its CPUs");
    line.trim().to_owned()
}

fn is_alive(process: u32) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn kill(signal: &str, process: u32) {
    let status = Command::new("kill")
        .args([signal, &process.to_string()])
        .status();
    assert!(status.is_ok_and(|status| status.success()));
}

#[test]
fn starts_restarts_places_and_ends_a_task() {
    let Some(_machine) = machine("a task is started, restarted and ended", 2) else {
        return;
    };
    let cpus: CpuSet = "1".parse().expect("CPUs");
    let Some(group) = Group::make("a task is started, restarted and ended", "up", &cpus) else {
        return;
    };
    let directory = tempfile::tempdir().expect("directory");
    let state = directory.path();
    let plan = format!(
        "{MACHINE}
[[domain]]
name = \"press\"
kind = \"task\"
cpus = \"1\"
policy = {{ fifo = 7 }}
restart = \"on-failure\"
run = [\"sh\", \"-c\", \"echo told; sleep 600 & wait\"]
threads = [{{ match = \"slee*\", policy = {{ rr = 3 }} }}]

[[domain]]
name = \"idle\"
kind = \"host\"
"
    );
    stand(state, &plan, &[("press", &group)]);
    let _down = Down(state);
    let output = run(state, &["up"]);
    let text = stdout(&output, 0);
    assert!(
        text.contains("press  running") && !text.contains("idle"),
        "{text}"
    );
    let first = record(state, "press");
    assert_eq!(first.state, SupervisedState::Running);
    assert!(first.findings.is_empty(), "{first:?}");
    assert!(group.has(program(&first)), "it is in its group");
    assert_eq!(allowed(program(&first)), "1");
    assert_eq!(allowed(first.supervisor.process), "0", "on housekeeping");
    assert!(!group.has(first.supervisor.process));
    let log = fs::read_to_string(&first.log).expect("log");
    assert!(log.lines().any(|line| line == "told"), "{log}");
    let again = stdout(&run(state, &["up", "press"]), 0);
    assert!(again.contains("is up"), "{again}");
    refuse(state, &["up", "moon"], 2, "no domain `moon`");
    let nothing = run(state, &["up", "idle"]);
    assert!(
        stdout(&nothing, 4).contains("names no program"),
        "{nothing:?}"
    );

    // The thread that appeared later has its own policy.
    let end = Instant::now() + Duration::from_secs(30);
    let process = program(&first);
    let policy = || {
        let children = format!("/proc/{process}/task/{process}/children");
        let children = fs::read_to_string(children).unwrap_or_default();
        let child = children.split_whitespace().next().unwrap_or("0").to_owned();
        let said = Command::new("chrt").args(["-p", &child]).output();
        String::from_utf8_lossy(&said.expect("chrt").stdout).into_owned()
    };
    while !policy().contains("SCHED_RR") {
        assert!(Instant::now() < end, "{}", policy());
        std::thread::sleep(Duration::from_millis(50));
    }

    // A program that was killed comes back.
    let children = format!("/proc/{process}/task/{process}/children");
    let child = fs::read_to_string(children).expect("children");
    let child = child.trim().to_owned();
    assert!(group.has(child.parse().expect("one child")), "{child}");
    kill("-KILL", process);
    let second = await_record(state, "press", |record| {
        record.restarts == 1 && record.state == SupervisedState::Running
    });
    assert_ne!(program(&second), process);
    assert!(group.has(program(&second)));
    assert!(
        !group.has(child.parse().expect("one child")),
        "what the killed one had started ended with it"
    );
    let last = second.last_exit.as_ref().expect("an end");
    assert!(
        last.status.contains("signal: 9") && !last.success,
        "{last:?}"
    );

    // Where its record cannot be written, as on a full disk, it is watched all the same.
    let in_the_way = state.join("domains/.press.json.rampart-new");
    fs::create_dir(&in_the_way).expect("a directory");
    kill("-KILL", program(&second));
    let log = await_text(Path::new(&second.log), "cannot write the domain");
    assert!(log.contains("supervised anyway"), "{log}");
    assert!(is_alive(second.supervisor.process), "{log}");
    fs::remove_dir(&in_the_way).expect("removed");
    let second = await_record(state, "press", |record| {
        record.restarts == 2 && record.state == SupervisedState::Running
    });
    assert!(group.has(program(&second)));

    let down = run(state, &["down", "press"]);
    assert!(stdout(&down, 0).contains("signal: 15"), "{down:?}");
    let ended = record(state, "press");
    assert_eq!(
        (ended.state, ended.program),
        (SupervisedState::Stopped, None)
    );
    assert!(!is_alive(program(&second)) && !is_alive(ended.supervisor.process));
    let again = run(state, &["down", "press"]);
    assert!(stdout(&again, 0).contains("was down"), "{again:?}");
}

fn refuse(state: &Path, arguments: &[&str], code: i32, named: &str) {
    let output = run(state, arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(exit_code(&output), code, "{output:?}");
    assert!(said.contains(named), "{said}");
}

#[test]
fn reports_a_killed_supervisor_and_ends_its_program() {
    let Some(_machine) = machine("a killed supervisor is told", 2) else {
        return;
    };
    let directory = tempfile::tempdir().expect("directory");
    let state = directory.path();
    // It does not end by itself when it is asked to.
    let plan = format!(
        "{MACHINE}
[[domain]]
name = \"stubborn\"
kind = \"host\"
run = [\"sh\", \"-c\", \"trap '' TERM; while :; do sleep 1; done\"]

[[domain]]
name = \"lost\"
kind = \"host\"
run = [\"/nowhere/program\"]

[[domain]]
name = \"short\"
kind = \"host\"
run = [\"sh\", \"-c\", \"exit 3\"]
"
    );
    stand(state, &plan, &[]);
    let _down = Down(state);
    // From a `down` whose supervisor had no program to end.
    let domains = state.join("domains");
    fs::create_dir(&domains).expect("a directory");
    fs::write(domains.join("stubborn.limit"), "1").expect("a limit");
    let output = run(state, &["up"]);
    assert!(
        !domains.join("stubborn.limit").exists(),
        "it is none of its"
    );
    let text = stdout(&output, 5);
    assert!(text.contains("stubborn  running"), "{text}");
    assert!(text.contains("cannot start /nowhere/program:"), "{text}");
    let short = await_record(state, "short", |record| {
        record.state == SupervisedState::Ended
    });
    let last = short.last_exit.expect("an end");
    assert_eq!(
        (last.status.as_str(), last.success),
        ("exit status: 3", false)
    );
    assert_eq!(record(state, "lost").state, SupervisedState::Failed);
    let known = record(state, "stubborn");
    kill("-KILL", known.supervisor.process);
    let end = Instant::now() + Duration::from_secs(30);
    while is_alive(known.supervisor.process) {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(is_alive(program(&known)), "it goes on");
    let up = run(state, &["up", "stubborn"]);
    assert!(stdout(&up, 4).contains("runs unsupervised"), "{up:?}");
    let down = run(state, &["down", "stubborn", "--within", "300ms"]);
    assert!(stdout(&down, 0).contains("SIGKILL"), "{down:?}");
    assert!(!is_alive(program(&known)));
}

/// A root directory with `sleep` and what it is linked with.
fn root_with_sleep(directory: &Path) -> Option<PathBuf> {
    let root = directory.join("root");
    let linked = Command::new("ldd").arg("/bin/sleep").output().ok()?;
    let text = String::from_utf8_lossy(&linked.stdout).into_owned();
    let files = text.split_whitespace().filter(|word| word.starts_with('/'));
    for file in files.chain(["/bin/sleep"]) {
        let target = root.join(file.trim_start_matches('/'));
        fs::create_dir_all(target.parent()?).ok()?;
        fs::copy(file, target).ok()?;
    }
    for name in ["proc", "dev", "sys"] {
        fs::create_dir_all(root.join(name)).ok()?;
    }
    Some(root)
}

#[test]
fn a_container_runs_isolated() {
    let Some(_machine) = machine("a container runs behind the wall", 2) else {
        return;
    };
    let cpus: CpuSet = "1".parse().expect("CPUs");
    let Some(group) = Group::make("a container runs behind the wall", "box", &cpus) else {
        return;
    };
    let directory = tempfile::tempdir().expect("directory");
    let state = directory.path();
    let Some(root) = root_with_sleep(state) else {
        left_out("a container runs behind the wall: /bin/sleep and its libraries cannot be copied");
        return;
    };
    let plan = format!(
        "{MACHINE}
[[domain]]
name = \"box\"
kind = \"container\"
cpus = \"1\"
policy = {{ fifo = 5 }}
container = {{ rootfs = \"{}\" }}
run = [\"/bin/sleep\", \"600\"]
",
        root.display()
    );
    stand(state, &plan, &[("box", &group)]);
    let _down = Down(state);
    let output = run(state, &["up"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if text.contains("not installed") {
        left_out(&format!(
            "a container runs behind the wall: {}",
            text.trim()
        ));
        return;
    }
    assert_eq!(exit_code(&output), 0, "{output:?}");
    let known = record(state, "box");
    let process = program(&known);
    assert_eq!(allowed(process), "1");
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).expect("groups");
    assert!(
        groups.contains(&format!(":{}/rampart-box", group.told())),
        "{groups}"
    );
    let said = Command::new("chrt")
        .args(["-p", &process.to_string()])
        .output();
    let said = String::from_utf8_lossy(&said.expect("chrt").stdout).into_owned();
    assert!(
        said.contains("SCHED_FIFO") && said.contains("priority: 5"),
        "{said}"
    );
    // Even one that nobody watches over is ended by its engine.
    kill("-KILL", known.supervisor.process);
    let down = run(state, &["down", "--within", "500ms"]);
    assert!(stdout(&down, 0).contains("its runtime"), "{down:?}");
    assert!(!is_alive(process));
}
