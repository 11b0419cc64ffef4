// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each rule: a plan that breaks it, what is said, and a plan beside it that keeps it.

mod support;

use rampart_model::{
    CpuId, HugePages, Interrupt, KernelThread, Machine, Nanos, NetworkQueues, ResourceLimits,
    SchedulingPolicy, Severity, Surroundings,
};
use support::{broken, cpus, found, machine, one, quad, resolve, resolve_in, threads};

fn task(cpus: &str) -> String {
    format!("[[domain]]\nname = \"a\"\nkind = \"task\"\ncpus = {cpus}\npolicy = {{ fifo = 10 }}\n")
}

fn guest(vcpus: &str, more: &str) -> String {
    format!(
        "[[domain]]\nname = \"g\"\nkind = \"vm\"\nvcpus = {vcpus}\nmemory = {{ size = \"64MiB\" }}\n{more}\n"
    )
}

fn severity(machine: &Machine, text: &str, around: &Surroundings, rule: &str) -> Option<Severity> {
    let resolved = resolve_in(machine, text, around);
    broken(&resolved, rule)
        .first()
        .map(|finding| finding.finding.severity)
}

#[test]
fn every_cpu_exists_and_is_online() {
    let mut quad = quad();
    quad.topology.possible = cpus("0-7");
    let finding = resolve(&quad, &task("\"3-5\""));
    let finding = one(&finding, "cpu-exists");
    assert!(finding.impossible);
    assert_eq!(finding.domain.as_deref(), Some("a"));
    assert!(
        finding
            .finding
            .to_string()
            .contains("cpu4/online; echo 1 > "),
        "{}",
        finding.finding
    );
    let resolved = resolve(
        &quad,
        &format!("[machine]\nhousekeeping = \"0,9\"\n{}", task("\"1\"")),
    );
    assert!(
        one(&resolved, "cpu-exists")
            .finding
            .to_string()
            .contains("CPU 9")
    );
    assert!(broken(&resolve(&quad, &task("\"3\"")), "cpu-exists").is_empty());
    assert!(
        !broken(
            &resolve(&quad, &guest("\"2\"", "emulator = \"8\"")),
            "cpu-exists"
        )
        .is_empty()
    );
}

#[test]
fn housekeeping_is_there_and_is_nobody_elses() {
    let quad = quad();
    let rule = "housekeeping";
    let all = resolve(&quad, &task("\"0-3\""));
    assert!(one(&all, rule).impossible);
    let boot = resolve(&quad, &task("\"0\""));
    assert!(one(&boot, rule).finding.to_string().contains("boot CPU"));
    let both = resolve(
        &quad,
        &format!("[machine]\nhousekeeping = \"0-2\"\n{}", task("\"2-3\"")),
    );
    let finding = one(&both, rule);
    assert_eq!(
        finding.finding.mend.as_deref(),
        Some("write housekeeping = \"0-1\"")
    );
    assert_eq!(
        (both.housekeeping, both.real_time),
        (cpus("0-1"), cpus("2-3"))
    );
    let forgotten = resolve(
        &quad,
        &format!("[machine]\nhousekeeping = \"0\"\n{}", task("\"3\"")),
    );
    assert_eq!(one(&forgotten, rule).finding.severity, Severity::Warning);
    let host = "[machine]\nhousekeeping = \"0-2\"\n[[domain]]\nname = \"h\"\nkind = \"host\"\ncpus = \"1\"\n";
    assert!(
        !resolve(&quad, &host.replace("0-2", "0"))
            .findings
            .iter()
            .all(|f| f.rule != rule)
    );
    assert!(broken(&resolve(&quad, &host.replace("0-2", "0-3")), rule).is_empty());
    assert!(broken(&resolve(&quad, &task("\"1\"")), rule).is_empty());
}

