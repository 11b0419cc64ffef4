// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What influences a measurement from outside the experiment is planted: programs on the shielded CPU, a meter
//! in another cpuset, a stopped one, an interrupt on the shielded CPU. Each makes its run invalid and is named in the document
//! and in every text. Jumps of the clocks are judged with invented snapshots in `rampart-evaluate`, because a
//! test must not set the clock.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rampart_model::{Check, CpuId, Evaluation, Finding, SchedulingPolicy};
use rampart_tests::limited::{Limited as _, finished, wait_until};
use rampart_tests::machine_state::MachineState;
use rampart_tests::processes::{self, KillAtEnd};
use rampart_tests::programs::{Scratch, evaluation, last_cpu, machine, rampart, stdout};
use rustix::process::{Pid, Signal};

/// How long an influence lasts: more than the time between two looks at the machine.
const PLANTED: Duration = Duration::from_millis(800);

/// The measuring thread of the shielded CPU, as it measures.
#[derive(Debug)]
struct Meter {
    process: u32,
    thread: u32,
    cpu: CpuId,
}

/// Returns the measuring thread of a CPU, if one exists.
fn find(cpu: CpuId) -> Option<Meter> {
    let name = format!("meter/{cpu}");
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let mut threads = processes.flat_map(|process| {
        let tasks = fs::read_dir(process.path().join("task"));
        tasks.into_iter().flatten().flatten().map(move |task| {
            let number = |name: std::ffi::OsString| name.to_str()?.parse::<u32>().ok();
            (number(process.file_name()), number(task.file_name()), task)
        })
    });
    threads.find_map(|(process, thread, task)| {
        let found = fs::read_to_string(task.path().join("comm")).ok()?;
        (found.trim_end() == name).then_some(Meter {
            process: process?,
            thread: thread?,
            cpu,
        })
    })
}

/// Returns how often a thread has run, the third number of its `schedstat`.
fn times_run(meter: &Meter) -> u64 {
    let path = format!("/proc/{}/task/{}/schedstat", meter.process, meter.thread);
    let text = fs::read_to_string(path).unwrap_or_default();
    let third = text.split_whitespace().nth(2);
    third.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Waits until a meter measures on a CPU.
fn measuring(cpu: CpuId) -> Meter {
    let mut meter = None;
    wait_until("a meter measures", || {
        // It wakes a thousand times a second, and each run has a thread of its own.
        meter = find(cpu).filter(|meter| times_run(meter) > 30);
        meter.is_some()
    });
    meter.expect("a meter")
}

/// Returns the directory of a thread's group in the hierarchy that assigns CPUs, and whether it is of cgroup v2.
fn cpu_group(thread: u32) -> (PathBuf, bool) {
    let groups = fs::read_to_string(format!("/proc/{thread}/cgroup")).expect("groups");
    let line = |wanted: &dyn Fn(&str) -> bool| {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            wanted(controllers).then(|| path.trim_start_matches('/').to_owned())
        })
    };
    match line(&|controllers| controllers.split(',').any(|name| name == "cpuset")) {
        Some(path) => (Path::new("/sys/fs/cgroup/cpuset").join(path), false),
        None => {
            let path = line(&str::is_empty).expect("a group of v2");
            (Path::new("/sys/fs/cgroup").join(path), true)
        }
    }
}

/// Moves a process to a group.
fn move_to(group: &Path, process: u32) {
    fs::write(group.join("cgroup.procs"), process.to_string()).expect("the process moves");
}

/// A spinning program with a name of its own.
struct Spinner {
    child: KillAtEnd,
}

