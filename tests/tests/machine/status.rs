// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart status` on this machine, without and with a plan: text, document, live view on a terminal, and metrics
//! for a real Prometheus.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rampart_model::{
    APPLICATION_SCHEMA_VERSION, ActiveDomain, ActivePlan, ActivePlanState, ChangeList,
    ChangeLocation, ChangeStep, ChangeTarget, CpuSet, DomainKind, IsolationMechanism, Nanos,
    ResolvedPlan, Status, StepAction, StepKind,
};
use rampart_tests::active_plan::ControlGroup;
use rampart_tests::documents::assert_fits;
use rampart_tests::limited::{Limited as _, wait_until};
use rampart_tests::processes::{KillAtEnd, send};
use rampart_tests::programs::{
    assert_refused, exit_code, left_out, machine, rampart, stdout, usable_cpus,
};
use rustix::process::Signal;

const LIMIT: Duration = Duration::from_secs(60);

fn run(state: &Path, arguments: &[&str]) -> Output {
    let arguments = [&["status", "--interval", "200ms"], arguments].concat();
    rampart(state, &arguments).finish().expect("rampart starts")
}

fn document(output: &Output, code: i32) -> Status {
    serde_json::from_str(&stdout(output, code)).expect("a status")
}

/// Returns an active plan in which the last CPU belongs to the task `press`, without isolation.
fn active_plan(state: &Path, boot: &str) -> ActivePlan {
    let cpus = usable_cpus();
    let last = cpus.iter().next_back().expect("a CPU");
    let housekeeping = cpus.difference(&CpuSet::single(last));
    let text = format!(
        "[machine]\nhousekeeping = \"{housekeeping}\"\n[[domain]]\nname = \"press\"\nkind = \"task\"\ncpus = \"{last}\"\nrun = [\"/bin/true\"]\n"
    );
    let file = state.join("plan.toml");
    std::fs::write(&file, &text).expect("the plan");
    let cpu = |cpu: rampart_model::CpuId, own: bool| rampart_model::CpuOwnership {
        cpu,
        owner: own.then(|| "press".to_owned()),
        role: if own {
            rampart_model::CpuRole::RealTime
        } else {
            rampart_model::CpuRole::Housekeeping
        },
        policy: None,
        node: None,
    };
    ActivePlan {
        schema_version: APPLICATION_SCHEMA_VERSION,
        tool_version: "0".to_owned(),
        state: ActivePlanState::Active,
        applied_at: Nanos::from_secs(1_700_000_000),
        boot: boot.to_owned(),
        file: file.display().to_string(),
        text,
        resolved: ResolvedPlan {
            tool_version: String::new(),
            schema_version: 1,
            fingerprint: "this machine".to_owned(),
            housekeeping,
            real_time: CpuSet::single(last),
            smt: Default::default(),
            cpus: cpus.iter().map(|one| cpu(one, one == last)).collect(),
            domains: Vec::new(),
            interrupts: Vec::new(),
            caches: Vec::new(),
            nodes: Vec::new(),
            host: Default::default(),
            boot: Default::default(),
            findings: Vec::new(),
        },
        domains: vec![ActiveDomain {
            name: "press".to_owned(),
            kind: DomainKind::Task,
            cpus: CpuSet::single(last),
            isolation: IsolationMechanism::AffinityOnly,
            partition: None,
            group: None,
            members: None,
            unified: false,
        }],
        changes: ChangeList {
            schema_version: APPLICATION_SCHEMA_VERSION,
            tool_version: "0".to_owned(),
            steps: vec![ChangeStep {
                kind: StepKind::Knob,
                name: "a-knob".to_owned(),
                title: String::new(),
                action: StepAction::Apply,
                why: String::new(),
                present: String::new(),
                wanted: String::new(),
                locations: vec![ChangeLocation {
                    target: ChangeTarget::CpuListFile(state.join("knob").display().to_string()),
                    location: "a knob".to_owned(),
                    present: String::new(),
                    value: "0,1".to_owned(),
                }],
                disruptive: None,
                fix: None,
                source: String::new(),
            }],
            boot_arguments: Vec::new(),
        },
        findings: Vec::new(),
        kept_interrupts: Vec::new(),
    }
}

