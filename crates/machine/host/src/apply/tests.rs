// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of plans applied to machines in memory: the result, and that release restores the machine
//! after an end at any step.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use rampart_model::{
    APPLICATION_SCHEMA_VERSION, ActivePlan, ActivePlanState, BootSection, ChangeList,
    ChangeLocation, ChangeStep, ChangeTarget, CpuOwnership, CpuRole, CpuSet, DomainKind,
    InterruptOwnership, IsolationMechanism, ResolvedDomain, ResolvedPlan, SchedulingPolicy,
    SmtPolicy, StepAction, StepKind,
};

use super::{Application, apply_on, prepare_restart_on};
use crate::fake::{FakeKernel, Layout, Machine, V2, cpus, directory, ordinary};
use crate::policy::Attributes;
use crate::release::release_locked;
use crate::{HostError, StateDirectory, active_plan, journal};

const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const WATCHDOG: &str = "/proc/sys/kernel/nmi_watchdog";
const TICKLESS: &str = "/sys/devices/system/cpu/nohz_full";
const TIMERS: &str = "/proc/sys/kernel/timer_migration";
const WRITEBACK: &str = "/sys/devices/virtual/workqueue/writeback/cpumask";

pub(super) fn machine(layout: Layout) -> Machine {
    let mut machine = ordinary(layout);
    for (path, text) in [
        (THP, "always madvise never\n"),
        (WATCHDOG, "1\n"),
        (WRITEBACK, "0f\n"),
    ] {
        machine.files.insert(path.into(), text.into());
    }
    machine
}

pub(super) fn domain(name: &str, list: &str) -> ResolvedDomain {
    ResolvedDomain {
        name: name.to_owned(),
        kind: DomainKind::Task,
        cpus: cpus(list),
        virtual_cpus: Vec::new(),
        emulator: CpuSet::new(),
        service: CpuSet::new(),
        policy: Some(SchedulingPolicy::Fifo(10)),
        reasons: Vec::new(),
        cache: None,
        cache_ways: Vec::new(),
        huge_pages: None,
        owner: None,
    }
}

pub(super) fn resolved() -> ResolvedPlan {
    ResolvedPlan {
        findings: Vec::new(),
        schema_version: 1,
        tool_version: String::new(),
        fingerprint: String::new(),
        housekeeping: cpus("0-1"),
        real_time: cpus("2-3"),
        smt: SmtPolicy::default(),
        cpus: cpus("0-3")
            .iter()
            .map(|cpu| CpuOwnership {
                cpu,
                owner: None,
                role: CpuRole::Housekeeping,
                policy: None,
                node: None,
            })
            .collect(),
        domains: vec![domain("press", "2"), domain("vision", "3")],
        interrupts: vec![InterruptOwnership {
            number: 5,
            action: "eth1".to_owned(),
            owner: Some("press".to_owned()),
            cpus: cpus("2"),
        }],
        caches: Vec::new(),
        nodes: Vec::new(),
        host: Default::default(),
        boot: BootSection::default(),
    }
}

pub(super) fn step(kind: StepKind, name: &str, locations: Vec<ChangeLocation>) -> ChangeStep {
    ChangeStep {
        kind,
        name: name.to_owned(),
        title: String::new(),
        action: StepAction::Apply,
        why: String::new(),
        present: String::new(),
        wanted: String::new(),
        locations,
        disruptive: None,
        fix: None,
        source: String::new(),
    }
}

pub(super) fn change_location(target: ChangeTarget, value: &str) -> ChangeLocation {
    ChangeLocation {
        location: format!("{target:?}"),
        target,
        present: String::new(),
        value: value.to_owned(),
    }
}

pub(super) fn file(path: &str, value: &str) -> Vec<ChangeLocation> {
    vec![change_location(ChangeTarget::File(path.to_owned()), value)]
}

