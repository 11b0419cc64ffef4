// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of observing a recorded machine and the running one.

use std::path::Path;

use rampart_model::{
    ChangeTarget, CpuId, DomainKind, LastExit, Nanos, ProcessIdentity, SUPERVISION_SCHEMA_VERSION,
    SchedulingPolicy, SupervisedDomain, SupervisedState,
};

use super::{Watch, observe};
use crate::{MachineRoot, StateDirectory};

fn write(root: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directory");
        std::fs::write(path, text).expect("file");
    }
}

/// Returns the stat line of a thread.
fn stat(number: u32, name: &str, flags: u64, ticks: u64, cpu: u32, policy: &str) -> String {
    format!(
        "{number} ({name}) S 1 0 0 0 -1 {flags} 0 0 0 0 {ticks} 2 0 0 20 0 1 0 777 0 0 \
         18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 {cpu} {policy} 0 0"
    )
}

fn machine() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("directory");
    write(
        directory.path(),
        &[
            ("proc/uptime", "12.5 20.0\n"),
            ("proc/sys/kernel/hostname", "recorded\n"),
            ("proc/sys/kernel/random/boot_id", "this\n"),
            ("sys/devices/system/cpu/online", "0-1\n"),
            ("sys/devices/system/cpu/isolated", "\n"),
            ("sys/devices/system/cpu/nohz_full", "(null)\n"),
            (
                "sys/devices/system/cpu/cpu1/topology/thread_siblings_list",
                "0-1\n",
            ),
            (
                "proc/stat",
                "cpu  1 1 1 1 1 1 1 1\ncpu0 1 0 1 8 0 0 0 0 0 0\ncpu1 0 0 0 9 1 0 0 0 0 0\n",
            ),
            (
                "proc/interrupts",
                "      CPU0  CPU1\n 24:  7  1  PCI-MSI 1-edge  virtio0\n 25:  1  0  PCI-MSI 2-edge  x\nLOC:  5  6  Local timer interrupts\nERR:  0\n",
            ),
            ("proc/irq/24/smp_affinity_list", "0\n"),
            ("proc/irq/24/effective_affinity_list", "0\n"),
            ("sys/kernel/irq/25/actions", "eth0, eth1\n"),
            ("proc/softirqs", "      CPU0  CPU1\n  NET_RX:  3  4\n"),
            (
                "proc/self/mountinfo",
                "29 25 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            ),
            ("sys/fs/cgroup/press/cpuset.cpus", "1\n"),
            ("sys/fs/cgroup/press/cpuset.cpus.effective", "1\n"),
            (
                "sys/fs/cgroup/press/cpuset.cpus.partition",
                "isolated invalid (x)\n",
            ),
            ("sys/fs/cgroup/press/cgroup.threads", "100\n"),
            ("sys/fs/cgroup/press/inner/cgroup.threads", "101\n"),
            (
                "sys/fs/cgroup/press/inner/cpuset.cpus.partition",
                "member\n",
            ),
            (
                "proc/100/stat",
                &stat(100, "press) (x", 0x40_0000, 50, 1, "80 1"),
            ),
            (
                "proc/100/task/100/stat",
                &stat(100, "press) (x", 0x40_0000, 50, 1, "80 1"),
            ),
            ("proc/100/task/100/schedstat", "123456789 5 6\n"),
            (
                "proc/100/task/101/stat",
                &stat(101, "helper", 0x40_0000, 0, 0, "0 0"),
            ),
            ("proc/100/status", "Name:\tpress\nCpus_allowed_list:\t1\n"),
            ("proc/101/status", "Cpus_allowed_list:\t0-1\n"),
            (
                "proc/20/stat",
                &stat(20, "ksoftirqd/1", 0x0420_0000, 0, 1, "0 0"),
            ),
            ("proc/21/stat", "nonsense"),
            ("proc/sys/kernel/timer_migration", "1\n"),
        ],
    );
    directory
}

