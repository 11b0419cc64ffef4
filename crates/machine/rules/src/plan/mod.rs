// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules of plans. A plan waives a rule by its id.

mod boot;
pub(crate) mod caches;
mod cells;
mod context;
mod cores;
mod detached;
mod finding;
mod guests;
mod host;
mod interference;
mod limits;
mod memory;
mod owners;
mod priorities;

use rampart_model::{Enforcement, Plan, PlanFinding, Severity};

use crate::{Rule, RuleBook};

pub use cells::CELL_MACHINE;
pub use context::{Claim, Claims, PlanContext};
pub use detached::{detach_driver_problem, detach_problems};

/// Defaults of a rule that a plan may waive.
const PLAN_RULE: Rule = Rule {
    id: "",
    book: RuleBook::Plan,
    severity: Severity::Error,
    title: "",
    reason: "",
    source: "",
    waivable: true,
};

/// Defaults of a rule that no plan may waive: a plan that breaks it cannot work.
const REQUIRED: Rule = Rule {
    waivable: false,
    ..PLAN_RULE
};

const UNUSED_WAIVER: Rule = Rule {
    id: "unused-waiver",
    severity: Severity::Note,
    title: "The plan breaks every rule that it waives",
    reason: "A waiver that nothing needs hides later findings.",
    source: "Rampart",
    ..REQUIRED
};

/// Returns the rule of a knob, for constants: an unknown knob is then a build error.
///
/// # Panics
/// If there is no knob of this name.
#[must_use]
pub const fn rule_of_knob(name: &str) -> Rule {
    match crate::catalogue::const_named(name) {
        Some(knob) => knob.rule(),
        None => panic!("no knob of this name"),
    }
}

/// The rules of plans, in the order of their checks. Those of [`RuleBook::Machine`] are knobs of
/// the catalogue.
pub const PLAN_RULES: [Rule; 45] = [
    owners::SAME_MACHINE,
    CELL_MACHINE,
    cells::CELL_CACHE_SHARE,
    cells::CELL_WITHOUT_CACHE_SHARE,
    cells::CELL_FUNCTION_DRIVER,
    detached::DETACHED_MACHINE,
    detached::DETACHED_DRIVER,
    owners::SELECTOR,
    owners::CPU_EXISTS,
    owners::HOUSEKEEPING,
    owners::UNASSIGNED_CPU,
    owners::ONE_OWNER,
    guests::VIRTUAL_CPU_PLACEMENT,
    guests::SPARE_GUEST_CPU,
    guests::GUEST_TWO_CPUS,
    guests::VIRTUAL_CPU_RANGE,
    cores::SIBLING_THREADS,
    cores::CPU_TAKEN_OFFLINE,
    memory::ONE_NODE,
    memory::GUEST_HUGE_PAGES,
    memory::HUGE_PAGES_RESERVED_LATER,
    priorities::PRIORITY_LADDER,
    priorities::PRIORITY_LADDER_THROTTLED,
    boot::BOOT_LISTS,
    boot::RESTART_NEEDED,
    boot::MANAGED_INTERRUPTS,
    boot::BOOT_ISOLATION,
    cores::ONE_KIND_OF_CORE,
    boot::KERNEL_OPTION,
    boot::NO_HZ_FULL,
    guests::DEDICATED_HINT,
    limits::RESOURCE_LIMITS,
    guests::GUEST_KERNEL,
    limits::OTHER_MANAGERS,
    limits::GROUP_BUDGET,
    interference::NETWORK_QUEUES,
    interference::NMI_WATCHDOG,
    interference::FIRMWARE_INTERRUPTS,
    interference::SHARED_CACHE,
    caches::CACHE_SHARE,
    caches::CACHE_SHARE_LEFT,
    caches::CACHE_SHARE_DEVICES,
    caches::CACHE_SHARE_RAISED,
    host::HOST_SETTINGS,
    UNUSED_WAIVER,
];

/// The checks, in the order in which their findings are shown within one severity.
const CHECKS: [fn(&PlanContext<'_>) -> Vec<PlanFinding>; 30] = [
    owners::same_machine,
    cells::machine,
    cells::cache_shares,
    cells::function_drivers,
    detached::machine,
    owners::selector,
    owners::cpu_exists,
    owners::housekeeping,
    owners::one_owner,
    guests::placement,
    guests::two_cpus,
    guests::range,
    cores::siblings,
    memory::one_node,
    memory::huge_pages,
    priorities::ladder,
    boot::command_line,
    cores::kind,
    boot::kernel_options,
    guests::dedicated_hint,
    limits::resources,
    guests::kernel,
    limits::managers,
    limits::group_budget,
    interference::network_queues,
    interference::nmi_watchdog,
    interference::firmware_interrupts,
    interference::shared_cache,
    caches::shares,
    host::settable,
];

/// Returns all findings about a plan, the most severe first, with the plan's waivers and its
/// enforcement applied.
#[must_use]
pub fn check_plan(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let mut findings: Vec<PlanFinding> = CHECKS
        .iter()
        .flat_map(|check| check(context))
        .map(|finding| waive(context.plan, finding))
        .collect();
    findings.extend(unused_waivers(context.plan, &findings));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.finding.severity));
    findings
}

/// Applies the plan's waivers and its enforcement to a finding.
fn waive(plan: &Plan, mut finding: PlanFinding) -> PlanFinding {
    if finding.impossible || finding.finding.severity == Severity::Note {
        return finding;
    }
    finding.waived = plan
        .waivers
        .iter()
        .find(|waiver| {
            waiver.rule == finding.rule()
                && (waiver.domain.is_none() || waiver.domain == finding.domain)
        })
        .map(|waiver| waiver.reason.clone());
    if plan.machine.policy == Enforcement::Warn && finding.finding.severity == Severity::Error {
        finding.finding.severity = Severity::Warning;
    }
    finding
}

fn unused_waivers(plan: &Plan, findings: &[PlanFinding]) -> Vec<PlanFinding> {
    plan.waivers
        .iter()
        .filter(|waiver| {
            !findings.iter().any(|finding| {
                finding.waived.is_some()
                    && finding.rule() == waiver.rule
                    && (waiver.domain.is_none() || waiver.domain == finding.domain)
            })
        })
        .map(|waiver| {
            UNUSED_WAIVER
                .of_machine("[[waive]]", "the plan waives a rule that it does not break")
                .values(waiver.rule.clone(), "no waiver")
                .fix("remove the waiver")
        })
        .collect()
}