pub(super) fn changes() -> ChangeList {
    ChangeList {
        schema_version: APPLICATION_SCHEMA_VERSION,
        tool_version: String::new(),
        steps: vec![
            step(StepKind::Isolation, "press", Vec::new()),
            step(StepKind::Isolation, "vision", Vec::new()),
            step(StepKind::Knob, "watchdog", file(WATCHDOG, "0")),
            step(StepKind::Knob, "huge-pages", file(THP, "never")),
            step(
                StepKind::Knob,
                "threads",
                vec![
                    change_location(ChangeTarget::ThreadPolicy(30), "fifo:11"),
                    change_location(ChangeTarget::ThreadAffinity(30), "0"),
                ],
            ),
            step(
                StepKind::Knob,
                "writeback",
                vec![change_location(
                    ChangeTarget::CpuMaskFile(WRITEBACK.to_owned()),
                    "1",
                )],
            ),
        ],
        boot_arguments: Vec::new(),
    }
}

pub(super) fn apply(
    kernel: &Arc<FakeKernel>,
    state: &StateDirectory,
    changes: &ChangeList,
) -> Result<ActivePlan, HostError> {
    apply_plan(kernel, state, &resolved(), changes)
}

pub(super) fn apply_plan(
    kernel: &Arc<FakeKernel>,
    state: &StateDirectory,
    resolved: &ResolvedPlan,
    changes: &ChangeList,
) -> Result<ActivePlan, HostError> {
    let kernel: Arc<FakeKernel> = Arc::clone(kernel);
    let application = application(resolved, changes);
    apply_on(kernel, state, &application, &mut |_| ())
}

pub(super) fn application<'a>(
    resolved: &'a ResolvedPlan,
    changes: &'a ChangeList,
) -> Application<'a> {
    Application {
        tool_version: "test",
        file: "plan.toml",
        text: "",
        resolved,
        changes,
    }
}

#[test]
fn a_prepared_restart_is_awaited() {
    let directory = directory();
    let state = StateDirectory::at(directory.path());
    let kernel = Arc::new(FakeKernel::new(machine(Layout::V2)));
    let loader = "/boot/extlinux/extlinux.conf";
    let before = "label mine\n  linux /vmlinuz\n  append root=/dev/vda1\n";
    kernel.machine().files.insert(loader.into(), before.into());
    let mut list = changes();
    list.boot_arguments = vec!["isolcpus=domain,2-3".to_owned()];
    let (resolved, own) = (resolved(), || -> Arc<FakeKernel> { Arc::clone(&kernel) });
    let application = application(&resolved, &list);
    for time in ["once", "again"] {
        let report = prepare_restart_on(own(), &state, &application).expect(time);
        assert!(report.changed, "{time}: {report:?}");
        let refusal = apply(&kernel, &state, &list).expect_err(time).to_string();
        for part in ["restart the machine", "rampart release", "plan.toml"] {
            assert!(refusal.contains(part), "{time}: {refusal}");
        }
        let waits = active_plan(&state).expect("read").expect("a plan");
        assert_eq!(waits.state, ActivePlanState::AwaitsRestart);
    }
    assert!(text(&kernel, loader).contains("isolcpus=domain,2-3"));
    let boot = "/proc/sys/kernel/random/boot_id";
    kernel
        .machine()
        .files
        .insert(boot.into(), "another\n".into());
    let report = prepare_restart_on(own(), &state, &application).expect("after the restart");
    assert!(!report.changed, "{report:?}");
    apply(&kernel, &state, &list).expect("applied");
}

/// Returns the part of a machine that a release must restore. The kernel, not Rampart, restores the
/// affinities that threads requested.
pub(super) fn restorable(machine: &Machine) -> Machine {
    let mut machine = machine.clone();
    machine.settle();
    for thread in machine.threads.values_mut() {
        thread.requested = None;
    }
    for text in machine.files.values_mut() {
        *text = text.trim().trim_start_matches('0').to_owned();
    }
    machine
}

pub(super) fn text(kernel: &FakeKernel, path: &str) -> String {
    kernel.machine().files[Path::new(path)].trim().to_owned()
}