#[test]
fn observes_a_recorded_machine() {
    let directory = machine();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, "text").expect("plan");
    let watch = Watch {
        cpus: "1".parse().expect("CPUs"),
        groups: vec![
            "/sys/fs/cgroup/press".to_owned(),
            "/sys/fs/cgroup/no".to_owned(),
        ],
        locations: vec![
            ChangeTarget::File("/proc/sys/kernel/timer_migration".to_owned()),
            ChangeTarget::ThreadPolicy(100),
            ChangeTarget::ThreadAffinity(101),
            ChangeTarget::ThreadPolicy(999),
            ChangeTarget::File("/proc/sys/kernel/no".to_owned()),
        ],
        plan_file: Some("/plan.toml".to_owned()),
        ..Watch::default()
    };
    let seen = observe(&MachineRoot::at(directory.path()), &watch);
    assert_eq!(seen.at, Nanos::from_millis(12_500));
    assert_eq!(
        (seen.host_name.as_str(), seen.boot.as_deref()),
        ("recorded", Some("this"))
    );
    assert_eq!(seen.cpus[&CpuId(0)].busy, Nanos::from_millis(20));
    assert_eq!(
        seen.cpus[&CpuId(1)].busy,
        Nanos::ZERO,
        "waiting for a disk is idle"
    );
    assert_eq!(seen.cpus[&CpuId(1)].siblings.to_string(), "0-1");
    assert!(seen.isolation.nohz_full.is_empty());
    let partition = &seen.isolation.partitions[0];
    assert_eq!(
        (partition.group.as_str(), seen.isolation.partitions.len()),
        ("/sys/fs/cgroup/press", 1)
    );
    assert_eq!(partition.kind, "isolated invalid (x)");

    let [softirqd, press, helper] = seen.threads.as_slice() else {
        panic!("{:#?}", seen.threads);
    };
    assert!(softirqd.kernel && softirqd.bound && !press.kernel);
    assert_eq!(press.name, "press) (x");
    assert_eq!(press.policy, Some(SchedulingPolicy::Fifo(80)));
    assert_eq!(
        press.cpu_time,
        Nanos(123_456_789),
        "to the nanosecond if the kernel reports it",
    );
    assert_eq!(
        helper.cpu_time,
        Nanos::from_millis(20),
        "in ticks otherwise"
    );
    assert_eq!(
        helper.affinity.as_ref().map(ToString::to_string).as_deref(),
        Some("0-1")
    );

    let names: Vec<&str> = seen
        .interrupts
        .iter()
        .map(|line| line.action.as_str())
        .collect();
    assert_eq!(names, ["virtio0", "eth0, eth1", "Local timer interrupts"]);
    assert_eq!(seen.interrupts[0].affinity, "0".parse().ok());
    assert_eq!(seen.softirqs[0].counts[&CpuId(1)], 4);

    let group = &seen.groups["/sys/fs/cgroup/press"];
    assert_eq!(
        (group.exists, group.threads.as_slice()),
        (true, [100, 101].as_slice())
    );
    assert!(!seen.groups["/sys/fs/cgroup/no"].exists);
    let values: Vec<Option<&str>> = seen
        .values
        .iter()
        .map(|(_, value)| value.as_deref())
        .collect();
    assert_eq!(
        values,
        [Some("1"), Some("fifo:80"), Some("0-1"), None, None]
    );
    assert_eq!(
        (seen.plan_text.as_deref(), seen.plan_gone),
        (Some("text"), false)
    );
    let gone = Watch {
        plan_file: Some("/gone.toml".to_owned()),
        ..Watch::default()
    };
    let seen = observe(&MachineRoot::at(directory.path()), &gone);
    assert_eq!((seen.plan_text, seen.plan_gone), (None, true));
}

/// Returns a record as a supervisor writes it.
fn record(name: &str) -> SupervisedDomain {
    SupervisedDomain {
        schema_version: SUPERVISION_SCHEMA_VERSION,
        tool_version: "0".to_owned(),
        name: name.to_owned(),
        kind: DomainKind::Task,
        state: SupervisedState::Waiting,
        boot: "this".to_owned(),
        supervisor: ProcessIdentity {
            process: 100,
            start: 777,
        },
        program: None,
        started_at: None,
        restarts: 2,
        last_exit: Some(LastExit {
            at: Nanos::ZERO,
            status: "exit status: 3".to_owned(),
            success: false,
        }),
        log: String::new(),
        container: None,
        findings: Vec::new(),
    }
}

#[test]
fn reads_the_records_of_supervisors() {
    let directory = machine();
    let programs = directory.path().join("domains");
    let process = |process, start| Some(ProcessIdentity { process, start });
    let press = SupervisedDomain {
        program: process(20, 1),
        ..record("press")
    };
    let vision = SupervisedDomain {
        state: SupervisedState::Running,
        program: process(100, 777),
        last_exit: None,
        ..record("vision")
    };
    let earlier = SupervisedDomain {
        boot: "another".to_owned(),
        ..vision.clone()
    };
    let text = |record| serde_json::to_string(record).expect("a record");
    write(
        &programs,
        &[
            ("press.json", &text(&press)),
            ("vision.json", &text(&vision)),
            ("earlier.json", &text(&earlier)),
            ("broken.json", "{"),
        ],
    );
    let watch = Watch {
        domains: ["press", "vision", "earlier", "broken", "absent"]
            .map(str::to_owned)
            .to_vec(),
        programs,
        ..Watch::default()
    };
    let seen = observe(&MachineRoot::at(directory.path()), &watch).programs;
    assert_eq!(seen.len(), 3, "{seen:#?}");
    assert!(seen[0].supervised);
    assert!(!seen[0].alive, "process 20 is a later one");
    assert_eq!(
        (seen[0].restarts, seen[0].state),
        (2, SupervisedState::Waiting)
    );
    assert_eq!(seen[0].last_exit.as_deref(), Some("exit status: 3"));
    assert_eq!((seen[1].process, seen[1].alive), (Some(100), true));
    assert_eq!(seen[1].last_exit, None);
    assert!(!seen[2].supervised && !seen[2].alive, "of another boot");
}

#[test]
fn counters_of_the_running_machine_increase() {
    let (root, state) = (MachineRoot::system(), StateDirectory::at("/none"));
    let watch = Watch::of(None, &root, &state);
    let before = observe(&root, &watch);
    // Only this thread: those of other tests begin and end.
    let own = rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .unsigned_abs();
    let used = || -> std::time::Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.try_into().expect("a time")
    };
    let begin = used();
    while used() < begin + std::time::Duration::from_millis(30) {
        std::hint::spin_loop();
    }
    let after = observe(&root, &watch);
    assert!(after.at > before.at && !after.online.is_empty());
    assert_eq!(after.cpus.len(), after.online.len());
    let time = |seen: &rampart_model::Observation| -> Nanos {
        let own = seen.threads.iter().filter(|thread| thread.thread == own);
        own.map(|thread| thread.cpu_time).sum()
    };
    assert!(time(&after) > time(&before));
    let counted = |seen: &rampart_model::Observation| -> u64 {
        let counts = seen.softirqs.iter().flat_map(|line| line.counts.values());
        counts.sum()
    };
    assert!(counted(&after) >= counted(&before));
}
