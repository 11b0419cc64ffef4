// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guests with the real meter, emulated in software if the machine's KVM runs none, and their
//! leftovers.
//!
//! The tests need root, two CPUs, QEMU, the static meter (`make build`), and a kernel for guests
//! (the machine's own, or `RAMPART_GUEST_KERNEL`); without them they are skipped with a message.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rampart_domain::{Domain, Running, Start, domain_in, release_guests};
use rampart_host::{MachineRoot, StateDirectory, read_machine};
use rampart_model::{
    Accelerator, BlockKind, BlockSettings, BlockSpread, BlockerEvent, BlockerRequest, CpuId,
    CpuSet, DomainSelection, GuestThreadRole, MeterEvent, MeterKind, MeterSettings, Nanos,
    SchedulingPolicy, ThreadOutcome,
};
use rampart_tests::programs::{Machine, alone, left_out};

/// Set in the process of the test that is killed.
const CHILD: &str = "RAMPART_TEST_GUEST_OWNER";

struct Bench {
    meter: PathBuf,
    directory: tempfile::TempDir,
    _machine: Machine,
}

impl Bench {
    fn state(&self) -> StateDirectory {
        StateDirectory::at(self.directory.path())
    }
}

fn meter() -> PathBuf {
    let bin = std::env::var_os("RAMPART_BIN").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../bin"),
        PathBuf::from,
    );
    bin.join("rampart-meter")
}

/// Prepares a test. Returns `None`, with a message, if these tests cannot run.
fn bench() -> Option<Bench> {
    let machine = read_machine(&MachineRoot::system());
    let directory = tempfile::tempdir().expect("directory");
    let state = StateDirectory::at(directory.path());
    let availability = domain_in(selection("vm:tcg"), &state).availability(&machine);
    let lacking = if !rustix::process::geteuid().is_root() {
        Some("root".to_owned())
    } else if machine.topology.online.len() < 2 {
        Some("two CPUs".to_owned())
    } else if !meter().is_file() {
        Some("bin/rampart-meter (make build)".to_owned())
    } else if !availability.available {
        availability.findings.first().map(ToString::to_string)
    } else {
        None
    };
    if let Some(lacking) = lacking {
        left_out(&format!("the tests of real guests, which need {lacking}"));
        return None;
    }
    let machine = alone();
    Some(Bench {
        meter: meter(),
        directory,
        _machine: machine,
    })
}

fn selection(name: &str) -> DomainSelection {
    name.parse().expect("a domain")
}

fn plan() -> MeterSettings {
    MeterSettings {
        duration: Nanos::from_secs(2),
        warm_up: Nanos::from_millis(200),
        interval: Nanos::from_millis(2),
        ..MeterSettings::new(MeterKind::Wakeup, CpuSet::single(CpuId(1)))
    }
}

fn start(
    domain: &dyn Domain,
    meter: &Path,
    settings: &MeterSettings,
    name: &str,
    stay_up: bool,
) -> Box<dyn Running> {
    let housekeeping = CpuSet::single(CpuId(0));
    let start = Start {
        meter,
        settings,
        housekeeping: &housekeeping,
        name,
        stay_up,
    };
    let begin = Instant::now();
    loop {
        match domain.start(&start) {
            Err(rampart_domain::DomainError::Host(rampart_host::HostError::Busy { .. }))
                if begin.elapsed() < Duration::from_secs(240) =>
            {
                std::thread::sleep(Duration::from_millis(200));
            }
            result => return result.expect("started"),
        }
    }
}

/// Follows a meter to its end.
fn measure(running: &mut dyn Running) -> Vec<ThreadOutcome> {
    running.go().expect("go");
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < Duration::from_secs(120), "no end");
        match running
            .next_event(Duration::from_millis(200))
            .expect("event")
        {
            Some(MeterEvent::Finished { threads, .. }) => return threads,
            Some(MeterEvent::Refused(refusal)) => panic!("{}", refusal.finding),
            Some(MeterEvent::Batch(batch)) => assert_eq!(batch.cpu, CpuId(1)),
            _ => {}
        }
    }
}

/// Returns the QEMU processes whose command line names this directory.
fn guests_of(directory: &Path) -> Vec<u32> {
    let name = directory.display().to_string();
    fs::read_dir("/proc")
        .expect("proc")
        .flatten()
        .filter_map(|entry| {
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).into_owned();
            let id = entry.file_name().to_str()?.parse().ok()?;
            (line.contains("qemu") && line.contains(&name)).then_some(id)
        })
        .collect()
}

