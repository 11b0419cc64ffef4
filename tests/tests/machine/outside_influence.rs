// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What influences a measurement from outside the experiment is planted: programs on the shielded CPU, a meter
//! in another cpuset, a stopped one, an interrupt on the shielded CPU. Each makes its run invalid and is named in
//! the document and in every text. Jumps of the clocks are judged with invented snapshots in `rampart-evaluate`,
//! because a test must not set the clock.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rampart_model::{
    Check, CpuId, Evaluation, Finding, Question, SchedulingPolicy, TransferRecord,
};
use rampart_tests::limited::{Limited as _, finished, wait_until};
use rampart_tests::machine_state::MachineState;
use rampart_tests::processes::{self, KillAtEnd};
use rampart_tests::programs::{Scratch, evaluation, last_cpu, rampart, stdout};
use rampart_tests::verdicts::find_verdict;
use rustix::process::{Pid, Signal};

use crate::measuring::{Meter, measuring, that_measures};
use crate::preferred::machine;

/// The evaluations of most tests. They would last for longer than it takes to plant something and to end them, and
/// have many short runs.
const OF_THE_TASK: [&str; 6] = ["--domains", "task", "--loads", "idle", "--for", "10s"];

/// How long an influence lasts: more than the time between two looks at the machine.
const PLANTED: Duration = Duration::from_millis(800);

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

/// Returns the document, if it is written.
fn document(scratch: &Scratch) -> Option<Evaluation> {
    let is_written = scratch.results.join("evaluation.json").is_file();
    is_written.then(|| evaluation(&scratch.results))
}

/// Evaluates, and plants something until a reason why a run is invalid has all these parts. Ends the evaluation when
/// another run is valid. Asserts that every text has the first part, and that the machine is as before.
fn assert_named(options: &[&str], parts: &[&str], mut plant: impl FnMut(&Scratch)) {
    let is_it = |text: &str| parts.iter().all(|part| text.contains(part));
    let texts = planted(options, is_it, &mut plant);
    for text in texts {
        assert!(text.contains(parts[0]), "no `{}` in {text}", parts[0]);
    }
}

/// As [`assert_named`], for a reason of which `is_it` is true. Returns the text and the page.
fn planted(
    options: &[&str],
    is_it: impl Fn(&str) -> bool,
    plant: &mut dyn FnMut(&Scratch),
) -> [String; 2] {
    let scratch = Scratch::create();
    let before = MachineState::take();
    let mut child = start(&scratch, options);
    let is_named = |found: &Evaluation| {
        let mut reasons = invalid(found).into_iter();
        reasons.any(|finding| is_it(&finding.to_string()))
    };
    let mut now = None;
    // A look at the machine may come late on a busy one, and miss what was there.
    while !now.as_ref().is_some_and(is_named) {
        let runs = now.as_ref().map_or(0, |found| found.runs.0);
        plant(&scratch);
        wait_until("the document of the planted run", || {
            now = document(&scratch).filter(|found| found.runs.0 > runs);
            now.is_some() || child.try_wait().expect("its state").is_some()
        });
        let ended = child.try_wait().expect("its state");
        let reasons = now.as_ref().map(invalid);
        assert!(ended.is_none(), "not named before the end: {reasons:#?}");
    }
    wait_until("a valid run", || {
        now = document(&scratch);
        let runs = now.iter().flat_map(|found| &found.records);
        let mut runs = runs.flat_map(|record| &record.runs);
        runs.any(|run| run.invalid.is_empty()) || child.try_wait().expect("its state").is_some()
    });
    processes::send(child.id(), Signal::INT);
    let text = stdout(&finished(child), 5);
    let later = MachineState::take();
    assert_eq!(before.differences(&later), Vec::<String>::new());
    let found = evaluation(&scratch.results);
    assert!(is_named(&found), "{:#?}", invalid(&found));
    let page = fs::read_to_string(scratch.results.join("report.html")).expect("the page");
    [text, page]
}

