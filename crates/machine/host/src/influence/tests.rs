// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;

#[test]
fn interrupts_of_each_cpu_are_left_out() {
    let files = tempfile::tempdir().expect("a directory");
    let write = |path: &str, text: &str| {
        let path = files.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("created");
        fs::write(path, text).expect("written");
    };
    let table = "CPU0 CPU1\n 11: 7 9 GICv3 27 Level arch_timer\n 14: 0 3 GICv3 33 Level uart\n";
    write("proc/interrupts", table);
    for (number, hardware, action) in [(11, 27, "arch_timer"), (14, 33, "uart")] {
        write(&format!("sys/kernel/irq/{number}/chip_name"), "GICv3\n");
        write(
            &format!("sys/kernel/irq/{number}/hwirq"),
            &format!("{hardware}\n"),
        );
        write(
            &format!("sys/kernel/irq/{number}/actions"),
            &format!("{action}\n"),
        );
    }
    let mut reader = InfluenceReader {
        root: MachineRoot::at(files.path()),
        ..InfluenceReader::default()
    };
    let cpu: CpuSet = "1".parse().expect("a CPU");
    reader.watch(cpu.clone(), cpu, Vec::new());
    for _ in 0..2 {
        let found = reader.read().interrupts;
        assert_eq!(found.keys().collect::<Vec<_>>(), [&14]);
        assert_eq!(found[&14].counts, BTreeMap::from([(CpuId(1), 3)]));
    }
}

#[test]
fn reads_this_program_and_its_placement() {
    let own = rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .unsigned_abs();
    let root = MachineRoot::system();
    let cpus: CpuSet = root.value("sys/devices/system/cpu/online").expect("CPUs");
    let mut reader = InfluenceReader::default();
    reader.watch(cpus.clone(), cpus.clone(), vec![own, u32::MAX]);
    let first = reader.read();
    let thread = |snapshot: &InfluenceSnapshot| {
        let mut threads = snapshot.programs.iter();
        threads.find(|one| one.thread == own).cloned()
    };
    let before = thread(&first).expect("this thread");
    assert_eq!(before.process, std::process::id());
    assert!(before.ticks <= before.exact.unwrap_or(Nanos(u64::MAX)) + TICK + TICK);
    assert!(first.programs.iter().all(|one| one.process != 2));
    assert_eq!(first.measuring.keys().collect::<Vec<_>>(), [&own]);
    let placed = &first.measuring[&own];
    assert_eq!(placed.process, std::process::id());
    assert!(placed.affinity.is_subset(&cpus) && !placed.affinity.is_empty());
    assert_eq!(placed.policy, thread_policy(own).expect("policy"));

    let later = reader.read();
    let after = thread(&later).expect("this thread");
    assert!(after.exact >= before.exact && after.start == before.start);
    let (one, two) = (&first.clocks, &later.clocks);
    assert!(one.monotonic < two.monotonic && one.raw < two.raw);
    assert!(one.adjustment.is_none_or(|rate| rate.tick > 0), "{one:?}");
    assert!(!later.interrupts.is_empty());
}

/// What its files say then is no change of its placement.
#[test]
fn a_measuring_thread_that_ends_is_left_out() {
    let own = rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .unsigned_abs();
    let files = tempfile::tempdir().expect("a directory");
    let directory = files.path().join(format!("proc/{own}"));
    fs::create_dir_all(&directory).expect("created");
    let write = |name: &str, text: &str| fs::write(directory.join(name), text).expect("written");
    let stat = |state: &str, flags: u32| {
        let zeros = "0 ".repeat(43);
        write(
            "stat",
            &format!("{own} (meter) {state} 1 1 1 0 -1 {flags} {zeros}"),
        );
    };
    let mut reader = InfluenceReader {
        root: MachineRoot::at(files.path()),
        ..InfluenceReader::default()
    };
    reader.watch(CpuSet::new(), CpuSet::new(), vec![own]);
    let found = |reader: &InfluenceReader| {
        let mut threads = reader.measuring_threads().into_values();
        threads.next().map(|thread| thread.control_groups)
    };
    write("status", &format!("Tgid:\t{own}\nState:\tS (sleeping)\n"));
    stat("S", 0x40_0040);
    assert_eq!(found(&reader), None, "no file of control groups");
    write("cgroup", "0::/rampart-1\n");
    assert_eq!(found(&reader), Some(vec!["v2:/rampart-1".to_owned()]));
    for (state, flags) in [("R", 0x40_0044), ("Z", 0x40_0040)] {
        stat(state, flags);
        assert_eq!(found(&reader), None, "{state}");
    }
    fs::remove_file(directory.join("stat")).expect("removed");
    assert_eq!(found(&reader), None, "no state");
}