#[test]
fn a_cpu_has_one_owner() {
    let quad = quad();
    let second = task("\"2-3\"").replace("\"a\"", "\"b\"");
    let resolved = resolve(&quad, &format!("{}{second}", task("\"1-2\"")));
    let finding = one(&resolved, "one-owner");
    assert_eq!(finding.domain.as_deref(), Some("b"));
    assert!(finding.finding.to_string().contains("CPU 2 is of `a` too"));
    assert_eq!(resolved.domains[1].cpus, cpus("3"));
    let apart = task("\"3\"").replace("\"a\"", "\"b\"");
    assert!(
        broken(
            &resolve(&quad, &format!("{}{apart}", task("\"1-2\""))),
            "one-owner"
        )
        .is_empty()
    );
    let thread = format!(
        "{}threads = [{{ match = \"x*\", cpus = \"3\" }}]\n",
        task("\"1-2\"")
    );
    assert!(
        one(&resolve(&quad, &thread), "one-owner")
            .finding
            .to_string()
            .contains("CPU 3")
    );
}

#[test]
fn each_virtual_cpu_has_a_cpu_and_the_emulator_is_elsewhere() {
    let quad = quad();
    let rule = "virtual-cpu-placement";
    assert!(
        one(
            &resolve(&quad, &guest("{ count = 3, cpus = \"2-3\" }", "")),
            rule
        )
        .impossible
    );
    let fewer = resolve(&quad, &guest("{ count = 1, cpus = \"2-3\" }", ""));
    assert_eq!(one(&fewer, rule).finding.severity, Severity::Warning);
    let emulator = resolve(&quad, &guest("\"2-3\"", "emulator = \"0,2\""));
    assert_eq!(one(&emulator, rule).finding.severity, Severity::Problem);
    assert!(broken(&resolve(&quad, &guest("\"2-3\"", "emulator = \"0\"")), rule).is_empty());
}

#[test]
fn a_guest_has_room_for_its_own_housekeeping() {
    let quad = quad();
    let rule = "guest-housekeeping";
    let single = "{ count = 1, policy = { fifo = 1 } }";
    assert_eq!(
        one(&resolve(&quad, &guest(single, "")), rule)
            .finding
            .severity,
        Severity::Problem
    );
    assert!(broken(&resolve(&quad, &guest(single, "emulator = \"0\"")), rule).is_empty());
    let two = "{ count = 2, policy = { fifo = 1 } }";
    assert!(broken(&resolve(&quad, &guest(two, "")), rule).is_empty());
    assert!(broken(&resolve(&quad, &guest("{ count = 1 }", "")), rule).is_empty());
}

#[test]
fn virtual_cpus_are_counted_from_nought() {
    let quad = quad();
    let beyond = "{ count = 2, real-time = \"1-2\", policy = { fifo = 1 } }";
    let resolved = resolve(&quad, &guest(beyond, ""));
    assert!(
        one(&resolved, "virtual-cpu-range")
            .finding
            .to_string()
            .contains("virtual CPU 2 of 2")
    );
    let within = beyond.replace("1-2", "1");
    assert!(broken(&resolve(&quad, &guest(&within, "")), "virtual-cpu-range").is_empty());
}

#[test]
fn cores_are_whole() {
    let threads = threads();
    let rule = "whole-core";
    let split = format!("[machine]\nhousekeeping = \"0-2\"\n{}", task("\"3\""));
    let resolved = resolve(&threads, &split);
    let finding = one(&resolved, rule);
    assert_eq!(finding.finding.severity, Severity::Warning);
    assert!(
        finding
            .finding
            .to_string()
            .contains("CPU 2, beside its CPUs 3, is of housekeeping")
    );
    assert!(
        broken(&resolve(&threads, &task("\"3\"")), rule).is_empty(),
        "the sibling is idle"
    );
    assert!(broken(&resolve(&threads, &task("\"2-3\"")), rule).is_empty());
    let off = format!("[machine]\nsmt = \"off\"\n{}", task("\"3\""));
    assert!(one(&resolve(&threads, &off), rule).impossible);
    let off = format!("[machine]\nsmt = \"off\"\n{}", task("\"2\""));
    assert!(broken(&resolve(&threads, &off), rule).is_empty());
    assert_eq!(resolve(&threads, &off).housekeeping, cpus("0,4,6"));
}