#[test]
fn a_plan_stays_active_after_its_process_and_release_undoes_it() {
    for layout in [Layout::V1, Layout::V2] {
        let directory = directory();
        let state = StateDirectory::at(directory.path());
        let mut before = machine(layout);
        // Brackets mark the selected word; it is written without them.
        before
            .files
            .insert(THP.into(), "[always] madvise never\n".into());
        let kernel = Arc::new(FakeKernel::new(before.clone()));
        let plan = apply(&kernel, &state, &changes()).expect("apply");
        assert_eq!(plan.state, ActivePlanState::Active);
        assert_eq!(active_plan(&state).expect("read"), Some(plan.clone()));
        let expected = match layout {
            Layout::V2 => IsolationMechanism::IsolatedPartition,
            _ => IsolationMechanism::CpusetV1,
        };
        for (name, list) in [("press", "2"), ("vision", "3")] {
            let active = plan.domain(name).expect("domain");
            assert_eq!((active.isolation, &active.cpus), (expected, &cpus(list)));
            let group = PathBuf::from(active.group.as_deref().expect("group"));
            assert_eq!(kernel.machine().groups[&group].cpus, cpus(list));
        }
        assert_eq!(text(&kernel, WATCHDOG), "0");
        assert_eq!(text(&kernel, THP), "never");
        assert_eq!(text(&kernel, WRITEBACK).trim_start_matches('0'), "2");
        // An interrupt of a domain is moved to its CPUs, the others away from them.
        assert_eq!(text(&kernel, "/proc/irq/5/smp_affinity_list"), "2");
        assert_eq!(text(&kernel, "/proc/irq/4/smp_affinity_list"), "0-1");
        let thread = kernel.machine().threads[&30].clone();
        assert_eq!(thread.attributes.policy(), SchedulingPolicy::Fifo(11));
        assert_eq!(thread.affinity, cpus("0"));
        assert!(
            plan.findings
                .iter()
                .any(|finding| finding.location.contains("interrupt 6"))
        );

        // Each shield first undoes the changes of ended processes, but not those of a plan.
        crate::release::release_first(&*kernel, &state).expect("released");
        assert_eq!(text(&kernel, WATCHDOG), "0");
        let second = apply(&kernel, &state, &changes()).expect_err("one plan at a time");
        assert!(second.to_string().contains("rampart release"), "{second}");

        // The fake keeps the text that is written; the kernel shows all words again.
        kernel
            .machine()
            .files
            .insert(THP.into(), "always madvise [never]\n".into());
        let report = release_locked(&*kernel, &state).expect("release");
        assert!(report.left.is_empty(), "{:?}", report.left);
        assert_eq!(text(&kernel, THP), "always");
        before.files.insert(THP.into(), "always\n".into());
        assert_eq!(restorable(&kernel.machine()), restorable(&before));
        assert_eq!(active_plan(&state).expect("read"), None);
        assert!(journal::files(&state).is_empty());
    }
}

