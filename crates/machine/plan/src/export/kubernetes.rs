// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kubernetes: the kubelet's configuration, and a Pod for each container domain. The kubelet chooses
//! the CPUs of a pod.

use std::collections::{BTreeMap, BTreeSet};

use rampart_model::{DomainProgram, Finding, PlannedDomain, ResolvedDomain, Restart, Severity};
use serde::Serialize;

use super::answers::Answer::{NotConcerned, Supported, Unsupported};
use super::answers::{DomainAnswers, MachineAnswers};
use super::gaps::{Gaps, Part};
use super::{ExportSubject, Exported, ExportedFile, interrupts, kubelet, words};

/// A pod gets exclusive CPUs only with a memory limit ("Configure Quality of Service for Pods"), and
/// a plan has none for containers.
const MEMORY: &str = "256Mi";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pod {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    spec: PodSpec,
}

#[derive(Debug, Serialize)]
struct Metadata {
    name: String,
    labels: BTreeMap<&'static str, String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    node_selector: BTreeMap<&'static str, String>,
    restart_policy: &'static str,
    containers: Vec<PodContainer>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodContainer {
    name: String,
    image: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    args: Vec<String>,
    resources: Resources,
    #[serde(skip_serializing_if = "Option::is_none")]
    security_context: Option<SecurityContext>,
}

#[derive(Debug, Serialize)]
struct Resources {
    requests: BTreeMap<&'static str, String>,
    limits: BTreeMap<&'static str, String>,
}

#[derive(Debug, Serialize)]
struct SecurityContext {
    capabilities: Capabilities,
}

#[derive(Debug, Serialize)]
struct Capabilities {
    add: Vec<&'static str>,
}

const DOMAIN_ANSWERS: DomainAnswers = DomainAnswers {
    isolation: Unsupported(
        "the kubelet keeps other pods off the CPUs, but no services and no kernel threads",
        "rampart export systemd and tuned; with CRI-O a RuntimeClass, see below",
    ),
    cpus: Unsupported(
        "the pod gets the same number of CPUs that are not reserved; the kubelet chooses which",
        "compare with Cpus_allowed_list in /proc/PID/status",
    ),
    run: Supported,
    restart: Supported,
    image: Supported,
    engine: NotConcerned("the node's container runtime runs it"),
    priority: Unsupported(
        "the pod may set the policy (SYS_NICE, IPC_LOCK); Kubernetes sets no policy and no limits",
        "set it in the program",
    ),
    reservation: Unsupported(
        "the pod may set SCHED_DEADLINE (SYS_NICE); Kubernetes does not set it",
        "set it in the program",
    ),
    root_file_system: Unsupported(
        "pods run only images, not directories",
        "create an image of the directory",
    ),
    service: Unsupported(
        "Kubernetes does not support service threads outside the pod",
        "taskset for them on the node",
    ),
    caches: Unsupported(
        "a pod's manifest does not divide caches and memory bandwidth",
        "with CRI-O or containerd: a class of RDT by an annotation of the runtime",
    ),
    threads: Unsupported(
        "Kubernetes gives all threads the same CPUs",
        "place the threads in the program",
    ),
    interrupts: Unsupported(
        "Kubernetes does not place interrupts",
        "on the node, each time that the driver requests its interrupts: rampart plan show",
    ),
    guest: Supported,
    cell: Supported,
};

const MACHINE_ANSWERS: MachineAnswers = MachineAnswers {
    housekeeping: Supported,
    ..MachineAnswers::without(
        "the kubelet does not change the machine",
        "rampart export systemd and tuned, or the Node Tuning Operator",
    )
};

/// Writes the kubelet's configuration and the pods. Without a container domain there is no file.
///
/// # Errors
/// If the YAML writer refuses a value.
pub fn kubernetes(subject: &ExportSubject<'_>) -> Result<Exported, serde_saphyr::ser::Error> {
    let mut gaps = Gaps::default();
    gaps.of_machine(subject, &MACHINE_ANSWERS);
    let mut taken = BTreeSet::new();
    let mut pods = Vec::new();
    for (planned, resolved) in subject.domains() {
        let image = match image(planned) {
            Ok(image) => image,
            Err((why, fix)) => {
                gaps.not_written(planned, why, fix);
                continue;
            }
        };
        gaps.of_domain(planned, &DOMAIN_ANSWERS);
        let location = format!("domain `{}`, memory", planned.name);
        let memory = Finding::new(
            Severity::Warning,
            location,
            "a pod gets exclusive CPUs only with a memory limit, and a plan has none for containers",
        );
        gaps.add(
            Some(&planned.name),
            memory
                .values(MEMORY, "the memory that the program needs")
                .fix("change both memory fields of the manifest"),
        );
        let commands = interrupts::commands(subject, &planned.name);
        if !commands.is_empty() {
            let location = format!("domain `{}`, interrupts", planned.name);
            let what = "as root on the node, with their present numbers";
            let finding = Finding::new(Severity::Note, location, what);
            gaps.add(Some(&planned.name), finding.fix(commands.join("; ")));
        }
        let label = words::label(&planned.name, &mut taken);
        pods.push((planned, resolved, label, image));
    }
    let mut files = Vec::new();
    if !pods.is_empty() {
        let domains: Vec<&ResolvedDomain> =
            pods.iter().map(|(_, resolved, _, _)| *resolved).collect();
        let (text, why) = kubelet::configuration(subject, &domains)?;
        let mut head = gaps.head("kubernetes", subject, Part::Machine);
        head.push("Reasons:".to_owned());
        head.extend(why);
        files.push(file("kubelet.yaml", &head, &text));
        for (planned, resolved, label, image) in pods {
            let mut head = gaps.head("kubernetes", subject, Part::Domain(&planned.name));
            head.extend(words::broken(
                "With CRI-O, name a RuntimeClass here as runtimeClassName whose handler allows the \
                 annotations cpu-load-balancing.crio.io, irq-load-balancing.crio.io and \
                 cpu-quota.crio.io, and set each to \"disable\".",
            ));
            let text = serde_saphyr::to_string(&pod(subject, planned, resolved, &label, image))?;
            files.push(file(&format!("pod-{label}.yaml"), &head, &text));
        }
    }
    Ok(Exported {
        files,
        findings: gaps.into_findings(),
    })
}

fn file(name: &str, head: &[String], text: &str) -> ExportedFile {
    ExportedFile {
        path: format!("kubernetes/{name}"),
        text: format!("{}---\n{text}", words::hash(head)),
    }
}

fn image(planned: &PlannedDomain) -> Result<String, (String, &'static str)> {
    if planned.kind.program() != DomainProgram::Container {
        return Err((
            format!("it is of kind {}, not a container", planned.kind),
            "rampart export systemd, or libvirt for guests",
        ));
    }
    let from = planned.container.clone().unwrap_or_default();
    from.image.ok_or_else(|| {
        (
            "pods run only images, and the plan names none for it".to_owned(),
            "write container = { engine = \"podman\", image = \"NAME\" } in the plan",
        )
    })
}

fn pod(
    subject: &ExportSubject<'_>,
    planned: &PlannedDomain,
    resolved: &ResolvedDomain,
    label: &str,
    image: String,
) -> Pod {
    let amounts = BTreeMap::from([
        ("cpu", resolved.cpus.len().to_string()),
        ("memory", MEMORY.to_owned()),
    ]);
    let real_time = resolved.policy.is_some_and(|policy| policy.is_real_time());
    let host = &subject.machine.host_name;
    let mut node_selector = BTreeMap::new();
    if !host.is_empty() {
        node_selector.insert("kubernetes.io/hostname", host.clone());
    }
    Pod {
        api_version: "v1",
        kind: "Pod",
        metadata: Metadata {
            name: format!("rampart-{label}"),
            labels: BTreeMap::from([("app.kubernetes.io/part-of", "rampart".to_owned())]),
        },
        spec: PodSpec {
            node_selector,
            restart_policy: match planned.restart {
                Restart::Never => "Never",
                Restart::OnFailure => "OnFailure",
                Restart::Always => "Always",
            },
            containers: vec![PodContainer {
                name: label.to_owned(),
                image,
                args: planned.run.clone(),
                resources: Resources {
                    requests: amounts.clone(),
                    limits: amounts,
                },
                security_context: real_time.then(|| SecurityContext {
                    capabilities: Capabilities {
                        add: vec!["SYS_NICE", "IPC_LOCK"],
                    },
                }),
            }],
        },
    }
}
