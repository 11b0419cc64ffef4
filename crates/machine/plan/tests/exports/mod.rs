// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exports of plans to other tools: their files, and the fields that they do not support.

mod snapshots;
mod texts;
mod tools;
mod unsupported;

use crate::example_machines;
use rampart_model::{
    APPLICATION_SCHEMA_VERSION, ChangeList, ChangeLocation, ChangeStep, ChangeTarget, Environment,
    Machine, Plan, ResolvedPlan, StepAction, StepKind,
};
use rampart_plan::{
    Engine, ExportSubject, Exported, Means, containers, kubernetes, libvirt, systemd, tuned,
};

/// A task, a container and a guest on two sockets.
pub(crate) const PLANT: &str = include_str!("plant.toml");
/// A guest with a share of the cache, and containers of several engines, on a laptop.
pub(crate) const DESK: &str = include_str!("desk.toml");

/// A plan resolved on a recorded machine.
pub(crate) struct Resolved {
    pub(crate) machine: Machine,
    pub(crate) environment: Environment,
    pub(crate) plan: Plan,
    pub(crate) resolved: ResolvedPlan,
}

impl Resolved {
    pub(crate) fn on(machine: &str, text: &str) -> Self {
        let (machine, environment) = example_machines::recorded(machine);
        Self::of(machine, environment, text)
    }

    pub(crate) fn of(machine: Machine, environment: Environment, text: &str) -> Self {
        let plan = example_machines::plan(text);
        Self {
            resolved: rampart_plan::resolve(&machine, &plan, &environment),
            machine,
            environment,
            plan,
        }
    }

    pub(crate) fn subject(&self) -> ExportSubject<'_> {
        ExportSubject {
            machine: &self.machine,
            environment: &self.environment,
            plan: &self.plan,
            resolved: &self.resolved,
            file: "/etc/rampart/plan.toml",
        }
    }

    /// Returns the name and the export of every tool.
    pub(crate) fn exports(&self) -> Vec<(&'static str, Exported)> {
        let subject = self.subject();
        vec![
            (
                "systemd",
                systemd(&subject, Means::Rampart("/usr/bin/rampart")),
            ),
            ("systemd-alone", systemd(&subject, Means::SystemdAlone)),
            ("tuned", tuned(&subject, &settings())),
            ("podman", containers(&subject, Engine::Podman)),
            ("docker", containers(&subject, Engine::Docker)),
            ("kubernetes", kubernetes(&subject).expect("YAML")),
            ("libvirt", libvirt(&subject, None).expect("XML")),
        ]
    }
}

/// Formats all files and findings as one text.
pub(crate) fn shown(exported: &Exported) -> String {
    let mut text = String::new();
    for file in &exported.files {
        text.push_str(&format!("==== {}\n{}\n", file.path, file.text));
    }
    text.push_str("==== findings\n");
    for finding in &exported.findings {
        text.push_str(&format!("{finding}\n"));
    }
    text
}

/// Returns some steps of each kind.
pub(crate) fn settings() -> ChangeList {
    let step = |name: &str, action, target, value: &str| ChangeStep {
        kind: StepKind::Knob,
        name: name.to_owned(),
        title: String::new(),
        action,
        why: String::new(),
        present: "1".to_owned(),
        wanted: value.to_owned(),
        locations: vec![ChangeLocation {
            target,
            location: String::new(),
            present: "1".to_owned(),
            value: value.to_owned(),
        }],
        disruptive: (name == "unbound-workqueues").then(|| "moves work".to_owned()),
        fix: None,
        source: String::new(),
    };
    let file = |path: &str| ChangeTarget::File(path.to_owned());
    let mask = |path: &str| ChangeTarget::CpuMaskFile(path.to_owned());
    ChangeList {
        schema_version: APPLICATION_SCHEMA_VERSION,
        tool_version: "0".to_owned(),
        steps: vec![
            step(
                "nmi-watchdog",
                StepAction::Apply,
                file("/proc/sys/kernel/nmi_watchdog"),
                "0",
            ),
            step(
                "receive",
                StepAction::AsWanted,
                file("/proc/sys/net/ipv4/conf/eth0.1/arp_filter"),
                "${x}",
            ),
            step(
                "unbound-workqueues",
                StepAction::Apply,
                mask("/sys/devices/virtual/workqueue/cpumask"),
                "0-1",
            ),
            step(
                "rcuc-priority",
                StepAction::Apply,
                ChangeTarget::ThreadPolicy(17),
                "fifo:4",
            ),
            step(
                "rcuo-affinity",
                StepAction::Apply,
                ChangeTarget::ThreadAffinity(18),
                "0-1",
            ),
            step(
                "default-affinity",
                StepAction::Apply,
                mask("/proc/irq/default_smp_affinity"),
                "0",
            ),
            step(
                "swappiness",
                StepAction::Skip,
                file("/proc/sys/vm/swappiness"),
                "10",
            ),
        ],
        boot_arguments: vec![
            "skew_tick=1".to_owned(),
            "isolcpus=managed_irq,domain,2".to_owned(),
        ],
    }
}