/// A member that starves where a real-time thread keeps the CPU cannot be moved: the kernel waits for it. The thread is
/// frozen first; where that is not possible, nothing is changed.
#[test]
fn release_moves_no_member_that_starves() {
    for (layout, can_freeze) in [(Layout::V1, false), (Layout::V2, false), (Layout::V2, true)] {
        let directory = directory();
        let state = StateDirectory::at(directory.path());
        let kernel = Arc::new(FakeKernel::new(machine(layout)));
        kernel.machine().add_thread(40, false, None);
        let home = kernel.machine().threads[&40].group.clone();
        let plan = apply(&kernel, &state, &changes()).expect("apply");
        let group = plan
            .domain("vision")
            .and_then(|domain| domain.group.clone());
        let group = PathBuf::from(group.expect("a group"));
        {
            let mut machine = kernel.machine();
            machine.kept = cpus("3");
            let throttling = "/proc/sys/kernel/sched_rt_runtime_us";
            machine.files.insert(throttling.into(), "-1\n".to_owned());
            let spins = "40 (spins) R 1 40 40 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1040 \
                         0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 3 10 1 0 0";
            machine
                .files
                .insert("/proc/40/stat".into(), spins.to_owned());
            let status = "voluntary_ctxt_switches:\t7\n".to_owned();
            machine.files.insert("/proc/40/status".into(), status);
            if can_freeze {
                machine
                    .files
                    .insert(group.join("cgroup.freeze"), "0\n".to_owned());
                let events = "populated 1\nfrozen 1\n".to_owned();
                machine.files.insert(group.join("cgroup.events"), events);
            }
            machine.threads.get_mut(&40).expect("a thread").group = group.clone();
        }
        let report = release_locked(&*kernel, &state).expect("release");
        let moved_to = kernel.machine().threads[&40].group.clone();
        if can_freeze {
            assert!(report.left.is_empty(), "{:?}", report.left);
            assert_eq!(moved_to, home);
        } else {
            let left = format!("{:?}", report.left);
            assert!(
                left.contains("CPU 3 belongs to spins (40), fifo:10"),
                "{left}"
            );
            assert!(left.contains("chrt --other --pid 0 40"), "{left}");
            assert!(report.restored.is_empty(), "{report:?}");
            assert_eq!(moved_to, group);
            assert!(
                active_plan(&state).expect("read").is_some(),
                "the plan is active"
            );
        }
    }
}

/// A tickless machine whose systemd has units.
fn managed() -> Machine {
    let mut machine = machine(Layout::V2);
    for (path, text) in [
        (TICKLESS, "2-3\n"),
        (TIMERS, "1\n"),
        ("/run/systemd/system/x", ""),
        ("/usr/bin/systemctl", ""),
    ] {
        machine.files.insert(path.into(), text.into());
    }
    for unit in ["init.scope", "system.slice", "user.slice"] {
        machine.add_unit(unit, true, "");
    }
    machine
}

/// Applies only the isolation of a plan with these lines under `[host]` to that machine.
fn apply_isolation_only(host: &str) -> Arc<FakeKernel> {
    let text = format!("[[domain]]\nname = \"press\"\nkind = \"task\"\ncpus = \"2\"\n{host}");
    let plan = rampart_plan::parse(&text, "plan.toml").unwrap_or_else(|error| panic!("{error}"));
    let resolved = ResolvedPlan {
        host: plan.host,
        ..resolved()
    };
    let mut list = changes();
    list.steps.retain(|step| step.kind == StepKind::Isolation);
    let directory = directory();
    let state = StateDirectory::at(directory.path());
    let before = managed();
    let kernel = Arc::new(FakeKernel::new(before.clone()));
    apply_plan(&kernel, &state, &resolved, &list).expect("apply");
    let applied = kernel.machine().clone();
    let report = release_locked(&*kernel, &state).expect("release");
    assert!(report.left.is_empty(), "{:?}", report.left);
    assert_eq!(restorable(&kernel.machine()), restorable(&before));
    Arc::new(FakeKernel::new(applied))
}

/// Returns the files that isolation changes, and the units of systemd that it restricts to CPUs.
fn changed_by_isolation(host: &str) -> Vec<String> {
    let (before, kernel) = (managed(), apply_isolation_only(host));
    let machine = kernel.machine();
    let files = before.files.iter().filter(|(path, text)| {
        let present = machine.files.get(*path);
        present.is_none_or(|present| present.trim() != text.trim())
    });
    let units = machine
        .units
        .iter()
        .filter(|(_, unit)| !unit.allowed_cpus.is_empty());
    let names = files.map(|(path, _)| path.display().to_string());
    names.chain(units.map(|(name, _)| name.clone())).collect()
}