impl Spinner {
    fn start(directory: &Path) -> Self {
        let program = directory.join("planted-spin");
        if !program.exists() {
            symlink("/bin/sh", &program).expect("a link");
        }
        let mut child = Command::new(program)
            .args(["-c", "read go; while :; do :; done"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        let mut input = child.stdin.take().expect("its input");
        // It spins on an ordinary CPU until it is moved.
        input.write_all(b"go\n").expect("a line");
        Self {
            child: KillAtEnd(child),
        }
    }

    /// Moves it to the CPU of a meter, under a policy.
    fn join(&self, meter: &Meter, policy: SchedulingPolicy) {
        let process = self.child.0.id();
        move_to(&cpu_group(meter.thread).0, process);
        let mut cpus = rustix::thread::CpuSet::new();
        cpus.set(meter.cpu.0 as usize);
        let own = i32::try_from(process).ok().and_then(Pid::from_raw);
        rustix::thread::sched_setaffinity(own, &cpus).expect("its affinity");
        rampart_host::set_thread_policy(process, policy).expect("its policy");
    }
}

fn start(scratch: &Scratch, options: &[&str]) -> Child {
    let arguments = [
        &[
            "evaluate",
            "--out",
            scratch.out(),
            "--show-progress",
            "lines",
        ],
        options,
    ]
    .concat();
    rampart(&scratch.state, &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("rampart starts")
}

/// Evaluates, plants something meanwhile, and returns the document with its text and its page.
fn evaluated(options: &[&str], plant: impl FnOnce(&Scratch)) -> (Evaluation, [String; 2]) {
    let scratch = Scratch::create();
    let before = MachineState::take();
    let child = start(&scratch, options);
    plant(&scratch);
    let text = stdout(&finished(child), 0);
    let later = MachineState::take();
    assert_eq!(before.differences(&later), Vec::<String>::new());
    let page = fs::read_to_string(scratch.results.join("report.html")).expect("the page");
    (evaluation(&scratch.results), [text, page])
}

/// Returns why runs are invalid.
fn invalid(evaluation: &Evaluation) -> Vec<&Finding> {
    let runs = evaluation.records.iter().flat_map(|record| &record.runs);
    runs.flat_map(|run| &run.invalid).collect()
}

/// Asserts that some finding has all parts, that every text has the first one, and that valid runs are left.
fn assert_named(evaluation: &Evaluation, texts: &[String; 2], parts: &[&str]) {
    let found = invalid(evaluation);
    let is_it = |finding: &&&Finding| {
        let text = finding.to_string();
        parts.iter().all(|part| text.contains(part))
    };
    assert!(found.iter().any(|finding| is_it(&finding)), "{found:#?}");
    for text in texts {
        assert!(text.contains(parts[0]), "no `{}` in {text}", parts[0]);
    }
    let mut runs = evaluation.records.iter().flat_map(|record| &record.runs);
    assert!(runs.any(|run| run.invalid.is_empty()), "no valid run");
}

/// `rampart check` in another shell, which may not use the isolated CPU: it is judged for this CPU and no other.
fn assert_another_shell_sees_the_isolation(state: &Path, cpu: CpuId) {
    let check = rampart(state, &["check", "--json"])
        .finish()
        .expect("starts");
    let check: Check = serde_json::from_slice(&check.stdout).expect("a check");
    let isolated = (check.real_time.to_string(), check.chosen_by.as_str());
    let expected = (cpu.to_string(), "in use by a running evaluation");
    assert_eq!(isolated, expected);
}

#[test]
fn a_program_on_the_shielded_cpu_is_named() {
    let Some(_machine) = machine("a_program_on_the_shielded_cpu_is_named", 2) else {
        return;
    };
    // Above the priority of the meter, and below it: then it changes how the CPU idles.
    for (policy, word) in [
        (SchedulingPolicy::Fifo(98), "policy fifo:98"),
        (SchedulingPolicy::Other, "policy other"),
    ] {
        let options = ["--domains", "task", "--loads", "idle", "--for", "8s"];
        let (evaluation, texts) = evaluated(&options, |scratch| {
            let spinner = Spinner::start(scratch.directory.path());
            let meter = measuring(last_cpu());
            spinner.join(&meter, policy);
            std::thread::sleep(PLANTED);
            if policy == SchedulingPolicy::Other {
                assert_another_shell_sees_the_isolation(&scratch.state, meter.cpu);
            }
        });
        let cpu = format!("CPU {}", last_cpu());
        assert_named(&evaluation, &texts, &["planted-spin", &cpu, word]);
    }
}

/// Returns the processes of stress-ng, which `scripts/setup test` installs.
fn load_processes() -> Vec<i32> {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let of_load = processes.filter_map(|process| {
        let name = fs::read_to_string(process.path().join("comm")).ok()?;
        let number = process.file_name().to_str()?.parse().ok()?;
        name.starts_with("stress-ng").then_some(number)
    });
    of_load.collect()
}

#[test]
fn a_stopped_load_is_named() {
    let Some(_machine) = machine("a_stopped_load_is_named", 2) else {
        return;
    };
    let options = ["--domains", "host", "--loads", "cpu", "--for", "8s"];
    let (evaluation, texts) = evaluated(&options, |_| {
        // A load that is stopped before the meter measures only delays the run.
        let measures = || find(CpuId(0)).is_some_and(|meter| times_run(&meter) > 30);
        wait_until("a load runs beside a meter", || {
            load_processes().len() > 1 && measures()
        });
        let load = load_processes();
        let send = |signal| {
            for process in load.iter().filter_map(|process| Pid::from_raw(*process)) {
                // One may have ended meanwhile.
                let _ = rustix::process::kill_process(process, signal);
            }
        };
        send(Signal::STOP);
        std::thread::sleep(PLANTED);
        send(Signal::CONT);
    });
    assert_named(&evaluation, &texts, &["load", "stopped by a signal"]);
}

/// It may begin and end between two looks at the machine. Only the time of its CPU is then known, and not its
/// name.
#[test]
fn a_short_program_on_the_shielded_cpu_is_noticed() {
    let Some(_machine) = machine("a_short_program_on_the_shielded_cpu_is_noticed", 2) else {
        return;
    };
    let options = ["--domains", "task", "--loads", "idle", "--for", "8s"];
    // While the isolation is up, this test may not use that CPU.
    let cpu = last_cpu();
    let (evaluation, _) = evaluated(&options, |scratch| {
        for _ in 0..3 {
            let spinner = Spinner::start(scratch.directory.path());
            let meter = measuring(cpu);
            spinner.join(&meter, SchedulingPolicy::Fifo(98));
            std::thread::sleep(Duration::from_millis(400));
        }
    });
    let cpu = format!("CPU {cpu}");
    let found: Vec<String> = invalid(&evaluation)
        .iter()
        .map(ToString::to_string)
        .collect();
    let is_it = |text: &String| {
        text.contains(&cpu) && (text.contains("unknown program") || text.contains("planted-spin"))
    };
    assert!(found.iter().any(is_it), "{found:#?}");
}

#[test]
fn a_stopped_meter_is_named() {
    let Some(_machine) = machine("a_stopped_meter_is_named", 2) else {
        return;
    };
    // It is seen while it lasts. The meter itself notices a shorter one.
    for (length, parts) in [
        (PLANTED, ["measuring thread of CPU", "stopped by a signal"]),
        (
            Duration::from_millis(100),
            ["stopped by a signal", "SIGSTOP"],
        ),
    ] {
        let options = ["--domains", "task", "--loads", "idle", "--for", "8s"];
        let (evaluation, texts) = evaluated(&options, |_| {
            let meter = measuring(last_cpu());
            processes::send(meter.process, Signal::STOP);
            std::thread::sleep(length);
            processes::send(meter.process, Signal::CONT);
        });
        assert_named(&evaluation, &texts, &parts);
    }
}

/// Its affinity stays what it was.
#[test]
fn a_meter_in_another_cpuset_is_named() {
    let Some(_machine) = machine("a_meter_in_another_cpuset_is_named", 2) else {
        return;
    };
    for domain in ["task", "container"] {
        let options = ["--domains", domain, "--loads", "idle", "--for", "8s"];
        let (evaluation, texts) = evaluated(&options, |_| {
            let meter = measuring(last_cpu());
            let (group, unified) = cpu_group(meter.thread);
            let root = match unified {
                true => Path::new("/sys/fs/cgroup"),
                false => Path::new("/sys/fs/cgroup/cpuset"),
            };
            assert_ne!(group, root);
            move_to(root, meter.process);
            std::thread::sleep(PLANTED);
        });
        let thread = format!("measuring thread of CPU {}", last_cpu());
        assert_named(&evaluation, &texts, &[&thread, "control group"]);
    }
}

#[test]
fn an_interrupt_moved_to_the_shielded_cpu_and_back_is_named() {
    let Some(_machine) = machine(
        "an_interrupt_moved_to_the_shielded_cpu_and_back_is_named",
        2,
    ) else {
        return;
    };
    let cpu = last_cpu();
    let options = ["--domains", "task", "--loads", "idle", "--for", "8s"];
    let (evaluation, texts) = evaluated(&options, |scratch| {
        let _ = measuring(cpu);
        let files = fs::read_dir("/proc/irq").expect("/proc/irq").flatten();
        let moved: Vec<(PathBuf, String)> = files
            .map(|entry| entry.path().join("smp_affinity_list"))
            .filter_map(|file| {
                let before = fs::read_to_string(&file).ok()?;
                // Some cannot be moved.
                fs::write(&file, cpu.to_string()).ok()?;
                Some((file, before))
            })
            .collect();
        // Packets end with an interrupt of the network device. The address is one for documentation (RFC 5737).
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
        for number in 0..40 {
            for _ in 0..5 {
                // Without a network there is nothing to send to.
                let _ = socket.send_to(b"x", "192.0.2.1:9");
            }
            let file = scratch.directory.path().join(format!("written-{number}"));
            fs::write(&file, vec![1; 1 << 16]).expect("a file");
            let file = fs::File::open(&file).expect("the file");
            file.sync_all().expect("it reaches the disk");
            std::thread::sleep(PLANTED / 40);
        }
        for (file, before) in moved {
            fs::write(file, before).expect("it moves back");
        }
    });
    let parts = ["interrupt ", &format!("sent to CPU {cpu}")];
    assert_named(&evaluation, &texts, &parts);
}

#[test]
fn a_program_on_the_cpu_of_a_round_is_named_and_the_round_is_repeated() {
    let Some(_machine) = machine(
        "a_program_on_the_cpu_of_a_round_is_named_and_the_round_is_repeated",
        2,
    ) else {
        return;
    };
    let options = [
        "--domains",
        "host,task",
        "--loads",
        "idle",
        "--disturb",
        "cpu",
        "--for",
        "60s",
    ];
    // While the isolation is up, this test may not use that CPU.
    let cpu = last_cpu();
    let (evaluation, texts) = evaluated(&options, |scratch| {
        let spinner = Spinner::start(scratch.directory.path());
        let document = scratch.results.join("evaluation.json");
        wait_until("a round is made", || {
            document.is_file() && !self::evaluation(&scratch.results).transfers.is_empty()
        });
        let meter = measuring(cpu);
        spinner.join(&meter, SchedulingPolicy::Fifo(98));
        std::thread::sleep(PLANTED);
    });
    let named = |text: &str| text.contains("planted-spin");
    // Where the round ends while the program moves there, it is left on the CPU of the host.
    let disturbed: BTreeSet<&str> = evaluation
        .transfers
        .iter()
        .filter(|round| {
            let mut found = round.watched.iter().flat_map(|one| &one.invalid);
            found.any(|finding| named(&finding.to_string()))
        })
        .map(|round| round.id.as_str())
        .collect();
    assert!(!disturbed.is_empty(), "{:#?}", evaluation.transfers);
    // The repetition is the next round, with a number of its own. It may be disturbed too.
    let of = |id: &str| id.rsplit_once('/').map(|(what, _)| what.to_owned());
    let repeated = evaluation
        .transfers
        .windows(2)
        .any(|two| disturbed.contains(two[0].id.as_str()) && of(&two[0].id) == of(&two[1].id));
    assert!(repeated, "{disturbed:?} of {:#?}", evaluation.transfers);
    assert!(texts.iter().all(|text| named(text)), "{texts:?}");
}
