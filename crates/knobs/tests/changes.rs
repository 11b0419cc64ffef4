// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What applying a plan changes on the recorded machines.

use std::path::Path;

use rampart_host::{MachineRoot, read_knob_values, read_machine, read_surroundings};
use rampart_knobs::{Isolation, Subject, change_list};
use rampart_model::{ChangeList, ChangeTarget, StepAction, StepKind};

const RECORDED: [&str; 5] = ["board", "laptop", "server", "simulated", "virtual-machine"];

fn changes(machine: &str, cpus: &str, host: &str) -> ChangeList {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/fixtures/machines");
    let root = MachineRoot::at(root.join(machine));
    let text = format!("[[domain]]\nname = \"press\"\nkind = \"task\"\ncpus = \"{cpus}\"\n{host}");
    let plan = rampart_plan::parse(&text, "plan.toml").unwrap_or_else(|error| panic!("{error}"));
    let machine = read_machine(&root);
    let resolved = rampart_plan::resolve(&machine, &plan, &read_surroundings(&root, &[]));
    let readings = read_knob_values(&root, &resolved.real_time);
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
fn walls_come_first_and_what_disturbs_last() {
    for machine in RECORDED {
        let list = changes(machine, "1", "");
        let steps: Vec<_> = list.to_apply().collect();
        assert_eq!(steps[0].kind, StepKind::Wall, "{machine}");
        assert!(steps.len() > 1, "{machine}: {steps:#?}");
        let knobs: Vec<bool> = steps
            .iter()
            .filter(|step| step.kind == StepKind::Knob)
            .map(|step| step.disruptive.is_some())
            .collect();
        assert!(knobs.is_sorted(), "{machine}: {steps:#?}");
    }
}

/// Everything that is written is a setting of the kernel, and nothing is written twice.
#[test]
fn only_settings_of_the_kernel_are_written() {
    for machine in RECORDED {
        let list = changes(machine, "1", "");
        let mut places = Vec::new();
        for step in list.to_apply() {
            for place in &step.places {
                if let ChangeTarget::File(path)
                | ChangeTarget::CpuListFile(path)
                | ChangeTarget::CpuMaskFile(path) = &place.target
                {
                    assert!(
                        path.starts_with("/proc/sys/") || path.starts_with("/sys/"),
                        "{machine}: {path}"
                    );
                    assert!(!path.starts_with("/sys/fs/cgroup"), "{machine}: {path}");
                    assert!(!place.value.is_empty() && !place.value.contains('\n'));
                }
                places.push(format!("{:?}", place.target));
            }
        }
        let count = places.len();
        places.sort();
        places.dedup();
        assert_eq!(places.len(), count, "{machine}");
    }
}

#[test]
fn a_plan_chooses_what_is_done() {
    let list = changes("simulated", "1", "");
    assert_eq!(action(&list, "swappiness"), Some(StepAction::Apply));
    // What catches a thread that runs away is taken away by name only, and so are services.
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
    assert_eq!(swappiness.expect("a step").places[0].value, "1");
    let list = changes("server", "2", host);
    let tuned = list.steps.iter().find(|step| step.name == "tuned");
    let service = ChangeTarget::Service("tuned.service".to_owned());
    assert_eq!(tuned.expect("a step").places[0].target, service);

    // Nothing but what is named, where the plan says so.
    let list = changes("simulated", "1", "[host]\ndefault = \"skip\"\n");
    assert!(
        list.to_apply().all(|step| step.kind == StepKind::Wall),
        "{:#?}",
        list.to_apply().collect::<Vec<_>>()
    );
}

#[test]
fn the_boot_line_is_whole_and_the_plan_wins() {
    let list = changes(
        "simulated",
        "1",
        "[boot]\narguments = [\"nohz_full=none\", \"quiet\"]\nreboot = \"plan\"\n",
    );
    let arguments = &list.boot_arguments;
    assert_eq!(arguments[..2], ["nohz_full=none", "quiet"]);
    for expected in [
        "isolcpus=managed_irq,domain,1",
        "rcu_nocbs=1",
        "irqaffinity=0,2-3",
    ] {
        let found = arguments.iter().filter(|argument| *argument == expected);
        assert_eq!(found.count(), 1, "{expected}: {arguments:?}");
    }
    let named = |argument: &&String| argument.starts_with("nohz_full");
    assert_eq!(arguments.iter().filter(named).count(), 1, "{arguments:?}");
    // What the next start has already stays in it.
    let server = changes("server", "2-3", "").boot_arguments;
    assert!(server.contains(&"skew_tick=1".to_owned()), "{server:?}");
}

/// What stops a thread that never sleeps goes by its name alone.
#[test]
fn no_default_takes_a_safety_net_away() {
    let net = "real-time-throttling";
    for host in ["", "[host]\ndefault = \"apply\"\n"] {
        let list = changes("laptop", "1", host);
        assert_eq!(action(&list, net), Some(StepAction::Skip), "{host}");
    }
    let named = changes("laptop", "1", &format!("[host]\n{net} = \"apply\"\n"));
    assert_eq!(action(&named, net), Some(StepAction::Apply));
}