fn this_boot() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("boot id");
    boot.trim().to_owned()
}

fn write(state: &Path, plan: &ActivePlan) {
    let text = serde_json::to_vec(plan).expect("JSON");
    std::fs::write(state.join("plan.json"), text).expect("plan.json");
    std::fs::write(state.join("knob"), "0-1\n").expect("the knob");
}

#[test]
fn reports_the_isolation_without_a_plan() {
    let state = tempfile::tempdir().expect("directory");
    let text = String::from_utf8(run(state.path(), &[]).stdout).expect("UTF-8");
    assert!(
        text.contains("No plan is active") && text.contains("isolated CPUs"),
        "{text}"
    );
    let output = run(state.path(), &["--json"]);
    let status: Status = serde_json::from_slice(&output.stdout).expect("a status");
    assert!(status.plan.is_none());
    // The machine that runs the tests may keep CPUs for real-time work, and something may disturb them.
    let expected = if status.is_as_expected() { 0 } else { 4 };
    assert_eq!(exit_code(&output), expected, "{status:#?}");
    assert!(status.division.is_some() || status.findings.is_empty());
    assert!(
        status
            .cpus
            .iter()
            .any(|cpu| cpu.interrupts_per_second > 0.0),
        "{status:#?}"
    );
    assert_fits("status", &serde_json::to_value(&status).expect("JSON"));
}

#[test]
fn drift_is_reported_by_rule_and_ends_with_4() {
    let state = tempfile::tempdir().expect("directory");
    let mut plan = active_plan(state.path(), &this_boot());
    let drift = |status: &Status| -> Vec<String> {
        let drift = status.of(rampart_model::StatusSubject::Drift);
        // The interrupts of the machine that runs the tests are not under test.
        drift
            .map(|finding| finding.rule().to_owned())
            .filter(|kind| *kind != "interrupt-moved")
            .collect()
    };
    let at = |code: Option<i32>| {
        let output = run(state.path(), &["--json"]);
        let code = code.unwrap_or_else(|| exit_code(&output));
        document(&output, code)
    };
    write(state.path(), &plan);
    let status = at(None);
    assert!(drift(&status).is_empty(), "{:#?}", status.findings);
    assert_eq!(status.domains[0].name, "press");

    std::fs::write(state.path().join("knob"), "0-3\n").expect("the knob");
    let status = at(Some(4));
    assert_eq!(drift(&status), ["value-changed"]);

    write(state.path(), &plan);
    plan.domains[0].group = Some("/sys/fs/cgroup/rampart-is-not-there".to_owned());
    write(state.path(), &plan);
    assert_eq!(drift(&at(Some(4))), ["group-gone"]);
    let text = stdout(&run(state.path(), &[]), 4);
    assert!(
        text.contains("BROKEN") && text.contains("rampart apply"),
        "{text}"
    );

    plan.boot = "another".to_owned();
    write(state.path(), &plan);
    assert_eq!(drift(&at(Some(4))), ["kernel-restarted"]);
}

#[test]
fn refuses_impossible_requests_with_a_fix() {
    let state = tempfile::tempdir().expect("directory");
    assert_refused(&run(state.path(), &["--watch"]), 2, &["fix: "]);
    let short = rampart(state.path(), &["status", "--interval", "1ms"])
        .finish()
        .expect("rampart");
    assert_refused(&short, 2, &["100ms to 1h"]);
    std::fs::write(state.path().join("plan.json"), "{").expect("plan.json");
    let broken = run(state.path(), &[]);
    assert_eq!(exit_code(&broken), 1);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("address").to_string();
    std::fs::remove_file(state.path().join("plan.json")).expect("removed");
    let refused = rampart(state.path(), &["status", "--serve", &address])
        .finish()
        .expect("rampart");
    assert_refused(&refused, 4, &["cannot listen on this address"]);
}

