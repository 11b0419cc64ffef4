// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of applied plans on the recorded machines.

use crate::RECORDED;
use rampart_host::{MachineRoot, read_environment, read_knob_values, read_machine};
use rampart_model::{
    ChangeList, ChangeTarget, CheckState, PlanChange, SchedulingPolicy, StepAction, StepKind,
};
use rampart_rules::{
    Isolation, KernelCommandLine, KernelVersion, LocationValue, Reading, Readings, Subject,
    change_list, check,
};

fn changes(machine: &str, cpus: &str, host: &str) -> ChangeList {
    changes_where(machine, cpus, host, |_| ())
}

/// Returns the changes on a modified machine.
fn changes_where(
    machine: &str,
    cpus: &str,
    host: &str,
    edit: impl FnOnce(&mut Readings),
) -> ChangeList {
    let root = MachineRoot::at(rampart_recorded::directory(machine));
    let text = format!("[[domain]]\nname = \"press\"\nkind = \"task\"\ncpus = \"{cpus}\"\n{host}");
    let plan = rampart_plan::parse(&text, "plan.toml").unwrap_or_else(|error| panic!("{error}"));
    let machine = read_machine(&root);
    let resolved = rampart_plan::resolve(&machine, &plan, &read_environment(&root, &[]));
    let mut readings = read_knob_values(&root, &resolved.real_time);
    edit(&mut readings);
    let subject = Subject {
        machine: &machine,
        readings: &readings,
    };
    change_list(&resolved, subject, &Isolation::of(&resolved), "test")
}

fn action(list: &ChangeList, name: &str) -> Option<StepAction> {
    let step = list.steps.iter().find(|step| step.name == name);
    step.map(|step| step.action)
}

#[test]
fn only_the_left_out_step_is_skipped() {
    let complete = changes("server", "1", "");
    let step = complete.to_apply().find(|step| step.kind == StepKind::Knob);
    let step = step.expect("a knob");
    let change = |kind| PlanChange {
        kind,
        name: step.name.clone(),
        title: String::new(),
    };
    let mut list = complete.clone();
    list.leave_out(&[change(StepKind::Isolation)]);
    assert_eq!(list, complete);
    list.leave_out(&[change(StepKind::Knob)]);
    assert_eq!(action(&list, &step.name), Some(StepAction::Skip));
    assert_eq!(list.to_apply().count(), complete.to_apply().count() - 1);
}

/// What `check` promises of a plan is what the plan does, and the deviations that it shows first are the worst.
#[test]
fn a_check_counts_what_a_plan_sets() {
    for name in RECORDED {
        let root = MachineRoot::at(rampart_recorded::directory(name));
        let machine = read_machine(&root);
        let text = "[[domain]]\nname = \"press\"\nkind = \"task\"\ncpus = \"1\"\n";
        let plan = rampart_plan::parse(text, "plan.toml").expect("a plan");
        let resolved = rampart_plan::resolve(&machine, &plan, &read_environment(&root, &[]));
        let readings = read_knob_values(&root, &resolved.real_time);
        let subject = Subject {
            machine: &machine,
            readings: &readings,
        };
        let isolation = Isolation::of(&resolved);
        let list = change_list(&resolved, subject, &isolation, "test");
        let checked = check(subject, &isolation, "the test", None, "test");
        let deviates = |state| matches!(state, CheckState::Error | CheckState::Warning);
        let mut promised = 0;
        for finding in checked.findings.iter().filter(|one| deviates(one.state)) {
            let action = action(&list, &finding.rule);
            let is_done = matches!(action, Some(StepAction::Apply | StepAction::AtRestart));
            assert_eq!(finding.by_plan, is_done, "{name}: {finding:?}, {action:?}");
            promised += usize::from(is_done);
        }
        assert!(promised > 5, "{name}: {promised}");
        let all = &checked.findings;
        let states = checked.first.iter().filter_map(|rule| {
            let finding = all.iter().find(|finding| finding.rule == *rule)?;
            Some(finding.state)
        });
        let states: Vec<CheckState> = states.collect();
        assert_eq!(states.len(), 3, "{name}");
        assert!(
            states.is_sorted() && states.iter().all(|state| deviates(*state)),
            "{name}"
        );
        let errors = states.iter().filter(|state| **state == CheckState::Error);
        assert_eq!(
            errors.count(),
            3.min(checked.counts.errors as usize),
            "{name}"
        );
    }
}

#[test]
fn isolation_comes_first_and_disruptive_steps_last() {
    for machine in RECORDED {
        let list = changes(machine, "1", "");
        let steps: Vec<_> = list.to_apply().collect();
        assert_eq!(steps[0].kind, StepKind::Isolation, "{machine}");
        assert!(steps.len() > 1, "{machine}: {steps:#?}");
        let knobs: Vec<bool> = steps
            .iter()
            .filter(|step| step.kind == StepKind::Knob)
            .map(|step| step.disruptive.is_some())
            .collect();
        assert!(knobs.is_sorted(), "{machine}: {steps:#?}");
    }
}