#[test]
fn a_domain_is_on_one_node() {
    let threads = threads();
    let rule = "one-node";
    let far = resolve(&threads, &task("\"2,4\""));
    assert!(one(&far, rule).finding.to_string().contains("nodes 0, 1"));
    assert!(broken(&resolve(&threads, &task("\"4,6\"")), rule).is_empty());
    let memory =
        |node: u32| guest("\"4,6\"", "").replace("\"64MiB\"", &format!("\"64MiB\", node = {node}"));
    assert_eq!(
        one(&resolve(&threads, &memory(0)), rule).finding.severity,
        Severity::Problem
    );
    assert!(one(&resolve(&threads, &memory(7)), rule).impossible);
    assert!(broken(&resolve(&threads, &memory(1)), rule).is_empty());
    let device = guest("\"4,6\"", "devices = [\"0000:03:00.0\"]");
    let mut around = Surroundings::default();
    let unknown = resolve_in(&threads, &device, &around);
    assert_eq!(found(&unknown, rule).len(), 1, "a note");
    around.device_nodes.insert("0000:03:00.0".to_owned(), 0);
    assert!(
        one(&resolve_in(&threads, &device, &around), rule)
            .finding
            .to_string()
            .contains("0000:03:00.0")
    );
    around.device_nodes.insert("0000:03:00.0".to_owned(), 1);
    assert!(found(&resolve_in(&threads, &device, &around), rule).is_empty());
}

#[test]
fn huge_pages_are_there() {
    let threads = threads();
    let rule = "huge-pages";
    let with = |page: &str| {
        let memory = format!("\"64MiB\", hugepage = \"{page}\"");
        guest("\"4,6\"", "").replace("\"64MiB\"", &memory)
    };
    assert!(one(&resolve(&threads, &with("64KiB")), rule).impossible);
    assert!(
        one(&resolve(&threads, &with("1GiB")), rule).impossible,
        "no whole number"
    );
    assert_eq!(
        found(&resolve(&threads, &with("2MiB")), rule)[0]
            .finding
            .severity,
        Severity::Note
    );
    let pages = |node, free| Surroundings {
        huge_pages: Some(vec![HugePages {
            node,
            size: 2 << 20,
            total: 40,
            free,
        }]),
        ..Surroundings::default()
    };
    let few = resolve_in(&threads, &with("2MiB"), &pages(1, 20));
    let text = one(&few, rule).finding.to_string();
    assert!(
        text.contains(
            "echo 52 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
        ),
        "{text}"
    );
    assert!(broken(&resolve_in(&threads, &with("2MiB"), &pages(1, 32)), rule).is_empty());
    assert_eq!(
        broken(&resolve_in(&threads, &with("2MiB"), &pages(0, 32)), rule).len(),
        1
    );
    let two = format!(
        "{}{}",
        with("2MiB"),
        with("2MiB").replace("\"g\"", "\"h\"").replace("4,6", "5,7")
    );
    let both = resolve_in(&threads, &two, &pages(1, 40));
    assert_eq!(
        one(&both, rule).domain.as_deref(),
        Some("h"),
        "the first took 32 of 40"
    );
}

fn kernel_thread(name: &str, policy: SchedulingPolicy) -> Surroundings {
    Surroundings {
        kernel_threads: Some(vec![KernelThread {
            name: name.to_owned(),
            cpu: CpuId(3),
            policy,
        }]),
        ..Surroundings::default()
    }
}

#[test]
fn the_kernels_own_threads_get_to_run() {
    let mut quad = quad();
    let rule = "priority-ladder";
    let plan = task("\"3\"");
    assert_eq!(
        found(&resolve(&quad, &plan), rule)[0].finding.severity,
        Severity::Note
    );
    let low = kernel_thread("rcuc/3", SchedulingPolicy::Fifo(4));
    let text = one(&resolve_in(&quad, &plan, &low), rule)
        .finding
        .to_string();
    assert!(
        text.contains("fifo:10 over rcuc/3 at fifo:4 on CPU 3"),
        "{text}"
    );
    let equal = kernel_thread("rcuc/3", SchedulingPolicy::Fifo(10));
    assert_eq!(
        severity(&quad, &plan, &equal, rule),
        Some(Severity::Problem)
    );
    let high = kernel_thread("rcuc/3", SchedulingPolicy::Fifo(11));
    assert_eq!(severity(&quad, &plan, &high, rule), None);
    let harmless = kernel_thread("cpuhp/3", SchedulingPolicy::Other);
    assert_eq!(severity(&quad, &plan, &harmless, rule), None);
    let raised = format!(
        "{plan}[host]\nkernel-thread-priorities = {{ action = \"apply\", value = \"11\" }}\n"
    );
    assert_eq!(severity(&quad, &raised, &low, rule), None);
    let mut stalld = low.clone();
    stalld.managers = Some(vec!["stalld".to_owned()]);
    assert_eq!(severity(&quad, &plan, &stalld, rule), None);
    // Throttling stops the domain for ordinary threads, and real-time ones of the kernel with it.
    quad.throttling.runtime = Some(Nanos::from_millis(950));
    quad.throttling.period = Some(Nanos::SECOND);
    assert_eq!(severity(&quad, &plan, &low, rule), Some(Severity::Warning));
    let ordinary = kernel_thread("ksoftirqd/3", SchedulingPolicy::Other);
    assert_eq!(severity(&quad, &plan, &ordinary, rule), None);
    let lifted = format!("{plan}[host]\nthrottling = \"apply\"\n");
    assert_eq!(
        severity(&quad, &lifted, &ordinary, rule),
        Some(Severity::Problem)
    );
}