/// Isolation changes settings that are knobs too: a plan leaves each to others by its name, and all of
/// them with `default`.
#[test]
fn isolation_keeps_settings_that_the_plan_leaves_to_others() {
    let all = [
        "/proc/irq/4/smp_affinity_list",
        "/proc/irq/5/smp_affinity_list",
        "/proc/irq/default_smp_affinity",
        TIMERS,
        "/sys/devices/virtual/workqueue/cpumask",
        WRITEBACK,
        "init.scope",
        "system.slice",
        "user.slice",
    ];
    assert_eq!(changed_by_isolation(""), all);
    for (host, left) in [
        ("interrupt-affinity = \"skip\"", &all[0..2]),
        ("default-interrupt-affinity = \"expect\"", &all[2..3]),
        ("timer-migration = \"skip\"", &all[3..4]),
        // Its own step writes it if it has another value.
        (
            "timer-migration = { action = \"apply\", value = \"migrate\" }",
            &all[3..4],
        ),
        ("unbound-workqueues = \"skip\"", &all[4..5]),
        ("workqueue-masks = \"skip\"", &all[5..6]),
        ("system-slice-cpus = \"expect\"", &all[6..8]),
        (
            "user-slice-cpus = { action = \"apply\", value = \"partition\" }",
            &all[8..9],
        ),
        ("default = \"skip\"", &all[..]),
        (
            "default = \"expect\"\nuser-slice-cpus = \"apply\"",
            &all[..8],
        ),
    ] {
        let expected: Vec<&str> = all
            .into_iter()
            .filter(|name| !left.contains(name))
            .collect();
        let changed = changed_by_isolation(&format!("[host]\n{host}\n"));
        assert_eq!(changed, expected, "{host}");
    }
}

/// The example of docs/plan.md leaves interrupts, workqueues and slices to others, and lets timers
/// migrate.
#[test]
fn the_plan_of_the_documentation_changes_only_its_own_settings() {
    let page = include_str!("../../../../../docs/plan.md");
    let (_, example) = page.split_once("[host]\n").expect("an example");
    let (host, _) = example.split_once("\n\n").expect("its end");
    assert!(host.contains("default = \"expect\""), "{host}");
    let changed = changed_by_isolation(&format!("[host]\n{host}\n"));
    assert_eq!(changed, Vec::<String>::new());
}

#[test]
fn the_first_refused_step_ends_the_application_and_undoes_it() {
    let directory = directory();
    let state = StateDirectory::at(directory.path());
    let mut before = machine(Layout::V2);
    before.refusing.insert(WRITEBACK.into());
    let kernel = Arc::new(FakeKernel::new(before.clone()));
    let mut list = changes();
    // Isolation would change it first.
    for step in &mut list.steps {
        step.kind = match step.name.as_str() {
            "press" | "vision" => StepKind::KernelCommandLine,
            _ => step.kind,
        };
    }
    let refusal = apply(&kernel, &state, &list)
        .expect_err("refused")
        .to_string();
    for part in ["writeback", "skip", "[host]", "refuses"] {
        assert!(refusal.contains(part), "{refusal}");
    }
    assert_eq!(restorable(&kernel.machine()), restorable(&before));
    assert_eq!(active_plan(&state).expect("read"), None);
}

#[test]
fn keeps_and_reports_values_that_others_changed_meanwhile() {
    let directory = directory();
    let state = StateDirectory::at(directory.path());
    let kernel = Arc::new(FakeKernel::new(machine(Layout::V2)));
    apply(&kernel, &state, &changes()).expect("apply");
    kernel.machine().files.insert(WATCHDOG.into(), "5\n".into());
    if let Some(thread) = kernel.machine().threads.get_mut(&30) {
        thread.attributes = Attributes::of(SchedulingPolicy::Fifo(77));
    }
    let report = release_locked(&*kernel, &state).expect("release");
    let locations: Vec<&str> = report
        .left
        .iter()
        .map(|left| left.location.as_str())
        .collect();
    assert_eq!(locations, [WATCHDOG, "/proc/30"]);
    assert_eq!(text(&kernel, WATCHDOG), "5");
    let thread = kernel.machine().threads[&30].clone();
    assert_eq!(thread.attributes.policy(), SchedulingPolicy::Fifo(77));
    assert_eq!(active_plan(&state).expect("read"), None);
}