fn assert_gone(directory: &Path) {
    let begin = Instant::now();
    while !guests_of(directory).is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(20), "a guest is left");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[test]
fn an_emulated_guest_starts_is_placed_measures_and_ends() {
    let Some(bench) = bench() else { return };
    let domain = domain_in(selection("vm:tcg"), &bench.state());
    let plan = plan();
    let mut running = start(domain.as_ref(), &bench.meter, &plan, "guest", true);
    let process = guests_of(bench.directory.path());
    assert_eq!(process.len(), 1);

    let threads = measure(running.as_mut());
    assert_eq!(threads.len(), 1);
    assert_eq!(threads[0].cpu, CpuId(1));
    assert!(threads[0].samples > 0);
    assert_eq!(threads[0].placement.affinity, CpuSet::single(CpuId(1)));
    assert!(threads[0].placement.memory_locked);

    let report = running.guest().expect("a report");
    assert_eq!(report.accelerator, Accelerator::Tcg);
    assert_eq!(report.pinned, [Some(CpuId(0)), Some(CpuId(1))]);
    assert!(report.kernel_command_line.contains("nohz_full=1"));
    assert!(report.program.starts_with("QEMU "), "{}", report.program);
    assert_eq!(report.clock.len(), 2);
    let real_time = report
        .threads
        .iter()
        .find(|thread| thread.role == GuestThreadRole::VirtualCpu(1))
        .expect("the thread of the real-time CPU");
    assert_eq!(real_time.cpus, CpuSet::single(CpuId(1)));
    assert_eq!(real_time.policy, SchedulingPolicy::Fifo(1));
    for thread in &report.threads {
        if thread.role != GuestThreadRole::VirtualCpu(1) {
            assert_eq!(thread.cpus, CpuSet::single(CpuId(0)), "{thread:?}");
            assert_eq!(thread.policy, SchedulingPolicy::Other, "{thread:?}");
        }
    }
    let knob = |name: &str| {
        report
            .knobs
            .iter()
            .find(|knob| knob.location.contains(name))
            .unwrap_or_else(|| panic!("no setting {name}"))
    };
    assert!(knob("all other threads").satisfied);
    assert!(knob("thread of virtual CPU 1").satisfied);
    assert!(!knob("accelerator").satisfied);

    // The clock's uncertainty is that of its own exchange.
    let inside = running.inside().expect("an inside");
    assert_eq!(inside.cpu_inside(CpuId(1)), Some(CpuId(1)));
    assert_eq!(inside.cpu_inside(CpuId(7)), None);
    let before = monotonic();
    let relation = inside.clock().expect("a clock");
    assert!((before..monotonic()).contains(&relation.at.0));
    blocks_inside(running.as_ref());

    let shield = running.finish().expect("finished").expect("a shield");
    assert_eq!(shield.cpus, plan.cpus);

    // The same guest measures again, in a new shield.
    assert_eq!(guests_of(bench.directory.path()), process);
    let mut running = start(domain.as_ref(), &bench.meter, &plan, "guest", true);
    assert_eq!(guests_of(bench.directory.path()), process);
    assert!(measure(running.as_mut())[0].samples > 0);
    running.finish().expect("finished");

    drop(domain);
    assert_gone(bench.directory.path());
    assert!(!bench.directory.path().join("guests").exists());
}

/// A guest whose QEMU is stopped does not answer: it must be neither waited for nor kept.
#[test]
fn a_guest_that_hangs_between_two_starts_is_replaced() {
    let Some(bench) = bench() else { return };
    let domain = domain_in(selection("vm:tcg"), &bench.state());
    let plan = plan();
    let mut running = start(domain.as_ref(), &bench.meter, &plan, "guest", true);
    measure(running.as_mut());
    running.finish().expect("finished");
    let hung = guests_of(bench.directory.path());
    assert_eq!(hung.len(), 1);
    let stopped = Command::new("kill")
        .args(["-STOP", &hung[0].to_string()])
        .status();
    assert!(stopped.expect("kill").success());

    let begin = Instant::now();
    let mut running = start(domain.as_ref(), &bench.meter, &plan, "guest", true);
    assert!(begin.elapsed() < Duration::from_secs(600));
    let replaced = guests_of(bench.directory.path());
    assert_eq!(replaced.len(), 1, "{replaced:?}");
    assert_ne!(replaced, hung);
    assert!(measure(running.as_mut())[0].samples > 0);

    // A guest that is stopped while a meter is in it is not kept either.
    let stopped = Command::new("kill")
        .args(["-STOP", &replaced[0].to_string()])
        .status();
    assert!(stopped.expect("kill").success());
    running.finish().expect("finished");
    assert_gone(bench.directory.path());
}