#[test]
fn the_boot_line_names_the_same_cpus() {
    let mut quad = quad();
    let rule = "boot-line";
    let plan = task("\"2-3\"");
    let note = resolve(&quad, &plan);
    assert_eq!(found(&note, rule)[0].finding.severity, Severity::Note);
    for (line, broken_count) in [
        (
            "isolcpus=managed_irq,domain,2-3 nohz_full=2-3 rcu_nocbs=2-3",
            0,
        ),
        ("isolcpus=managed_irq,domain,2-3 nohz_full=2", 1),
        ("isolcpus=2-3 nohz_full=2-3", 1),
        ("nohz_full=1-3", 1),
        ("isolcpus=managed_irq,domain,2-3 nohz_full=3 rcu_nocbs=0", 2),
    ] {
        quad.command_line = line.to_owned();
        assert_eq!(
            broken(&resolve(&quad, &plan), rule).len(),
            broken_count,
            "{line}"
        );
    }
    quad.command_line = "nohz_full=1-3".to_owned();
    assert_eq!(
        one(&resolve(&quad, &plan), rule).finding.severity,
        Severity::Problem
    );
    let planned = format!("{plan}[boot]\nreboot = \"plan\"\n");
    assert_eq!(
        one(&resolve(&quad, &planned), rule).finding.severity,
        Severity::Warning
    );
}

#[test]
fn cores_of_one_kind() {
    let mut quad = quad();
    for cpu in &mut quad.topology.cpus {
        cpu.capacity = Some(if cpu.id.0 < 2 { 1024 } else { 500 });
    }
    let mixed = resolve(&quad, &task("\"1-2\""));
    assert!(
        one(&mixed, "core-kind")
            .finding
            .to_string()
            .contains("CPUs 2 of capacity 500")
    );
    assert!(broken(&resolve(&quad, &task("\"2-3\"")), "core-kind").is_empty());
}

#[test]
fn the_kernel_is_built_with_what_is_needed() {
    let quad = quad();
    let rule = "kernel-option";
    let with = |options: &[(&str, bool)]| Surroundings {
        kernel_options: options
            .iter()
            .map(|(name, on)| ((*name).to_owned(), *on))
            .collect(),
        ..Surroundings::default()
    };
    let all = [
        ("CONFIG_CPUSETS", true),
        ("CONFIG_NO_HZ_FULL", true),
        ("CONFIG_KVM", true),
    ];
    let plan = task("\"3\"");
    assert!(found(&resolve_in(&quad, &plan, &with(&all)), rule).is_empty());
    assert_eq!(
        found(&resolve(&quad, &plan), rule).len(),
        2,
        "not known, twice"
    );
    let tick = with(&[("CONFIG_CPUSETS", true), ("CONFIG_NO_HZ_FULL", false)]);
    assert_eq!(severity(&quad, &plan, &tick, rule), Some(Severity::Warning));
    let asked = format!("{plan}[boot]\narguments = [\"nohz_full=3\"]\n");
    assert_eq!(
        severity(&quad, &asked, &tick, rule),
        Some(Severity::Problem)
    );
    let no_kvm = with(&[
        ("CONFIG_CPUSETS", true),
        ("CONFIG_NO_HZ_FULL", true),
        ("CONFIG_KVM", false),
    ]);
    assert!(one(&resolve_in(&quad, &guest("\"3\"", ""), &no_kvm), rule).impossible);
    let no_sets = with(&[("CONFIG_CPUSETS", false), ("CONFIG_NO_HZ_FULL", true)]);
    assert_eq!(
        severity(&quad, &plan, &no_sets, rule),
        Some(Severity::Problem)
    );
    let cache = format!("{plan}cache = {{ ways = 2 }}\n");
    let mut no_shares = with(&all);
    no_shares
        .kernel_options
        .insert("CONFIG_X86_CPU_RESCTRL".to_owned(), false);
    assert_eq!(
        severity(&quad, &cache, &no_shares, rule),
        Some(Severity::Problem)
    );
}

