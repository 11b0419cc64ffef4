// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kubelet's configuration: the CPUs that pods may have exclusively (Kubernetes, "Control CPU
//! Management Policies on the Node").

use std::collections::BTreeMap;

use rampart_model::{CpuSet, ResolvedDomain};
use serde::Serialize;

use super::{ExportSubject, words};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct KubeletConfiguration {
    api_version: &'static str,
    kind: &'static str,
    cpu_manager_policy: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    cpu_manager_policy_options: BTreeMap<&'static str, &'static str>,
    #[serde(rename = "reservedSystemCPUs")]
    reserved_system_cpus: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    topology_manager_policy: Option<&'static str>,
}

/// Returns the file and the reasons of its values. `pods` are the domains that Kubernetes runs.
pub(super) fn configuration(
    subject: &ExportSubject<'_>,
    pods: &[&ResolvedDomain],
) -> Result<(String, Vec<String>), serde_saphyr::ser::Error> {
    let topology = &subject.machine.topology;
    let given = pods
        .iter()
        .fold(CpuSet::new(), |all, domain| all.union(&domain.cpus));
    let reserved = topology.online.difference(&given);
    let others = reserved.difference(&subject.resolved.housekeeping);
    let mut why = vec![format!(
        "The kubelet assigns {} to pods. Reserved are the housekeeping CPUs{}.",
        given.named(),
        if others.is_empty() {
            String::new()
        } else {
            format!(
                " and {}, which belong to other domains or stay idle",
                others.named()
            )
        }
    )];
    let mut options = BTreeMap::new();
    let several = |cpus: &CpuSet| cpus.iter().any(|cpu| topology.core(cpu).len() > 1);
    let whole = |cpus: &CpuSet| cpus.iter().all(|cpu| topology.core(cpu).is_subset(cpus));
    if pods
        .iter()
        .all(|domain| several(&domain.cpus) && whole(&domain.cpus))
    {
        options.insert("full-pcpus-only", "true");
        why.push("full-pcpus-only: every container of the plan has whole cores.".to_owned());
    }
    if !others.is_empty() {
        options.insert("strict-cpu-reservation", "true");
        why.push(
            "strict-cpu-reservation keeps pods off the CPUs of the other domains. It also keeps \
             ordinary pods off the housekeeping CPUs, so they run on CPUs that no pod has \
             exclusively: taint the node against them. Kubernetes 1.32 requires the feature gate \
             CPUManagerPolicyAlphaOptions for it, later versions none."
                .to_owned(),
        );
    } else {
        why.push(
            "No strict-cpu-reservation: ordinary pods may run on the housekeeping CPUs, and on the \
             CPUs of a container until its pod starts: taint the node against them."
                .to_owned(),
        );
    }
    let local = pods
        .iter()
        .all(|domain| subject.nodes(&domain.cpus).len() <= 1);
    let aligned = (topology.nodes.len() > 1).then_some(if local {
        "single-numa-node"
    } else {
        "restricted"
    });
    why.push(
        "No memoryManagerPolicy: the policy Static needs the reserved memory of each node, which a \
         plan does not have."
            .to_owned(),
    );
    why.push(
        "To change the CPU manager policy, drain the node, stop the kubelet, remove \
         /var/lib/kubelet/cpu_manager_state and start the kubelet."
            .to_owned(),
    );
    let configuration = KubeletConfiguration {
        api_version: "kubelet.config.k8s.io/v1beta1",
        kind: "KubeletConfiguration",
        cpu_manager_policy: "static",
        cpu_manager_policy_options: options,
        reserved_system_cpus: reserved.to_string(),
        topology_manager_policy: aligned,
    };
    let why = why.iter().flat_map(|line| words::listed(line)).collect();
    Ok((serde_saphyr::to_string(&configuration)?, why))
}