/// Ends the process at every step of `apply`, then every step of the `release` after it.
fn survives_every_end(before: &Machine) {
    survives_every_end_of(before, &resolved(), &changes());
}

pub(super) fn survives_every_end_of(before: &Machine, resolved: &ResolvedPlan, list: &ChangeList) {
    let mut steps = 1;
    loop {
        let directory = directory();
        let state = StateDirectory::at(directory.path());
        let kernel = Arc::new(FakeKernel::new(before.clone()));
        kernel.end_after(Some(steps));
        let answer = apply_plan(&kernel, &state, resolved, list);
        let whole = !kernel.ended();
        assert_eq!(answer.is_ok(), whole, "after {steps} steps: {answer:?}");
        // The release is killed too, later each time.
        kernel.end_after(Some(1 + steps / 2));
        let _ = release_locked(&*kernel, &state);
        kernel.end_after(None);
        let report = release_locked(&*kernel, &state).expect("release");
        assert!(report.left.is_empty(), "after {steps}: {:?}", report.left);
        assert_eq!(
            restorable(&kernel.machine()),
            restorable(before),
            "after {steps} steps"
        );
        assert_eq!(active_plan(&state).expect("read"), None);
        assert!(journal::files(&state).is_empty());
        if whole {
            assert!(steps > 60, "{steps} steps are too few");
            return;
        }
        steps += 1;
    }
}

#[test]
fn v1_survives_every_end() {
    survives_every_end(&machine(Layout::V1));
}

#[test]
fn v2_survives_every_end() {
    survives_every_end(&machine(Layout::V2));
}

/// Before 6.2 the kernel forgets the affinities of its own threads, also of those that isolcpus= moves.
#[test]
fn v2_before_6_2_survives_every_end() {
    let mut before = machine(Layout::V2);
    before.remembers = false;
    before.add_thread(31, true, Some(cpus("0")));
    survives_every_end(&before);
}

#[test]
fn a_restart_undoes_the_plan_and_it_can_be_applied_again() {
    let directory = directory();
    let state = StateDirectory::at(directory.path());
    let kernel = Arc::new(FakeKernel::new(machine(Layout::V2)));
    apply(&kernel, &state, &changes()).expect("apply");
    let mut restarted = machine(Layout::V2);
    restarted
        .files
        .insert("/proc/sys/kernel/random/boot_id".into(), "another\n".into());
    let kernel = Arc::new(FakeKernel::new(restarted));
    let plan = apply(&kernel, &state, &changes()).expect("apply again");
    assert_eq!(plan.boot, "another");
    assert!(
        kernel
            .machine()
            .groups
            .contains_key(&Path::new(V2).join("rampart-press"))
    );
    assert_eq!(journal::files(&state).len(), 1);
    release_locked(&*kernel, &state).expect("release");
}

#[test]
fn changes_nothing_without_a_journal() {
    let directory = directory();
    let state = StateDirectory::at(directory.path().join("state"));
    std::fs::create_dir_all(state.path()).expect("directory");
    std::fs::write(state.path().join("journal"), "not a directory").expect("file");
    let before = machine(Layout::V2);
    let kernel = Arc::new(FakeKernel::new(before.clone()));
    let refusal = apply(&kernel, &state, &changes()).expect_err("no journal");
    assert!(
        refusal.to_string().contains("RAMPART_STATE_DIR"),
        "{refusal}"
    );
    assert_eq!(restorable(&kernel.machine()), restorable(&before));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn release_undoes_any_steps(
        chosen in proptest::collection::vec(any::<bool>(), 6),
        v2 in any::<bool>(),
        watchdog in 0..3_u8,
    ) {
        let directory = directory();
        let state = StateDirectory::at(directory.path());
        let mut before = machine(if v2 { Layout::V2 } else { Layout::V1 });
        before.files.insert(WATCHDOG.into(), format!("{watchdog}\n"));
        let kernel = Arc::new(FakeKernel::new(before.clone()));
        let mut list = changes();
        for (step, chosen) in list.steps.iter_mut().zip(chosen) {
            if !chosen {
                step.action = StepAction::Skip;
            }
        }
        apply(&kernel, &state, &list).expect("apply");
        let report = release_locked(&*kernel, &state).expect("release");
        prop_assert!(report.left.is_empty(), "{:?}", report.left);
        prop_assert_eq!(restorable(&kernel.machine()), restorable(&before));
    }
}

