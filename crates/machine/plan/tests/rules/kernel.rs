// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel: how it was built and booted, and its own threads.

use super::*;

fn kernel_thread(name: &str, policy: SchedulingPolicy) -> Environment {
    Environment {
        kernel_threads: Some(vec![KernelThread {
            name: name.to_owned(),
            cpu: CpuId(3),
            policy,
        }]),
        ..Environment::default()
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
    assert_eq!(severity(&quad, &plan, &equal, rule), Some(Severity::Error));
    let high = kernel_thread("rcuc/3", SchedulingPolicy::Fifo(11));
    assert_eq!(severity(&quad, &plan, &high, rule), None);
    let harmless = kernel_thread("cpuhp/3", SchedulingPolicy::Other);
    assert_eq!(severity(&quad, &plan, &harmless, rule), None);
    let raise = |knob: &str, action: &str| {
        format!("{plan}[host]\n{knob} = {{ action = \"{action}\", value = \"11\" }}\n")
    };
    let problem = Some(Severity::Error);
    // The knobs are for real-time kernels: another one leaves its threads as they are.
    let raised = raise("rcuc-priority", "apply");
    assert_eq!(severity(&quad, &raised, &low, rule), problem);
    quad.preemption = PreemptionModel::RealTime;
    assert_eq!(severity(&quad, &raised, &low, rule), None);
    let too_little = raised.replace("11", "10");
    assert_eq!(severity(&quad, &too_little, &low, rule), problem);
    let by_name = raised.replace("11", "nto");
    assert_eq!(severity(&quad, &by_name, &low, rule), None);
    // Each thread has its own knob, and who expects has to look at what is.
    let another = raise("ktimers-priority", "apply");
    assert_eq!(severity(&quad, &another, &low, rule), problem);
    let expected = raise("rcuc-priority", "expect");
    assert_eq!(severity(&quad, &expected, &low, rule), problem);
    let timers = kernel_thread("ktimers/3", SchedulingPolicy::Fifo(1));
    assert_eq!(severity(&quad, &another, &timers, rule), None);
    let mut stalld = low.clone();
    stalld.managers = Some(vec!["stalld".to_owned()]);
    assert_eq!(severity(&quad, &plan, &stalld, rule), None);
    // Throttling stops the domain for ordinary threads, and real-time ones of the kernel with it.
    quad.throttling.runtime = Some(Nanos::from_millis(950));
    quad.throttling.period = Some(Nanos::SECOND);
    assert_eq!(severity(&quad, &plan, &low, rule), Some(Severity::Warning));
    let ordinary = kernel_thread("ksoftirqd/3", SchedulingPolicy::Other);
    assert_eq!(severity(&quad, &plan, &ordinary, rule), None);
    let lifted = format!("{plan}[host]\nreal-time-throttling = \"apply\"\n");
    assert_eq!(severity(&quad, &lifted, &ordinary, rule), problem);
    let all = format!("{plan}[host]\ndefault = \"apply\"\nrcuc-priority = \"skip\"\n");
    assert_eq!(
        severity(&quad, &all, &low, rule),
        Some(Severity::Warning),
        "no default takes the relief away"
    );
    assert_eq!(severity(&quad, &all, &ordinary, rule), None);
    // What the plan says nothing about is set as the catalogue wants it.
    quad.throttling.runtime = None;
    let modest = plan.replace("fifo = 10", "fifo = 3");
    let idle = kernel_thread("rcuc/3", SchedulingPolicy::Fifo(1));
    assert_eq!(severity(&quad, &modest, &idle, rule), None, "raised to 4");
    let skipped = format!("{modest}[host]\nrcuc-priority = \"skip\"\n");
    assert_eq!(severity(&quad, &skipped, &idle, rule), problem);
    quad.throttling.runtime = Some(Nanos::from_millis(950));
    let kept = format!(
        "{plan}[host]\nreal-time-throttling = {{ action = \"apply\", value = \"safety-net\" }}\n"
    );
    assert_eq!(severity(&quad, &kept, &ordinary, rule), None);
}

#[test]
fn the_boot_line_names_the_same_cpus() {
    let mut quad = quad();
    let rule = "kernel-command-line";
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
    for (line, broken_count) in [
        // The kernel takes the boot CPU out of both.
        ("isolcpus=managed_irq,domain,all nohz_full=all", 0),
        ("isolcpus=managed_irq,domain,1-N", 0),
        ("isolcpus=managed_irq,domain,0-N:1/2", 1),
        ("isolcpus=managed_irq,2", 1),
        ("isolcpus=managed_irq,1-3", 0),
        ("nohz_full=1-x", 1),
        ("isolcpus=1-N", 1),
    ] {
        quad.command_line = line.to_owned();
        let resolved = resolve(&quad, &task("\"1-3\""));
        let found = broken(&resolved, rule);
        assert_eq!(found.len(), broken_count, "{line}: {found:#?}");
    }
    quad.command_line = "isolcpus=managed_irq,2-3".to_owned();
    let note = resolve(&quad, &plan);
    let note = found(&note, rule)[0].finding.to_string();
    assert!(
        note.contains("is isolcpus=managed_irq,2-3, no nohz_full="),
        "{note}"
    );
    quad.command_line = "nohz_full=1-3".to_owned();
    assert_eq!(
        one(&resolve(&quad, &plan), rule).finding.severity,
        Severity::Error
    );
    let planned = format!("{plan}[boot]\nreboot = \"plan\"\n");
    assert_eq!(
        one(&resolve(&quad, &planned), rule).finding.severity,
        Severity::Warning
    );
}

#[test]
fn the_kernel_is_built_with_what_is_needed() {
    let quad = quad();
    let rule = "kernel-option";
    let with = |options: &[(&str, bool)]| Environment {
        kernel_options: options
            .iter()
            .map(|(name, on)| ((*name).to_owned(), *on))
            .collect(),
        ..Environment::default()
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
    assert_eq!(severity(&quad, &asked, &tick, rule), Some(Severity::Error));
    let no_kvm = with(&[
        ("CONFIG_CPUSETS", true),
        ("CONFIG_NO_HZ_FULL", true),
        ("CONFIG_KVM", false),
    ]);
    assert!(one(&resolve_in(&quad, &guest("\"3\"", ""), &no_kvm), rule).impossible);
    let no_sets = with(&[("CONFIG_CPUSETS", false), ("CONFIG_NO_HZ_FULL", true)]);
    assert_eq!(
        severity(&quad, &plan, &no_sets, rule),
        Some(Severity::Error)
    );
    let cache = format!("{plan}cache = {{ ways = 2 }}\n");
    let mut no_shares = with(&all);
    no_shares
        .kernel_options
        .insert("CONFIG_X86_CPU_RESCTRL".to_owned(), false);
    assert_eq!(
        severity(&quad, &cache, &no_shares, rule),
        Some(Severity::Error)
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
    let with = |budget| Environment {
        group_budget: Some(Nanos(budget)),
        ..Environment::default()
    };
    assert_eq!(
        severity(&quad, &plan, &with(0), rule),
        Some(Severity::Error)
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
fn what_no_wall_stops_is_named() {
    let quad = quad();
    let rule = "latency-killers";
    let plan = task("\"3\"");
    let with = |watchdog, count| Environment {
        nmi_watchdog: Some(watchdog),
        firmware_interrupts: Some((count, Nanos::SECOND)),
        ..Environment::default()
    };
    let left = format!("{plan}[host]\nnmi-watchdog = \"skip\"\n");
    assert_eq!(
        broken(&resolve_in(&quad, &left, &with(true, 2)), rule).len(),
        2
    );
    // A knob that the plan does not name is applied.
    assert_eq!(
        broken(&resolve_in(&quad, &plan, &with(true, 2)), rule).len(),
        1
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