/// On a terminal of script(1), after a key and after a signal.
#[test]
fn the_view_restores_the_terminal() {
    if Command::new("script").arg("--version").output().is_err() {
        left_out("the view on a terminal: script(1) is not installed");
        return;
    }
    let state = tempfile::tempdir().expect("directory");
    let program = rampart_tests::programs::directory().join("rampart");
    for end in ["q", "TERM"] {
        let script = format!(
            "stty rows 24 cols 80; before=$(stty -g); {program} status --watch --no-meter --interval 100ms; \
             code=$?; [ \"$before\" = \"$(stty -g)\" ] && echo restored; echo code $code",
            program = program.display(),
        );
        let mut child = Command::new("script")
            .args(["--quiet", "--return", "--command", &script, "/dev/null"])
            .env("RAMPART_STATE_DIR", state.path())
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("script");
        let mut input = child.stdin.take().expect("input");
        let mut output = child.stdout.take().expect("output");
        let all = Arc::new(Mutex::new(Vec::new()));
        let reader = std::thread::spawn({
            let all = Arc::clone(&all);
            move || {
                let mut part = [0; 4096];
                while let Ok(length @ 1..) = output.read(&mut part) {
                    let read = part.get(..length).unwrap_or_default();
                    all.lock().expect("the output").extend_from_slice(read);
                }
            }
        });
        let shown = || String::from_utf8_lossy(&all.lock().expect("the output")).into_owned();
        let begin = Instant::now();
        while !shown().contains("no plan is active") {
            assert!(begin.elapsed() < LIMIT, "no view: {}", shown());
            std::thread::sleep(Duration::from_millis(20));
        }
        if end == "q" {
            // The first `q` closes the help.
            input.write_all(b"?pqq").expect("keys");
        } else {
            send(view_process(&program, state.path()), Signal::TERM);
        }
        let _ = rampart_tests::limited::ended(&mut child);
        drop(input);
        reader.join().expect("the output");
        let shown = shown();
        assert!(
            shown.contains("\u{1b}[?1049h") && shown.contains("\u{1b}[?1049l"),
            "{shown}"
        );
        assert!(shown.contains("restored"), "{shown}");
        assert!(shown.contains("code 0"), "{shown}");
    }
}