#[test]
fn only_a_guest_alone_on_its_cpus_is_told_so() {
    let quad = quad();
    let rule = "dedicated-hint";
    let alone = guest("\"2-3\"", "hint-dedicated = true");
    assert!(broken(&resolve(&quad, &alone), rule).is_empty());
    let beside = format!("{}{alone}", task("\"2\""));
    let resolved = resolve(&quad, &beside);
    assert_eq!(one(&resolved, rule).domain.as_deref(), Some("g"));
    let crowded = guest("{ count = 3, cpus = \"2-3\" }", "cpu-pm = true");
    assert_eq!(broken(&resolve(&quad, &crowded), rule).len(), 1);
}

#[test]
fn the_starter_may_do_what_the_plan_asks() {
    let quad = quad();
    let rule = "resource-limits";
    let with = |limits| Surroundings {
        limits: Some(limits),
        ..Surroundings::default()
    };
    let plain = ResourceLimits {
        locked_memory: Some(8 << 20),
        ..ResourceLimits::default()
    };
    let plan = task("\"3\"");
    assert_eq!(
        broken(&resolve_in(&quad, &plan, &with(plain)), rule).len(),
        2
    );
    let root = ResourceLimits {
        may_schedule: true,
        may_lock: true,
        ..plain
    };
    assert!(found(&resolve_in(&quad, &plan, &with(root)), rule).is_empty());
    let raised = ResourceLimits {
        locked_memory: None,
        real_time_priority: 10,
        ..plain
    };
    assert!(found(&resolve_in(&quad, &plan, &with(raised)), rule).is_empty());
    let lower = ResourceLimits {
        real_time_priority: 9,
        ..raised
    };
    assert!(
        one(&resolve_in(&quad, &plan, &with(lower)), rule)
            .finding
            .to_string()
            .contains("limit 9")
    );
    let deadline = plan.replace("{ fifo = 10 }", "\"deadline:1ms/2ms/2ms\"");
    assert!(
        one(&resolve_in(&quad, &deadline, &with(raised)), rule)
            .finding
            .to_string()
            .contains("CAP_SYS_NICE")
    );
    let bounded = ResourceLimits {
        locked_memory: Some(1 << 30),
        may_schedule: true,
        ..plain
    };
    assert_eq!(
        broken(
            &resolve_in(&quad, &guest("\"3\"", ""), &with(bounded)),
            rule
        )
        .len(),
        1
    );
    assert_eq!(
        found(&resolve(&quad, &plan), rule)[0].finding.severity,
        Severity::Note
    );
}

#[test]
fn a_real_time_guest_has_a_real_time_kernel() {
    let quad = quad();
    let rule = "guest-kernel";
    let plan = guest("{ count = 2, policy = { fifo = 1 } }", "kernel = \"/k\"");
    let with = |real_time| Surroundings {
        guest_kernels: [("/k".to_owned(), real_time)].into(),
        ..Surroundings::default()
    };
    assert_eq!(
        one(&resolve_in(&quad, &plan, &with(false)), rule)
            .finding
            .severity,
        Severity::Warning
    );
    assert!(found(&resolve_in(&quad, &plan, &with(true)), rule).is_empty());
    assert_eq!(
        found(&resolve(&quad, &plan), rule)[0].finding.severity,
        Severity::Note
    );
    assert!(
        found(
            &resolve_in(&quad, &guest("\"3\"", "kernel = \"/k\""), &with(false)),
            rule
        )
        .is_empty()
    );
}