/// Returns why runs are invalid.
fn invalid(evaluation: &Evaluation) -> Vec<&Finding> {
    let runs = evaluation.records.iter().flat_map(|record| &record.runs);
    runs.flat_map(|run| &run.invalid).collect()
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
        // While the isolation is up, this test may not use that CPU.
        let cpu = last_cpu();
        let location = format!("CPU {cpu}");
        assert_named(
            &OF_THE_TASK,
            &["planted-spin", &location, word],
            |scratch| {
                let spinner = Spinner::start(scratch.directory.path());
                let meter = measuring(cpu);
                spinner.join(&meter, policy);
                std::thread::sleep(PLANTED);
                if policy == SchedulingPolicy::Other {
                    assert_another_shell_sees_the_isolation(&scratch.state, meter.cpu);
                }
            },
        );
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
    let options = ["--domains", "host", "--loads", "cpu", "--for", "10s"];
    assert_named(&options, &["load", "stopped by a signal"], |_| {
        // A load that is stopped before the meter measures only delays the run.
        wait_until("a load runs beside a meter", || {
            load_processes().len() > 1 && that_measures(CpuId(0)).is_some()
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
}

/// It may begin and end between two looks at the machine. Only the time of its CPU is then known, and not its
/// name.
#[test]
fn a_short_program_on_the_shielded_cpu_is_noticed() {
    let Some(_machine) = machine("a_short_program_on_the_shielded_cpu_is_noticed", 2) else {
        return;
    };
    // While the isolation is up, this test may not use that CPU.
    let cpu = last_cpu();
    let location = format!("CPU {cpu}");
    let is_it = |text: &str| {
        text.contains(&location)
            && (text.contains("unknown program") || text.contains("planted-spin"))
    };
    let _ = planted(&OF_THE_TASK, is_it, &mut |scratch| {
        let spinner = Spinner::start(scratch.directory.path());
        let meter = measuring(cpu);
        spinner.join(&meter, SchedulingPolicy::Fifo(98));
        std::thread::sleep(PLANTED / 2);
    });
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
        let cpu = last_cpu();
        assert_named(&OF_THE_TASK, &parts, |_| {
            let meter = measuring(cpu);
            processes::send(meter.process, Signal::STOP);
            std::thread::sleep(length);
            processes::send(meter.process, Signal::CONT);
        });
    }
}

/// Its affinity stays what it was.
#[test]
fn a_meter_in_another_cpuset_is_named() {
    let Some(_machine) = machine("a_meter_in_another_cpuset_is_named", 2) else {
        return;
    };
    for domain in ["task", "container"] {
        let options = ["--domains", domain, "--loads", "idle", "--for", "10s"];
        let cpu = last_cpu();
        let thread = format!("measuring thread of CPU {cpu}");
        let mut home = None;
        assert_named(&options, &[&thread, "control group"], |_| {
            let meter = measuring(cpu);
            let (group, unified) = cpu_group(meter.thread);
            let root = match unified {
                true => Path::new("/sys/fs/cgroup"),
                false => Path::new("/sys/fs/cgroup/cpuset"),
            };
            // Back again, if its run ended before it moved.
            let home = home.get_or_insert(group.clone());
            assert_ne!(home, root);
            move_to(if group == *home { root } else { home }, meter.process);
        });
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
    let parts = ["interrupt ", &format!("sent to CPU {cpu}")];
    assert_named(&OF_THE_TASK, &parts, |scratch| {
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
        "cpu:host",
        "--for",
        "30s",
    ];
    // While the isolation is up, this test may not use that CPU.
    let cpu = last_cpu();
    let named = |text: &str| text.contains("planted-spin");
    let disturbs = |round: &TransferRecord| {
        let mut found = round.watched.iter().flat_map(|one| &one.invalid);
        found.any(|finding| named(&finding.to_string()))
    };
    let scratch = Scratch::create();
    let before = MachineState::take();
    let child = start(&scratch, &options);
    let rounds = || document(&scratch).map_or_else(Vec::new, |found| found.transfers);
    wait_until("a round is made", || !rounds().is_empty());
    let spinner = Spinner::start(scratch.directory.path());
    let mut made = rounds();
    while !made.iter().any(disturbs) {
        // Where a round ends while the program moves there, it is left in another control group.
        spinner.join(&measuring(cpu), SchedulingPolicy::Other);
        let earlier = made.len();
        wait_until("the next round is made", || {
            made = rounds();
            made.len() > earlier
        });
    }
    drop(spinner);
    let text = stdout(&finished(child), 0);
    let later = MachineState::take();
    assert_eq!(before.differences(&later), Vec::<String>::new());
    let evaluation = evaluation(&scratch.results);
    let page = fs::read_to_string(scratch.results.join("report.html")).expect("the page");
    let disturbed = evaluation.transfers.iter().filter(|round| disturbs(round));
    let disturbed: BTreeSet<&str> = disturbed.map(|round| round.id.as_str()).collect();
    assert!(!disturbed.is_empty(), "{:#?}", evaluation.transfers);
    // The repetition is the next round, with a number of its own. It may be disturbed too.
    let of = |id: &str| id.rsplit_once('/').map(|(what, _)| what.to_owned());
    let repeated = evaluation
        .transfers
        .windows(2)
        .any(|two| disturbed.contains(two[0].id.as_str()) && of(&two[0].id) == of(&two[1].id));
    assert!(repeated, "{disturbed:?} of {:#?}", evaluation.transfers);
    for text in [text, page] {
        assert!(named(&text), "{text}");
    }
    assert_load_of_the_host(&evaluation);
}

/// Checks that the load of valid rounds ran, and that there is a verdict with figures on its effect on the task.
fn assert_load_of_the_host(evaluation: &Evaluation) {
    let rounds = evaluation.transfers.iter();
    let valid: Vec<_> = rounds
        .filter(|round| round.invalid.is_empty() && round.disturbance.is_some())
        .collect();
    assert!(!valid.is_empty(), "no valid round with the load");
    for round in valid {
        let load = round.load.as_ref().expect("the report of the load");
        let ran = load.ran && !load.stressors.is_empty();
        assert!(ran, "{}: {load:?}", round.id);
    }
    let verdicts = &evaluation.verdicts;
    let judged = find_verdict(verdicts, Question::Interference, "task", "cpu:host");
    assert!(
        judged.figures.is_some(),
        "{}: {}",
        judged.id,
        judged.statement
    );
}