/// Waits for the process of the view with this state directory.
fn view_process(program: &Path, state: &Path) -> u32 {
    let begin = Instant::now();
    while begin.elapsed() < LIMIT {
        for entry in std::fs::read_dir("/proc").expect("processes").flatten() {
            let Some(number) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            let wanted = format!("RAMPART_STATE_DIR={}", state.display());
            if line.starts_with(format!("{}\0status", program.display()).as_bytes())
                && String::from_utf8_lossy(&environment).contains(&wanted)
            {
                return number;
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the view did not start within {} s", LIMIT.as_secs());
}

/// A status server.
struct Server {
    child: KillAtEnd,
    address: String,
}

impl Server {
    fn start(state: &Path) -> Self {
        Self::start_with(state, &[])
    }

    fn start_with(state: &Path, more: &[&str]) -> Self {
        let arguments = [&["status", "--serve", "127.0.0.1:0"], more].concat();
        let mut child = rampart(state, &arguments)
            .stderr(Stdio::piped())
            .spawn()
            .expect("rampart starts");
        let mut line = String::new();
        BufReader::new(child.stderr.take().expect("stderr"))
            .read_line(&mut line)
            .expect("a line");
        let address = line
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split('/').next())
            .unwrap_or_else(|| panic!("{line}"))
            .to_owned();
        Self {
            child: KillAtEnd(child),
            address,
        }
    }
}

/// Returns the answer of an HTTP server, or an empty text.
fn get(address: &str, path: &str, headers: &str) -> String {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: x\r\n{headers}\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    ask().unwrap_or_default()
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

#[test]
fn scrapes_are_open_metrics_and_promtool_agrees() {
    let state = tempfile::tempdir().expect("directory");
    write(state.path(), &active_plan(state.path(), &this_boot()));
    let server = Server::start(state.path());
    let modern = get(
        &server.address,
        "/metrics",
        "Accept: application/openmetrics-text\r\n",
    );
    assert!(
        modern.contains("application/openmetrics-text; version=1.0.0"),
        "{modern}"
    );
    assert!(body(&modern).ends_with("# EOF\n"), "{modern}");
    assert!(get(&server.address, "/else", "").contains(" 404 "));
    let count = |text: &str| -> u64 {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("rampart_cpu_interrupts_total{cpu=\"0\"} "));
        line.and_then(|value| value.parse().ok())
            .expect("a counter")
    };
    let mut classic = String::new();
    wait_until("counters grow", || {
        classic = get(&server.address, "/metrics", "");
        count(&classic) > count(&modern)
    });
    assert!(classic.contains("text/plain; version=0.0.4"), "{classic}");
    if Command::new("promtool").arg("--version").output().is_err() {
        left_out("the metrics by promtool: it is not installed");
        return;
    }
    let checked = Command::new("promtool")
        .args(["check", "metrics"])
        .finish_within(LIMIT, body(&classic).as_bytes().to_vec())
        .expect("promtool");
    assert_eq!(exit_code(&checked), 0, "{checked:?}\n{}", body(&classic));
    assert!(
        checked.stderr.is_empty() && checked.stdout.is_empty(),
        "{checked:?}"
    );
}

#[test]
fn one_status_is_a_file_for_node_exporter() {
    let state = tempfile::tempdir().expect("directory");
    write(state.path(), &active_plan(state.path(), &this_boot()));
    let file = state.path().join("rampart.prom");
    std::fs::write(&file, "older").expect("a file");
    let inode =
        |path: &Path| std::os::unix::fs::MetadataExt::ino(&path.metadata().expect("a file"));
    let before = inode(&file);
    let path = file.to_str().expect("a path");
    // No group of the plan exists, so the plan has drift.
    let output = run(state.path(), &["--format", "openmetrics", "--out", path]);
    assert_eq!(stdout(&output, 4), "");
    let text = std::fs::read_to_string(&file).expect("the file");
    assert_ne!(inode(&file), before, "replaced as a whole");
    assert!(text.ends_with("# EOF\n"), "{text}");
    assert!(text.contains("\nrampart_plan_is_active 1.0\n"), "{text}");
    assert!(text.contains("\nrampart_observation_seconds 0."), "{text}");
    if Command::new("promtool").arg("--version").output().is_err() {
        left_out("the file for node_exporter by promtool: it is not installed");
        return;
    }
    let checked = Command::new("promtool")
        .args(["check", "metrics"])
        .finish_within(LIMIT, text.into_bytes())
        .expect("promtool");
    assert_eq!(exit_code(&checked), 0, "{checked:?}");
    assert!(checked.stderr.is_empty(), "{checked:?}");
}

#[test]
fn a_real_prometheus_scrapes_the_metrics() {
    if Command::new("prometheus")
        .arg("--version")
        .output()
        .is_err()
    {
        left_out("a real Prometheus: it is not installed");
        return;
    }
    let state = tempfile::tempdir().expect("directory");
    write(state.path(), &active_plan(state.path(), &this_boot()));
    let server = Server::start(state.path());
    let home = tempfile::tempdir().expect("directory");
    let configuration = home.path().join("prometheus.yml");
    std::fs::write(
        &configuration,
        format!(
            "scrape_configs:\n  - job_name: rampart\n    scrape_interval: 1s\n    scrape_timeout: 1s\n    static_configs:\n      - targets: ['{}']\n",
            server.address
        ),
    )
    .expect("configuration");
    // A free port, as Prometheus does not print the port that it gets from the kernel.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("address").to_string();
    drop(free);
    let child = Command::new("prometheus")
        .arg(format!("--config.file={}", configuration.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            home.path().join("data").display()
        ))
        .arg(format!("--web.listen-address={address}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("prometheus starts");
    let _prometheus = KillAtEnd(child);
    let wait = |query: &str, wanted: &str| {
        let begin = Instant::now();
        let mut last = String::new();
        while begin.elapsed() < LIMIT {
            last = get(&address, &format!("/api/v1/query?query={query}"), "");
            if body(&last).contains(wanted) {
                return last;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{query} within {} s: {last}", LIMIT.as_secs());
    };
    wait("up", "\"1\"]");
    wait("rampart_plan_info", "\"state\":\"active\"");
    wait("rampart_cpu_owner", "\"owner\":\"press\"");
    wait("rampart_drift", "\"rule\":\"partition-invalid\"");
    wait("rate(rampart_cpu_interrupts_total[10s])", "\"cpu\":\"0\"");
}

#[test]
fn reports_threads_and_latency_of_an_isolated_domain() {
    let Some(_machine) = machine("status of an isolated domain", 2) else {
        return;
    };
    let state = tempfile::tempdir().expect("directory");
    let mut plan = active_plan(state.path(), &this_boot());
    let Some(group) = ControlGroup::create(
        "status of an isolated domain",
        "status",
        &plan.domains[0].cpus,
    ) else {
        return;
    };
    plan.domains[0].group = Some(group.path().display().to_string());
    plan.domains[0].unified = group.is_unified();
    write(state.path(), &plan);
    // A program that wakes now and then.
    let child = Command::new("sh")
        .args(["-c", "while :; do sleep 0.01; done"])
        .spawn()
        .expect("sh");
    let child = KillAtEnd(child);
    group.write("cgroup.procs", &child.0.id().to_string());
    let output = run(state.path(), &["--json"]);
    let status = document(&output, exit_code(&output));
    let domain = &status.domains[0];
    assert!(domain.isolation_valid && domain.threads >= 1, "{domain:#?}");
    let last = status.cpus.last().expect("a CPU");
    let is_of_domain =
        |thread: &rampart_model::ThreadStatus| thread.domain.as_deref() == Some("press");
    assert!(last.threads.iter().any(is_of_domain), "{last:#?}");

    // The meters move when a plan is applied after they were placed.
    std::fs::remove_file(state.path().join("plan.json")).expect("removed");
    let mut server = Server::start_with(state.path(), &["--meter"]);
    let _ = get(&server.address, "/metrics", "");
    write(state.path(), &plan);
    let begin = Instant::now();
    let wanted = format!(
        "rampart_wakeup_latency_seconds_count{{cpu=\"{}\"}}",
        last.cpu
    );
    loop {
        let answer = get(&server.address, "/metrics", "");
        let members = std::fs::read_to_string(group.path().join("cgroup.procs")).expect("members");
        let is_inside = members.lines().any(|member| {
            let name = std::fs::read_to_string(format!("/proc/{member}/comm")).unwrap_or_default();
            name.trim() == "rampart-meter"
        });
        if is_inside && body(&answer).contains(&wanted) {
            break;
        }
        assert!(
            begin.elapsed() < LIMIT,
            "no latency of CPU {}, or the meter is not in the group: {members}; {answer}",
            last.cpu
        );
        std::thread::sleep(Duration::from_millis(300));
    }
    send(server.child.0.id(), Signal::TERM);
    let ended = rampart_tests::limited::ended(&mut server.child.0);
    assert_eq!(ended.code(), Some(0), "{ended:?}");

    group.write("cpuset.cpus", &usable_cpus().to_string());
    let status = document(&run(state.path(), &["--json"]), 4);
    let kinds: Vec<&str> = status
        .findings
        .iter()
        .map(rampart_model::StatusFinding::rule)
        .collect();
    assert!(kinds.contains(&"group-cpus"), "{kinds:?}");
    assert!(!status.domains[0].isolation_valid);
}
