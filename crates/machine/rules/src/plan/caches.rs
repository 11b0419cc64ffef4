// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules of shares of caches and of memory bandwidth.

use rampart_model::{CacheControl, Finding, PlanFinding, Severity};

use super::context::DomainContext;
use super::finding::{about, location};
use super::{PLAN_RULE, PlanContext, REQUIRED};
use crate::Rule;

pub(crate) const CACHE_SHARE: Rule = Rule {
    id: "cache-share",
    severity: Severity::Error,
    title: "The processor can provide the shares of caches and memory bandwidth that the plan requests",
    reason: "resctrl divides a cache in whole ways, for a fixed number of groups.",
    source: "Linux Documentation/filesystems/resctrl.rst",
    ..REQUIRED
};

pub(crate) const CACHE_SHARE_LEFT: Rule = Rule {
    id: "cache-share-left",
    severity: Severity::Warning,
    title: "The processor can provide shares that the plan leaves to other software",
    reason: "The plan skips `cache-schemata`, so Rampart writes no share.",
    source: "Linux Documentation/filesystems/resctrl.rst",
    ..PLAN_RULE
};

pub(crate) const CACHE_SHARE_DEVICES: Rule = Rule {
    id: "cache-share-devices",
    severity: Severity::Warning,
    title: "No ways of a share are written by devices",
    reason: "Devices write to these ways directly, whatever group a CPU is in.",
    source: "Linux Documentation/filesystems/resctrl.rst, shareable_bits",
    ..PLAN_RULE
};

pub(crate) const CACHE_SHARE_RAISED: Rule = Rule {
    id: "cache-share-raised",
    severity: Severity::Note,
    title: "A share has at least the fewest ways that the processor provides",
    reason: "The processor has a minimum number of ways for each group.",
    source: "Linux Documentation/filesystems/resctrl.rst, min_cbm_bits",
    ..PLAN_RULE
};

/// The knob that the shares are written to.
const SCHEMATA: &str = "cache-schemata";

pub(super) fn shares(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let requesting = context
        .domains()
        .filter(|domain| domain.planned.cache.is_some() && !domain.resolved.cpus.is_empty());
    match &context.environment.cache_control {
        None => requesting.map(not_known).collect(),
        Some(CacheControl::Absent) => requesting.map(|domain| absent(context, domain)).collect(),
        Some(CacheControl::NotMounted) => requesting.map(not_mounted).collect(),
        Some(CacheControl::Mounted(_)) => divided(context),
    }
}

fn not_known(domain: DomainContext<'_>) -> PlanFinding {
    CACHE_SHARE.not_decided_for(
        domain.planned,
        "it is not known whether the processor can divide its caches",
        "resctrl in /proc/filesystems",
        "make /proc/filesystems readable",
    )
}

fn not_mounted(domain: DomainContext<'_>) -> PlanFinding {
    CACHE_SHARE
        .not_decided_for(
            domain.planned,
            "its ways are not known before resctrl is mounted; `rampart apply` mounts it",
            "mounted",
            "mount -t resctrl resctrl /sys/fs/resctrl shows them now",
        )
        .values("not mounted", "mounted")
}

fn absent(context: &PlanContext<'_>, domain: DomainContext<'_>) -> PlanFinding {
    let what = "no share of a cache can be set: the processor or the kernel has no resctrl";
    let left = context.leaves_by_name(SCHEMATA);
    let rule = if left { CACHE_SHARE_LEFT } else { CACHE_SHARE };
    let finding = rule
        .of_domain(domain.planned, what)
        .values("no resctrl in /proc/filesystems", "resctrl")
        .fix("remove `cache`, and choose CPUs with a cache of their own: { not-l3-of = \"housekeeping\" }");
    if left { finding } else { finding.impossible() }
}

fn divided(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let of_domain = |name: &str, finding: &Finding| -> Option<PlanFinding> {
        let domain = context.plan.domain(name)?;
        let location = format!("{}, {}", location(domain), finding.location);
        Some(about(
            domain,
            Finding {
                location,
                ..finding.clone()
            },
        ))
    };
    match context.division {
        None => Vec::new(),
        Some(Ok(division)) => division
            .groups
            .iter()
            .flat_map(|group| {
                group
                    .findings
                    .iter()
                    .filter_map(|finding| of_domain(&group.domain, finding))
            })
            .collect(),
        Some(Err(refusal)) => {
            let mut finding = refusal.finding.clone();
            let left = context.leaves_by_name(SCHEMATA);
            if left {
                finding.rule = Some(CACHE_SHARE_LEFT.id.to_owned());
                finding.severity = CACHE_SHARE_LEFT.severity;
            }
            of_domain(&refusal.domain, &finding)
                .map(|finding| if left { finding } else { finding.impossible() })
                .into_iter()
                .collect()
        }
    }
}