/// Runs the blocker inside, of the weaker kind, which needs no module.
fn blocks_inside(running: &dyn Running) {
    let inside = running.inside().expect("an inside");
    let mut program = inside
        .spawn(&["rampart-meter".to_owned(), "block".to_owned()])
        .expect("a blocker");
    let mut send = |request: &BlockerRequest| {
        let line = serde_json::to_string(request).expect("a line");
        writeln!(program.input, "{line}").expect("sent");
        program.input.flush().expect("sent");
    };
    send(&BlockerRequest::Prepare {
        protocol: rampart_model::BLOCKER_PROTOCOL_VERSION,
        settings: BlockSettings {
            cpus: CpuSet::single(inside.cpu_inside(CpuId(1)).expect("a CPU")),
            length: Nanos::from_millis(20),
            count: 3,
            pause: Nanos::from_millis(50),
            spread: BlockSpread::Even,
            seed: 1,
            kind: Some(BlockKind::Spin),
        },
    });
    let mut made = 0;
    let mut lines = BufReader::new(&mut program.output).lines();
    loop {
        let line = lines.next().expect("a line").expect("readable");
        match serde_json::from_str(&line).expect("an event") {
            BlockerEvent::Ready { kind, .. } => {
                assert_eq!(kind, BlockKind::Spin);
                send(&BlockerRequest::Go {});
            }
            BlockerEvent::Blocked { spans } => made += spans.len(),
            BlockerEvent::Finished { made: reported, .. } => {
                assert_eq!((made, reported), (3, 3));
                return;
            }
            BlockerEvent::Refused(refusal) => panic!("{}", refusal.finding),
        }
    }
}

#[test]
fn two_guests_run_at_the_same_time() {
    let Some(bench) = bench() else { return };
    // Both use the only spare CPU, without real-time policies, to test that they do not disturb
    // each other.
    let state = bench.state();
    let (first, second) = (
        domain_in(selection("vm:tcg"), &state),
        domain_in(selection("vm:tcg"), &state),
    );
    let plan = MeterSettings {
        policy: SchedulingPolicy::Other,
        ..plan()
    };
    let mut one = start(first.as_ref(), &bench.meter, &plan, "one", true);
    let pause = one.guest().expect("a report").boot_time;
    assert!(pause > Nanos(0));
    measure(one.as_mut());
    one.finish().expect("finished");
    let mut two = start(second.as_ref(), &bench.meter, &plan, "two", true);
    assert_eq!(guests_of(bench.directory.path()).len(), 2);
    measure(two.as_mut());
    two.finish().expect("finished");
    let mut one = start(first.as_ref(), &bench.meter, &plan, "one", false);
    measure(one.as_mut());
    one.finish().expect("finished");
    assert_eq!(guests_of(bench.directory.path()).len(), 1);
    drop((first, second));
    assert_gone(bench.directory.path());
}

#[test]
fn a_guest_ends_with_its_killed_owner_and_its_resources_are_released() {
    if let Some(directory) = std::env::var_os(CHILD) {
        own_a_guest(Path::new(&directory));
    }
    let Some(bench) = bench() else { return };
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args([
            "--exact",
            "guests::a_guest_ends_with_its_killed_owner_and_its_resources_are_released",
            "--nocapture",
        ])
        .env(CHILD, bench.directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a child");
    let mut output = BufReader::new(child.stdout.take().expect("its output"));
    let mut line = String::new();
    while !line.contains("the guest is up") {
        line.clear();
        let length = output.read_line(&mut line).expect("readable");
        assert!(length > 0, "the child ended before its guest was up");
    }
    assert_eq!(guests_of(bench.directory.path()).len(), 1);
    child.kill().expect("killed");
    child.wait().expect("gone");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("readable");
    assert_gone(bench.directory.path());
    let state = bench.state();
    assert_eq!(release_guests(&state).removed.len(), 1);
    assert!(!bench.directory.path().join("guests").exists());
    rampart_host::release(&state).expect("released");
}

#[expect(clippy::print_stdout, reason = "the parent waits for it")]
fn own_a_guest(directory: &Path) -> ! {
    let domain = domain_in(selection("vm:tcg"), &StateDirectory::at(directory));
    let _running = start(domain.as_ref(), &meter(), &plan(), "guest", false);
    println!("the guest is up");
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}