#[test]
fn nobody_else_tunes_the_machine() {
    let quad = quad();
    let rule = "other-managers";
    let with = |names: &[&str]| Surroundings {
        managers: Some(names.iter().map(|name| (*name).to_owned()).collect()),
        ..Surroundings::default()
    };
    let plan = task("\"3\"");
    assert!(
        one(
            &resolve_in(&quad, &plan, &with(&["irqbalance", "stalld"])),
            rule
        )
        .finding
        .to_string()
        .contains("irqbalance")
    );
    assert!(found(&resolve_in(&quad, &plan, &with(&[])), rule).is_empty());
    assert_eq!(
        found(&resolve(&quad, &plan), rule)[0].finding.severity,
        Severity::Note
    );
}

#[test]
fn groups_can_be_given_a_budget() {
    let mut quad = quad();
    let rule = "group-budget";
    let plan = task("\"3\"");
    quad.throttling.runtime = Some(Nanos::from_millis(950));
    assert!(found(&resolve(&quad, &plan), rule).is_empty());
    quad.throttling.group_scheduling = Some(true);
    assert!(
        one(&resolve(&quad, &plan), rule)
            .finding
            .to_string()
            .contains("cgroup v2")
    );
    assert!(
        found(
            &resolve(&quad, &plan.replace("{ fifo = 10 }", "\"other\"")),
            rule
        )
        .is_empty()
    );
    quad.control_groups = "hybrid".to_owned();
    let with = |budget| Surroundings {
        group_budget: Some(Nanos(budget)),
        ..Surroundings::default()
    };
    assert_eq!(
        severity(&quad, &plan, &with(0), rule),
        Some(Severity::Problem)
    );
    assert!(found(&resolve_in(&quad, &plan, &with(1_000)), rule).is_empty());
    assert_eq!(
        found(&resolve(&quad, &plan), rule)[0].finding.severity,
        Severity::Note
    );
    quad.throttling.runtime = None;
    assert!(
        found(&resolve(&quad, &plan), rule).is_empty(),
        "without a limit no budget is asked for"
    );
}

#[test]
fn network_queues_fit_on_housekeeping() {
    let quad = quad();
    let rule = "network-queues";
    let with = |queues| Surroundings {
        network_queues: Some(vec![NetworkQueues {
            interface: "eth0".to_owned(),
            queues,
        }]),
        interrupts: Some(vec![Interrupt {
            number: 24,
            action: "eth0-rx-0".to_owned(),
            chip: "PCI-MSI".to_owned(),
            name: "edge".to_owned(),
            cpus: None,
        }]),
        ..Surroundings::default()
    };
    let plan = task("\"2-3\"");
    let resolved = resolve_in(&quad, &plan, &with(3));
    assert!(
        one(&resolved, rule)
            .finding
            .to_string()
            .contains("ethtool -L eth0 combined 2")
    );
    assert!(broken(&resolve_in(&quad, &plan, &with(2)), rule).is_empty());
    let owned = format!("{plan}interrupts = [{{ action = \"eth0-*\", chip = \"PCI*\" }}]\n");
    let resolved = resolve_in(&quad, &owned, &with(3));
    assert!(broken(&resolved, rule).is_empty());
    assert_eq!(resolved.interrupts[0].owner.as_deref(), Some("a"));
    assert_eq!(resolved.interrupts[0].cpus, cpus("2-3"));
}

#[test]
fn what_no_wall_stops_is_named() {
    let quad = quad();
    let rule = "latency-killers";
    let plan = task("\"3\"");
    let with = |watchdog, count| Surroundings {
        nmi_watchdog: Some(watchdog),
        firmware_interrupts: Some((count, Nanos::SECOND)),
        ..Surroundings::default()
    };
    assert_eq!(
        broken(&resolve_in(&quad, &plan, &with(true, 2)), rule).len(),
        2
    );
    assert!(found(&resolve_in(&quad, &plan, &with(false, 0)), rule).is_empty());
    assert_eq!(
        found(&resolve(&quad, &plan), rule).len(),
        2,
        "not known, twice"
    );
    let applied = format!("{plan}[host]\nnmi-watchdog = \"apply\"\n");
    assert!(found(&resolve_in(&quad, &applied, &with(true, 0)), rule).is_empty());
}