/// Returns the files and threads of a recorded machine that the changes of a plan touch, in memory.
fn in_memory(name: &str, cpus: &str) -> (Machine, ResolvedPlan, ChangeList) {
    let root = crate::MachineRoot::at(rampart_recorded::directory(name));
    let text = format!(
        "[[domain]]\nname = \"press\"\nkind = \"task\"\ncpus = \"{cpus}\"\n\
         [host]\nreal-time-throttling = \"apply\"\n"
    );
    let planned = rampart_plan::parse(&text, "plan.toml").unwrap_or_else(|error| panic!("{error}"));
    let facts = crate::read_machine(&root);
    let environment = crate::read_environment(&root, &[]);
    let resolved = rampart_plan::resolve(&facts, &planned, &environment);
    let readings = crate::read_knob_values(&root, &resolved.real_time);
    let subject = rampart_rules::Subject {
        machine: &facts,
        readings: &readings,
    };
    let isolation = rampart_rules::Isolation::of(&resolved);
    let list = rampart_rules::change_list(&resolved, subject, &isolation, "test");
    let count = u32::try_from(facts.topology.online.len()).expect("a number");
    let layout = match facts.control_groups.as_str() {
        "v2" => Layout::V2,
        _ => Layout::V1,
    };
    let mut machine = Machine::new(count, layout);
    for location in list.steps.iter().flat_map(|step| &step.locations) {
        match &location.target {
            ChangeTarget::File(path)
            | ChangeTarget::CpuListFile(path)
            | ChangeTarget::CpuMaskFile(path)
            | ChangeTarget::Schemata(path) => {
                let present = format!("{}\n", location.present);
                machine.files.entry(path.into()).or_insert(present);
            }
            ChangeTarget::ThreadPolicy(thread) | ChangeTarget::ThreadAffinity(thread) => {
                if !machine.threads.contains_key(thread) {
                    machine.add_thread(*thread, true, None);
                }
            }
            ChangeTarget::Service(_) => {}
        }
    }
    (machine, resolved, list)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn release_undoes_any_steps_on_recorded_machines(
        name in prop_oneof![
            Just("board"), Just("laptop"), Just("server"), Just("simulated"), Just("virtual-machine"),
        ],
        skipped in proptest::collection::vec(any::<bool>(), 40),
    ) {
        let (mut before, resolved, mut list) = in_memory(name, "1");
        for (step, skipped) in list.steps.iter_mut().zip(skipped) {
            if skipped && step.action == StepAction::Apply {
                step.action = StepAction::Skip;
            }
        }
        let directory = directory();
        let state = StateDirectory::at(directory.path());
        let kernel = Arc::new(FakeKernel::new(before.clone()));
        apply_plan(&kernel, &state, &resolved, &list).expect(name);
        // The fake returns the word that was written; the kernel all words with one marked.
        for (path, text) in &mut kernel.machine().files {
            let marked = before.files.get(path).is_some_and(|text| text.contains('['));
            if marked && !text.contains('[') {
                *text = format!("[{}]\n", text.trim());
            }
        }
        let report = release_locked(&*kernel, &state).expect("release");
        prop_assert!(report.left.is_empty(), "{name}: {:?}", report.left);
        for text in before.files.values_mut() {
            *text = crate::notation::Notation::Marked.to_write(text).to_owned();
        }
        for text in kernel.machine().files.values_mut() {
            *text = crate::notation::Notation::Marked.to_write(text).to_owned();
        }
        prop_assert_eq!(restorable(&kernel.machine()), restorable(&before));
    }
}