#[test]
fn finds_the_groups_that_determine_cpus() {
    assert_eq!(
        cpu_groups("5:cpuset,cpu:/a:b\n4:memory:/m\n1:name=systemd:/\n0::/user.slice\n"),
        ["cpuset,cpu:/a:b", "v2:/user.slice"]
    );
    assert!(cpu_groups("").is_empty());
}

#[test]
fn reads_the_cpus_of_an_interrupt_again_only_after_it_came() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |file: &str, text: &str| {
        let path = directory.path().join(file);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, text).expect("a file");
    };
    let table = |count: u32| {
        let text = format!("  CPU0 CPU1\n 7: 9 {count} IO-APIC 7-edge disk\nLOC: 1 2 timer\n");
        write("proc/interrupts", &text);
    };
    table(4);
    write("proc/irq/7/smp_affinity_list", "0\n");
    write("proc/irq/7/effective_affinity_list", "0\n");
    write("sys/kernel/irq/7/actions", "disk\n");
    let mut reader = InfluenceReader {
        root: MachineRoot::at(directory.path()),
        ..InfluenceReader::default()
    };
    reader.watch(CpuSet::single(CpuId(1)), CpuSet::new(), Vec::new());
    reader.update_interrupts();
    let on = |reader: &InfluenceReader| reader.interrupts[&7].effective.to_string();
    assert_eq!(on(&reader), "0");
    write("proc/irq/7/effective_affinity_list", "1\n");
    reader.update_interrupts();
    assert_eq!(on(&reader), "0");
    table(5);
    reader.update_interrupts();
    assert_eq!(on(&reader), "1");
    let state = &reader.interrupts[&7];
    assert_eq!(state.counts, BTreeMap::from([(CpuId(1), 5)]));
    assert_eq!(
        (state.action.as_str(), state.affinity.to_string()),
        ("disk", "0".to_owned())
    );
    assert_eq!(reader.interrupts.len(), 1);
}

#[test]
fn reads_the_times_of_the_cpus() {
    let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu1 1 2 3 40 5 6 7 8 0 0\nintr 5 6\ncpu2 1 2 3\n";
    let ticks = |ticks: u64| Nanos(ticks * TICK.0);
    let times = CpuTimes {
        programs: ticks(3),
        idle: ticks(45),
        interrupts: ticks(13),
        steal: ticks(8),
    };
    assert_eq!(cpu_times(text), BTreeMap::from([(CpuId(1), times)]));
    let mut reader = InfluenceReader::default();
    let cpus: CpuSet = reader
        .root
        .value("sys/devices/system/cpu/online")
        .expect("CPUs");
    assert!(reader.read().kernel_threads.is_empty());
    reader.watch(CpuSet::new(), cpus.clone(), Vec::new());
    let found = reader.read();
    assert_eq!(found.cpu_times.keys().copied().collect::<CpuSet>(), cpus);
}

#[test]
fn idle_time_is_exact_unless_the_tick_never_stops() {
    let directory = tempfile::tempdir().expect("a directory");
    let exact = |line: &str| {
        fs::create_dir_all(directory.path().join("proc")).expect("a directory");
        fs::write(directory.path().join("proc/cmdline"), line).expect("a file");
        let mut reader = InfluenceReader {
            root: MachineRoot::at(directory.path()),
            ..InfluenceReader::default()
        };
        reader.idle_is_exact()
    };
    assert!(exact("quiet nohz=on nohz_full=1"));
    assert!(!exact("quiet nohz=off"));
}

#[test]
fn boost_of_all_cpus_limits_the_frequency_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |file: &str, text: &str| {
        let path = directory.path().join("sys/devices/system/cpu").join(file);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, text).expect("a file");
    };
    write("cpufreq/boost", "1\n");
    write("intel_pstate/no_turbo", "0\n");
    write("cpu1/cpufreq/scaling_governor", "performance\n");
    write("cpu2/cpufreq/scaling_governor", "powersave\n");
    let mut reader = InfluenceReader {
        root: MachineRoot::at(directory.path()),
        ..InfluenceReader::default()
    };
    reader.watch(CpuSet::single(CpuId(1)), CpuSet::new(), Vec::new());
    let limits = reader.frequency_limits();
    let values: Vec<&str> = limits.values().map(String::as_str).collect();
    assert_eq!(values, ["performance", "1", "0"]);
}
