// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules of the kernel: its build, its boot, its threads.

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
fn reports_kernel_threads_that_starve() {
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
    // The knobs apply to real-time kernels only.
    let raised = raise("rcuc-priority", "apply");
    assert_eq!(severity(&quad, &raised, &low, rule), problem);
    quad.preemption = PreemptionModel::RealTime;
    assert_eq!(severity(&quad, &raised, &low, rule), None);
    let too_little = raised.replace("11", "10");
    assert_eq!(severity(&quad, &too_little, &low, rule), problem);
    let by_name = raised.replace("11", "nto");
    assert_eq!(severity(&quad, &by_name, &low, rule), None);
    // Each thread has its own knob, and `expect` changes nothing.
    let another = raise("ktimers-priority", "apply");
    assert_eq!(severity(&quad, &another, &low, rule), problem);
    let expected = raise("rcuc-priority", "expect");
    assert_eq!(severity(&quad, &expected, &low, rule), problem);
    let timers = kernel_thread("ktimers/3", SchedulingPolicy::Fifo(1));
    assert_eq!(severity(&quad, &another, &timers, rule), None);
    let mut stalld = low.clone();
    stalld.managers = Some(vec!["stalld".to_owned()]);
    assert_eq!(severity(&quad, &plan, &stalld, rule), None);
    // Throttling lets time-sharing threads run, but not the kernel's real-time threads.
    let throttled = "priority-ladder-throttled";
    quad.throttling.runtime = Some(Nanos::from_millis(950));
    quad.throttling.period = Some(Nanos::SECOND);
    assert_eq!(
        severity(&quad, &plan, &low, "priority-ladder-throttled"),
        Some(Severity::Warning)
    );
    assert_eq!(severity(&quad, &plan, &low, rule), None);
    let ordinary = kernel_thread("ksoftirqd/3", SchedulingPolicy::Other);
    assert_eq!(severity(&quad, &plan, &ordinary, rule), None);
    let lifted = format!("{plan}[host]\nreal-time-throttling = \"apply\"\n");
    assert_eq!(severity(&quad, &lifted, &ordinary, rule), problem);
    let all = format!("{plan}[host]\ndefault = \"apply\"\nrcuc-priority = \"skip\"\n");
    assert_eq!(
        severity(&quad, &all, &low, throttled),
        Some(Severity::Warning),
        "a default does not switch throttling off"
    );
    assert_eq!(severity(&quad, &all, &ordinary, rule), None);
    // A knob that the plan does not name gets the value of the catalogue.
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
fn reports_kernel_command_lines_that_disagree() {
    let mut quad = quad();
    let rule = "boot-lists-agree";
    let count = |machine: &Machine, plan: &str| {
        let resolved = resolve(machine, plan);
        broken(&resolved, rule).len() + broken(&resolved, "managed-interrupts").len()
    };
    let plan = task("\"2-3\"");
    let note = resolve(&quad, &plan);
    assert_eq!(
        found(&note, "boot-isolation")[0].finding.severity,
        Severity::Note
    );
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
        assert_eq!(count(&quad, &plan), broken_count, "{line}");
    }
    for (line, broken_count) in [
        // The kernel removes the boot CPU from both.
        ("isolcpus=managed_irq,domain,all nohz_full=all", 0),
        ("isolcpus=managed_irq,domain,1-N", 0),
        ("isolcpus=managed_irq,domain,0-N:1/2", 1),
        ("isolcpus=managed_irq,2", 1),
        ("isolcpus=managed_irq,1-3", 0),
        ("nohz_full=1-x", 1),
        ("isolcpus=1-N", 1),
    ] {
        quad.command_line = line.to_owned();
        assert_eq!(count(&quad, &task("\"1-3\"")), broken_count, "{line}");
    }
    quad.command_line = "isolcpus=managed_irq,2-3".to_owned();
    let note = resolve(&quad, &plan);
    let note = found(&note, "boot-isolation")[0].finding.to_string();
    assert!(
        note.contains("found isolcpus=managed_irq,2-3, no nohz_full="),
        "{note}"
    );
    quad.command_line = "nohz_full=1-3".to_owned();
    assert_eq!(
        one(&resolve(&quad, &plan), rule).finding.severity,
        Severity::Error
    );
    let planned = format!("{plan}[boot]\nreboot = \"plan\"\n");
    assert_eq!(
        one(&resolve(&quad, &planned), "restart-needed")
            .finding
            .severity,
        Severity::Warning
    );
    quad.command_line = "isolcpus=2-3 nohz_full=2-3".to_owned();
    let managed = resolve(&quad, &plan);
    assert_eq!(broken(&managed, "managed-interrupts").len(), 1);
}

#[test]
fn reports_missing_kernel_options() {
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
    assert_eq!(found(&resolve(&quad, &plan), rule).len(), 1, "not decided");
    let tick = with(&[("CONFIG_CPUSETS", true), ("CONFIG_NO_HZ_FULL", false)]);
    assert_eq!(severity(&quad, &plan, &tick, rule), None);
    assert_eq!(
        severity(&quad, &plan, &tick, "config-no-hz-full"),
        Some(Severity::Warning)
    );
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
fn reports_control_groups_without_a_budget() {
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
        "without a limit no budget is required"
    );
}

#[test]
fn reports_the_nmi_watchdog_and_firmware_interrupts() {
    let quad = quad();
    let (watchdog, firmware) = ("nmi-watchdog", "firmware-interrupts");
    let plan = task("\"3\"");
    let with = |watchdog, count| Environment {
        nmi_watchdog: Some(watchdog),
        firmware_interrupts: Some((count, Nanos::SECOND)),
        ..Environment::default()
    };
    let left = format!("{plan}[host]\nnmi-watchdog = \"skip\"\n");
    let resolved = resolve_in(&quad, &left, &with(true, 2));
    assert_eq!(broken(&resolved, "nmi-watchdog").len(), 1);
    assert_eq!(found(&resolved, "firmware-interrupts").len(), 1);
    // A knob that the plan does not name is applied.
    assert!(broken(&resolve_in(&quad, &plan, &with(true, 2)), watchdog).is_empty());
    let quiet = resolve_in(&quad, &plan, &with(false, 0));
    assert!(found(&quiet, watchdog).is_empty() && found(&quiet, firmware).is_empty());
    let unknown = resolve(&quad, &plan);
    assert_eq!(found(&unknown, watchdog).len(), 1, "not decided");
    assert_eq!(found(&unknown, firmware).len(), 1, "not decided");
    let applied = format!("{plan}[host]\nnmi-watchdog = \"apply\"\n");
    assert!(found(&resolve_in(&quad, &applied, &with(true, 0)), watchdog).is_empty());
}