#[test]
fn a_shared_cache_is_a_leak() {
    let machine = machine(&["0", "1", "2", "3"], &["0-1", "2-3"], &["0-3"]);
    let rule = "shared-cache";
    let resolved = resolve(&machine, &task("\"3\""));
    assert!(
        one(&resolved, rule)
            .finding
            .to_string()
            .contains("L3 shared with CPUs 2")
    );
    assert!(broken(&resolve(&machine, &task("\"2-3\"")), rule).is_empty());
    let own = format!(
        "{}cache = {{ ways = 2, exclusive = true }}\n",
        task("\"3\"")
    );
    assert!(broken(&resolve(&machine, &own), rule).is_empty());
}

#[test]
fn kinds_that_are_not_built_are_refused() {
    let quad = quad();
    let cell = task("\"3\"").replace("task", "cell");
    assert!(one(&resolve(&quad, &cell), "kind-not-built").impossible);
    assert!(broken(&resolve(&quad, &task("\"3\"")), "kind-not-built").is_empty());
}

#[test]
fn another_topology_is_refused_in_words() {
    let before = threads();
    let print = rampart_plan::fingerprint(&before);
    let text = format!("[machine]\nfingerprint = \"{print}\"\n{}", task("\"2\""));
    assert!(broken(&resolve(&before, &text), "same-machine").is_empty());
    // The threads were switched off in the firmware: CPU numbers moved.
    let after = machine(&["0", "1", "2", "3"], &["0-1", "2-3"], &["0-1", "2-3"]);
    let resolved = resolve(&after, &text);
    let finding = one(&resolved, "same-machine");
    assert!(finding.impossible);
    let said = finding.finding.to_string();
    assert!(
        said.contains("the online CPUs were 0-7 and are now 0-3")
            || said.contains("online CPUs were 0-7 and are 0-3"),
        "{said}"
    );
    assert!(
        said.contains(
            "threads of one core were CPUs 0-1 and 2-3 and 4-5 and 6-7, and are now none"
        ),
        "{said}"
    );
    let edited = text.replace("siblings=0-1", "siblings=0,2");
    assert!(!broken(&resolve(&before, &edited), "same-machine").is_empty());
    for rubbish in ["", "x", "topology-9:0 a=b", "topology-1:0 online=0-7"] {
        let text = format!("[machine]\nfingerprint = \"{rubbish}\"\n");
        assert_eq!(
            broken(&resolve(&before, &text), "same-machine").len(),
            1,
            "{rubbish}"
        );
    }
}

#[test]
fn findings_are_waived_by_name_and_reason() {
    let quad = quad();
    let both = format!(
        "{}{}",
        task("\"1-2\""),
        task("\"2-3\"").replace("\"a\"", "\"b\"")
    );
    assert!(resolve(&quad, &both).is_refused());
    let waive = |more: &str| {
        format!("{both}[[waive]]\nrule = \"one-owner\"\nreason = \"they take turns\"\n{more}")
    };
    let waived = resolve(&quad, &waive(""));
    assert!(!waived.is_refused());
    assert_eq!(
        one(&waived, "one-owner").waived.as_deref(),
        Some("they take turns")
    );
    assert!(!resolve(&quad, &waive("domain = \"b\"\n")).is_refused());
    let other = resolve(&quad, &waive("domain = \"a\"\n"));
    assert!(other.is_refused(), "the finding is about b");
    assert_eq!(
        found(&other, "one-owner").len(),
        2,
        "and the waiver is unused"
    );
    // What cannot work is not waived, nor made milder.
    let warn = format!("[machine]\npolicy = \"warn\"\n{both}");
    assert!(!resolve(&quad, &warn).is_refused());
    assert!(resolve(&quad, &warn.replace("2-3", "2-9")).is_refused());
}

#[test]
fn every_rule_has_a_test_above() {
    let tests = include_str!("rules.rs");
    let selectors = include_str!("selectors.rs");
    for rule in rampart_plan::RULES {
        let quoted = format!("\"{}\"", rule.name);
        assert!(
            tests.contains(&quoted) || selectors.contains(&quoted),
            "{}",
            rule.name
        );
        assert!(!rule.demand.is_empty() && !rule.source.is_empty());
    }
}