/// Checks that the limit on the wakeup latency is set, which all idle governors obey.
#[test]
fn limits_the_wakeup_latency_of_the_real_time_cpus() {
    let list = changes("board", "4", "");
    let step = list.to_apply().find(|step| step.name == "idle-states");
    let step = step.expect("the board has deep idle states");
    let files: Vec<(&str, &str)> = step
        .locations
        .iter()
        .map(|location| (location.location.as_str(), location.value.as_str()))
        .collect();
    assert_eq!(
        files,
        [(
            "/sys/devices/system/cpu/cpu4/power/pm_qos_resume_latency_us",
            "10"
        )]
    );
}

/// Checks that only kernel settings are written, and none twice.
#[test]
fn writes_only_kernel_settings() {
    for machine in RECORDED {
        let list = changes(machine, "1", "");
        let mut locations = Vec::new();
        for step in list.to_apply() {
            for location in &step.locations {
                if let ChangeTarget::File(path)
                | ChangeTarget::CpuListFile(path)
                | ChangeTarget::CpuMaskFile(path) = &location.target
                {
                    assert!(
                        path.starts_with("/proc/sys/") || path.starts_with("/sys/"),
                        "{machine}: {path}"
                    );
                    assert!(!path.starts_with("/sys/fs/cgroup"), "{machine}: {path}");
                    assert!(!location.value.is_empty() && !location.value.contains('\n'));
                }
                locations.push(format!("{:?}", location.target));
            }
        }
        let count = locations.len();
        locations.sort();
        locations.dedup();
        assert_eq!(locations.len(), count, "{machine}");
    }
}

#[test]
fn a_plan_chooses_the_actions() {
    let list = changes("simulated", "1", "");
    assert_eq!(action(&list, "swappiness"), Some(StepAction::Apply));
    // Protections against runaway threads are removed by name only, and services stopped by name
    // only.
    let throttling = "real-time-throttling";
    assert_eq!(action(&list, throttling), Some(StepAction::Skip));
    assert_eq!(
        action(&changes("server", "2", ""), "tuned"),
        Some(StepAction::ByHand)
    );

    let host = "[host]\ntuned = \"apply\"\nswappiness = { action = \"apply\", value = \"1\" }\n\
                real-time-throttling = \"apply\"\ndirty-limit = \"skip\"\n\
                statistics-interval = \"expect\"\n";
    let list = changes("simulated", "1", host);
    assert_eq!(action(&list, throttling), Some(StepAction::Apply));
    assert_eq!(action(&list, "dirty-limit"), Some(StepAction::Skip));
    assert_eq!(
        action(&list, "statistics-interval"),
        Some(StepAction::Expect)
    );
    let swappiness = list.steps.iter().find(|step| step.name == "swappiness");
    assert_eq!(swappiness.expect("a step").locations[0].value, "1");
    let list = changes("server", "2", host);
    let tuned = list.steps.iter().find(|step| step.name == "tuned");
    let service = ChangeTarget::Service("tuned.service".to_owned());
    assert_eq!(tuned.expect("a step").locations[0].target, service);

    // With `default = "skip"` only named knobs change.
    let list = changes("simulated", "1", "[host]\ndefault = \"skip\"\n");
    assert!(
        list.to_apply().all(|step| step.kind == StepKind::Isolation),
        "{:#?}",
        list.to_apply().collect::<Vec<_>>()
    );
}

