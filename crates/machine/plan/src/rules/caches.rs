// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shares of caches and of memory bandwidth: whether they can be had.

use rampart_model::{CacheControl, Finding, PlanFinding, Severity};

use super::{Context, Each, Say, about, unknown_of};

const RULE: &str = "cache-share";
/// What the division is written to; who leaves it to others answers for it himself.
const SCHEMATA: &str = "cache-schemata";

pub(super) fn shares(context: &Context<'_>) -> Vec<PlanFinding> {
    let asking = context
        .domains()
        .filter(|each| each.planned.cache.is_some() && !each.resolved.cpus.is_empty());
    match &context.environment.cache_control {
        None => asking.map(not_known).collect(),
        Some(CacheControl::Absent) => asking.map(|each| absent(context, each)).collect(),
        Some(CacheControl::NotMounted) => asking.map(not_mounted).collect(),
        Some(CacheControl::Mounted(_)) => divided(context),
    }
}

fn not_known(each: Each<'_>) -> PlanFinding {
    unknown_of(
        RULE,
        each.planned,
        "whether the processor can divide its caches is not known",
        "resctrl in /proc/filesystems",
        "make /proc/filesystems readable",
    )
}

fn not_mounted(each: Each<'_>) -> PlanFinding {
    about(
        RULE,
        each.planned,
        Severity::Note,
        "which ways it gets is not known before resctrl is mounted, as `rampart apply` does",
    )
    .values("not mounted", "mounted")
    .fix("mount -t resctrl resctrl /sys/fs/resctrl shows it now")
}

fn absent(context: &Context<'_>, each: Each<'_>) -> PlanFinding {
    let what = "no share of a cache can be set: the processor cannot divide its caches, or the kernel does not know how";
    let severity = if context.leaves_by_name(SCHEMATA) {
        Severity::Warning
    } else {
        Severity::Error
    };
    let finding = about(RULE, each.planned, severity, what)
        .values("no resctrl in /proc/filesystems", "resctrl")
        .fix("leave `cache` out, and choose CPUs with a cache of their own: { not-l3-of = \"housekeeping\" }");
    if severity == Severity::Error {
        finding.impossible()
    } else {
        finding
    }
}

fn divided(context: &Context<'_>) -> Vec<PlanFinding> {
    let domain = |name: &str| context.plan.domain(name);
    let told = |name: &str, finding: &Finding| -> Option<PlanFinding> {
        let mut told = about(RULE, domain(name)?, finding.severity, finding.what.clone());
        told.finding = Finding {
            location: format!("{}, {}", told.finding.location, finding.location),
            ..finding.clone()
        };
        Some(told)
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
                    .map(|finding| (&group.domain, finding))
            })
            .filter_map(|(name, finding)| told(name, finding))
            .collect(),
        Some(Err(refusal)) => told(&refusal.domain, &refusal.finding)
            .map(|finding| {
                if context.leaves_by_name(SCHEMATA) {
                    let mut mild = finding;
                    mild.finding.severity = Severity::Warning;
                    mild
                } else {
                    finding.impossible()
                }
            })
            .into_iter()
            .collect(),
    }
}
