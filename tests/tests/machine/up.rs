// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart up` and `rampart down`: supervised programs, in control groups that each test creates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rampart_model::{CpuSet, SupervisedDomain, SupervisedState};
use rampart_tests::active_plan::{ControlGroup, activate};
use rampart_tests::limited::{Limited as _, wait_until};
use rampart_tests::processes::{allowed_cpus, children_of, is_alive, send};
use rampart_tests::programs::{assert_refused, exit_code, left_out, machine, rampart, stdout};
use rustix::process::Signal;

const MACHINE: &str = "[machine]\nhousekeeping = \"0\"\npolicy = \"warn\"\n";

fn run(state: &Path, arguments: &[&str]) -> Output {
    rampart(state, arguments).finish().expect("rampart starts")
}

/// Runs `rampart down` when dropped, also after a failed test.
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

/// Waits until the record satisfies a condition, and returns it.
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

/// Waits until a file contains a text, and returns its content.
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
    record.program.expect("a running program").process
}

/// Returns the scheduling policy as chrt(1) prints it.
fn policy(process: u32) -> String {
    let output = Command::new("chrt")
        .args(["-p", &process.to_string()])
        .output();
    String::from_utf8_lossy(&output.expect("chrt").stdout).into_owned()
}

#[test]
fn starts_restarts_places_and_ends_a_task() {
    let Some(_machine) = machine("a task is started, restarted and ended", 2) else {
        return;
    };
    let cpus: CpuSet = "1".parse().expect("CPUs");
    let Some(group) = ControlGroup::create("a task is started, restarted and ended", "up", &cpus)
    else {
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
run = [\"sh\", \"-c\", \"echo printed; sleep 600 & wait\"]
threads = [{{ match = \"slee*\", policy = {{ rr = 3 }} }}]

[[domain]]
name = \"idle\"
kind = \"host\"
"
    );
    activate(state, &plan, &[("press", &group)]);
    let _down = Down(state);
    let output = run(state, &["up"]);
    let text = stdout(&output, 0);
    assert!(
        text.contains("press: running") && !text.contains("idle"),
        "{text}"
    );
    let first = record(state, "press");
    assert_eq!(first.state, SupervisedState::Running);
    assert!(first.findings.is_empty(), "{first:?}");
    assert!(group.contains(program(&first)), "not in its group");
    assert_eq!(allowed_cpus(program(&first)), "1");
    assert_eq!(
        allowed_cpus(first.supervisor.process),
        "0",
        "not on housekeeping"
    );
    assert!(!group.contains(first.supervisor.process));
    let log = fs::read_to_string(&first.log).expect("log");
    assert!(log.lines().any(|line| line == "printed"), "{log}");
    let again = stdout(&run(state, &["up", "press"]), 0);
    assert!(again.contains("is up"), "{again}");
    assert_refused(&run(state, &["up", "moon"]), 2, &["no domain `moon`"]);
    let nothing = run(state, &["up", "idle"]);
    assert!(
        stdout(&nothing, 4).contains("names no program"),
        "{nothing:?}"
    );

    // A thread that starts later gets its own policy.
    let process = program(&first);
    wait_until("the child has SCHED_RR", || {
        let children = children_of(process);
        children
            .iter()
            .any(|child| policy(*child).contains("SCHED_RR"))
    });

    // A killed program is restarted.
    let [child] = children_of(process)[..] else {
        panic!("not one child");
    };
    assert!(group.contains(child), "{child}");
    send(process, Signal::KILL);
    let second = await_record(state, "press", |record| {
        record.restarts == 1 && record.state == SupervisedState::Running
    });
    assert_ne!(program(&second), process);
    assert!(group.contains(program(&second)));
    assert!(
        !group.contains(child),
        "a child of the killed program still runs"
    );
    let last = second.last_exit.as_ref().expect("an end");
    assert!(
        last.status.contains("signal: 9") && !last.success,
        "{last:?}"
    );

    // It is supervised even if its record cannot be written, as on a full disk.
    let obstacle = state.join("domains/.press.json.rampart-new");
    fs::create_dir(&obstacle).expect("a directory");
    send(program(&second), Signal::KILL);
    let log = await_text(Path::new(&second.log), "cannot write the domain");
    assert!(log.contains("supervised anyway"), "{log}");
    assert!(is_alive(second.supervisor.process), "{log}");
    fs::remove_dir(&obstacle).expect("removed");
    let second = await_record(state, "press", |record| {
        record.restarts == 2 && record.state == SupervisedState::Running
    });
    assert!(group.contains(program(&second)));

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

#[test]
fn reports_a_killed_supervisor_and_ends_its_program() {
    let Some(_machine) = machine("a killed supervisor", 2) else {
        return;
    };
    let directory = tempfile::tempdir().expect("directory");
    let state = directory.path();
    // `stubborn` ignores SIGTERM.
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
    activate(state, &plan, &[]);
    let _down = Down(state);
    // The limit of an earlier `down` whose supervisor had no program.
    let domains = state.join("domains");
    fs::create_dir(&domains).expect("a directory");
    fs::write(domains.join("stubborn.limit"), "1").expect("a limit");
    let output = run(state, &["up"]);
    assert!(
        !domains.join("stubborn.limit").exists(),
        "the old limit is kept"
    );
    let text = stdout(&output, 5);
    assert!(text.contains("stubborn: running"), "{text}");
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
    send(known.supervisor.process, Signal::KILL);
    wait_until("the supervisor ends", || {
        !is_alive(known.supervisor.process)
    });
    assert!(is_alive(program(&known)), "the program ended");
    let up = run(state, &["up", "stubborn"]);
    assert!(stdout(&up, 4).contains("runs unsupervised"), "{up:?}");
    let down = run(state, &["down", "stubborn", "--within", "300ms"]);
    assert!(stdout(&down, 0).contains("SIGKILL"), "{down:?}");
    assert!(!is_alive(program(&known)));
}

/// Creates a root directory with `sleep` and its libraries.
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
    let Some(_machine) = machine("a container runs isolated", 2) else {
        return;
    };
    let cpus: CpuSet = "1".parse().expect("CPUs");
    let Some(group) = ControlGroup::create("a container runs isolated", "box", &cpus) else {
        return;
    };
    let directory = tempfile::tempdir().expect("directory");
    let state = directory.path();
    let Some(root) = root_with_sleep(state) else {
        left_out("a container runs isolated: /bin/sleep and its libraries cannot be copied");
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
    activate(state, &plan, &[("box", &group)]);
    let _down = Down(state);
    let output = run(state, &["up"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if text.contains("not installed") {
        left_out(&format!("a container runs isolated: {}", text.trim()));
        return;
    }
    assert_eq!(exit_code(&output), 0, "{output:?}");
    let known = record(state, "box");
    let process = program(&known);
    assert_eq!(allowed_cpus(process), "1");
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).expect("groups");
    assert!(
        groups.contains(&format!(":{}/rampart-box", group.proc_line())),
        "{groups}"
    );
    let policy = policy(process);
    assert!(
        policy.contains("SCHED_FIFO") && policy.contains("priority: 5"),
        "{policy}"
    );
    // Without a supervisor `down` ends it through its container runtime.
    send(known.supervisor.process, Signal::KILL);
    let down = run(state, &["down", "--within", "500ms"]);
    assert!(stdout(&down, 0).contains("its runtime"), "{down:?}");
    assert!(!is_alive(process));
}