#[test]
fn kernel_arguments_are_complete_and_the_plan_takes_precedence() {
    let list = changes(
        "simulated",
        "1",
        "[boot]\narguments = [\"nohz_full=none\", \"quiet\"]\nreboot = \"plan\"\n",
    );
    let arguments = &list.boot_arguments;
    assert_eq!(arguments[..2], ["nohz_full=none", "quiet"]);
    for expected in ["isolcpus=managed_irq,domain,1", "rcu_nocbs=1"] {
        let found = arguments.iter().filter(|argument| *argument == expected);
        assert_eq!(found.count(), 1, "{expected}: {arguments:?}");
    }
    let named = |argument: &&String| argument.starts_with("nohz_full");
    assert_eq!(arguments.iter().filter(named).count(), 1, "{arguments:?}");
    // Accepted present arguments are kept: idle siblings may be isolated too, and fewer CPUs than
    // possible may get interrupts.
    assert!(
        arguments.contains(&"irqaffinity=0".to_owned()),
        "{arguments:?}"
    );
    let server = changes("server", "2-3", "").boot_arguments;
    assert!(server.contains(&"skew_tick=1".to_owned()), "{server:?}");
    let started_with = |line: &str| {
        let line = KernelCommandLine::parse(line);
        changes_where("laptop", "2", "", |readings| {
            readings.kernel_command_line = line
        })
        .boot_arguments
    };
    for (line, expected) in [
        (
            "isolcpus=domain,managed_irq,2-3",
            "isolcpus=domain,managed_irq,2-3",
        ),
        (
            "isolcpus=domain,managed_irq,2-5",
            "isolcpus=managed_irq,domain,2",
        ),
        ("rcu_nocbs=2-3", "rcu_nocbs=2-3"),
        ("rcu_nocbs=2-5", "rcu_nocbs=2"),
    ] {
        let arguments = started_with(line);
        assert!(
            arguments.contains(&expected.to_owned()),
            "{line}: {arguments:?}"
        );
    }
    // Lists with other CPUs than the plan's are replaced.
    for cpus in ["1", "2"] {
        let server = changes("server", cpus, "").boot_arguments;
        let isolated = format!("isolcpus=managed_irq,domain,{cpus}");
        assert!(server.contains(&isolated), "{server:?}");
    }
}

/// Checks that accepted values are not written and that written values are accepted: CPUs as sets,
/// a priority as minimum, of several words the marked one.
#[test]
fn changes_and_check_agree_on_values() {
    let with_value = |name: &str, value: &str| {
        format!("[host]\n{name} = {{ action = \"apply\", value = \"{value}\" }}\n")
    };
    let outcome = |list: &ChangeList, name: &str| {
        let step = list.steps.iter().find(|step| step.name == name);
        let step = step.unwrap_or_else(|| panic!("no step {name}"));
        let mut values: Vec<String> = step
            .locations
            .iter()
            .map(|location| location.value.clone())
            .collect();
        values.dedup();
        (step.action, values.join(" "))
    };
    let (apply, satisfied) = (StepAction::Apply, StepAction::AsWanted);

    let steering = "receive-steering";
    let mask = |text: &'static str| {
        move |readings: &mut Readings| {
            let files = &mut readings.files;
            let queues = files
                .iter_mut()
                .filter(|(path, _)| path.ends_with("/rps_cpus"));
            for location in queues.flat_map(|(_, locations)| locations) {
                location.reading = Reading::Value(text.to_owned());
            }
        }
    };
    for (present, expected) in [
        ("00", apply),
        ("00000000,0000000c", apply),
        ("00000000,00000003", satisfied),
    ] {
        let list = changes_where("server", "2", &with_value(steering, "3"), mask(present));
        assert_eq!(
            outcome(&list, steering),
            (expected, "0-1".to_owned()),
            "{present}"
        );
    }

    let pages = "transparent-huge-pages";
    for (value, expected) in [("always", satisfied), ("never", apply)] {
        let list = changes("laptop", "1", &with_value(pages, value));
        assert_eq!(outcome(&list, pages), (expected, value.to_owned()));
    }

    let threads = "rcuc-priority";
    for (present, expected, written) in [
        (50, satisfied, "fifo:50"),
        (11, satisfied, "fifo:11"),
        (1, apply, "fifo:11"),
    ] {
        for value in ["11", "fifo:11"] {
            let list = changes_where("board", "4", &with_value(threads, value), |readings| {
                for thread in readings.threads.iter_mut().flatten() {
                    thread.policy = Some(SchedulingPolicy::Fifo(present));
                }
            });
            assert_eq!(
                outcome(&list, threads),
                (expected, written.to_owned()),
                "{present}"
            );
        }
    }
}

/// Checks that protections against runaway threads are removed by name only.
#[test]
fn no_default_removes_a_safety_net() {
    let net = "real-time-throttling";
    for host in ["", "[host]\ndefault = \"apply\"\n"] {
        let list = changes("laptop", "1", host);
        assert_eq!(action(&list, net), Some(StepAction::Skip), "{host}");
    }
    let named = changes("laptop", "1", &format!("[host]\n{net} = \"apply\"\n"));
    assert_eq!(action(&named, net), Some(StepAction::Apply));
}

/// Returns the changes of a plan with a guest on CPUs 2 and 3 on the server: `pages` has the total
/// and free 1 GiB pages of each node, `boot` the kernel command line, `kernel` its version.
fn with_pages(pages: [(u64, u64); 2], boot: &str, kernel: (u16, u16), more: &str) -> ChangeList {
    let root = MachineRoot::at(rampart_recorded::directory("server"));
    let text = format!(
        "[[domain]]\nname = \"g\"\nkind = \"vm\"\nvcpus = \"2-3\"\n\
         memory = {{ size = \"2GiB\", hugepage = \"1GiB\", node = 0 }}\n{more}"
    );
    let plan = rampart_plan::parse(&text, "plan.toml").unwrap_or_else(|error| panic!("{error}"));
    let machine = read_machine(&root);
    let resolved = rampart_plan::resolve(&machine, &plan, &read_environment(&root, &[]));
    let mut readings = read_knob_values(&root, &resolved.real_time);
    readings.kernel_command_line = KernelCommandLine::parse(boot);
    let (major, minor) = kernel;
    readings.kernel = Some(KernelVersion { major, minor });
    let node = "/sys/devices/system/node/node{node}/hugepages/hugepages-{size}";
    for (file, of) in [("nr_hugepages", 0), ("free_hugepages", 1)] {
        let locations = pages
            .iter()
            .enumerate()
            .map(|(number, counts)| LocationValue {
                path: format!("/node{number}/{file}"),
                keys: vec![number.to_string(), "1048576kB".to_owned()],
                reading: Reading::Value([counts.0, counts.1][of].to_string()),
            });
        let locations = locations.collect();
        readings.files.insert(format!("{node}/{file}"), locations);
    }
    let subject = Subject {
        machine: &machine,
        readings: &readings,
    };
    change_list(&resolved, subject, &Isolation::of(&resolved), "test")
}

/// Returns the kernel arguments for huge pages.
fn page_words(list: &ChangeList) -> String {
    let words = list.boot_arguments.iter();
    let words: Vec<&str> = words
        .filter(|word| word.starts_with("hugepages"))
        .map(String::as_str)
        .collect();
    words.join(" ")
}

#[test]
fn reserves_huge_pages_on_their_node() {
    // Two pages are needed; of three one is free, so that four are reserved.
    let list = with_pages([(3, 1), (0, 0)], "", (6, 1), "");
    let steps: Vec<_> = list
        .steps
        .iter()
        .filter(|step| step.name == "huge-pages")
        .collect();
    assert_eq!((steps.len(), steps[0].action), (1, StepAction::Apply));
    let location = &steps[0].locations[0];
    assert_eq!(
        (location.location.as_str(), location.value.as_str()),
        ("/node0/nr_hugepages", "4")
    );
    assert_eq!(page_words(&list), "", "no restart is planned");

    let list = with_pages([(2, 2), (0, 0)], "", (6, 1), "[boot]\nreboot = \"plan\"\n");
    assert_eq!(action(&list, "huge-pages"), Some(StepAction::AsWanted));
    assert_eq!(page_words(&list), "", "the pages are reserved already");
    for (host, expected) in [("skip", StepAction::Skip), ("expect", StepAction::Expect)] {
        let host = format!("[host]\nhuge-pages = \"{host}\"\n");
        let list = with_pages([(0, 0); 2], "", (6, 1), &host);
        assert_eq!(action(&list, "huge-pages"), Some(expected));
    }
    // The default does not apply to the plan's own requests.
    let list = with_pages([(0, 0); 2], "", (6, 1), "[host]\ndefault = \"skip\"\n");
    assert_eq!(action(&list, "huge-pages"), Some(StepAction::Apply));
}

#[test]
fn reserves_gigantic_pages_at_boot() {
    let plan = "[boot]\nreboot = \"plan\"\n";
    let others = "hugepages=8 hugepagesz=2M hugepages=64 hugepagesz=1G hugepages=1";
    for (boot, kernel, expected) in [
        ("", (6, 1), "hugepagesz=1G hugepages=0:2"),
        // Without nodes the kernel spreads them evenly.
        ("", (5, 10), "hugepagesz=1G hugepages=4"),
        (
            others,
            (6, 1),
            "hugepages=8 hugepagesz=2M hugepages=64 hugepagesz=1G hugepages=0:2",
        ),
    ] {
        let list = with_pages([(0, 0); 2], boot, kernel, plan);
        assert_eq!(page_words(&list), expected);
        assert_eq!(
            action(&list, "huge-pages-at-boot"),
            Some(StepAction::AtRestart)
        );
    }
    // After the restart the arguments stay.
    let so = "hugepagesz=1G hugepages=0:2";
    let list = with_pages([(2, 2), (0, 0)], so, (6, 1), plan);
    assert_eq!(page_words(&list), so);
    assert_eq!(
        action(&list, "huge-pages-at-boot"),
        Some(StepAction::AsWanted)
    );
    let named = "[boot]\nreboot = \"plan\"\narguments = [\"hugepages=9\"]\n";
    assert_eq!(
        page_words(&with_pages([(0, 0); 2], "", (6, 1), named)),
        "hugepages=9"
    );
    let left = "[boot]\nreboot = \"plan\"\n[host]\nhuge-pages-at-boot = \"skip\"\n";
    assert_eq!(page_words(&with_pages([(0, 0); 2], "", (6, 1), left)), "");
}
