// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules of interference that no isolation prevents: interrupts, firmware, shared caches.

use rampart_model::{CpuRole, CpuSet, PlanFinding, plural};

use super::{PlanContext, rule_of_knob};
use crate::{Rule, add_parameters};

pub(super) const NETWORK_QUEUES: Rule = rule_of_knob("network-queues");
pub(super) const NMI_WATCHDOG: Rule = rule_of_knob("nmi-watchdog");
pub(super) const FIRMWARE_INTERRUPTS: Rule = rule_of_knob("firmware-interrupts");
pub(super) const SHARED_CACHE: Rule = rule_of_knob("shared-cache");

pub(super) fn network_queues(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let housekeeping = context.resolved.housekeeping.len();
    if context.resolved.real_time.is_empty() || housekeeping == 0 {
        return Vec::new();
    }
    let Some(interfaces) = &context.environment.network_queues else {
        return vec![NETWORK_QUEUES.not_decided(
            "/sys/class/net",
            "the queues of network interfaces cannot be read",
            format!(
                "at most {} for each interface",
                plural(housekeeping, "queue")
            ),
            "mount -t sysfs sysfs /sys, or check with `ethtool -l INTERFACE`",
        )];
    };
    interfaces
        .iter()
        .filter(|interface| usize::try_from(interface.queues).unwrap_or(usize::MAX) > housekeeping)
        .filter(|interface| !is_owned(context, &interface.interface))
        .map(|interface| {
            let name = &interface.interface;
            NETWORK_QUEUES
                .of_machine(
                    format!("network interface {name}"),
                    "it has more queues than there are housekeeping CPUs, and the driver spreads their interrupts over the others",
                )
                .values(
                    plural(interface.queues, "queue"),
                    format!("at most {housekeeping}"),
                )
                .fix(format!(
                    "ethtool -L {name} combined {housekeeping} (the link goes down for a short time)"
                ))
        })
        .collect()
}

/// Returns whether a domain owns an interrupt of this interface.
fn is_owned(context: &PlanContext<'_>, interface: &str) -> bool {
    context
        .resolved
        .interrupts
        .iter()
        .any(|interrupt| interrupt.owner.is_some() && is_of(&interrupt.action, interface))
}

/// Returns whether an interrupt's name contains the interface as a whole word: `eth1-rx-0` is of
/// `eth1`, `eth10-rx-0` is not.
fn is_of(action: &str, interface: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    action.match_indices(interface).any(|(at, _)| {
        let before = action.get(..at).and_then(|text| text.chars().next_back());
        let after = action
            .get(at + interface.len()..)
            .and_then(|text| text.chars().next());
        !before.is_some_and(inside) && !after.is_some_and(inside)
    })
}

pub(super) fn nmi_watchdog(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    if context.resolved.real_time.is_empty() {
        return Vec::new();
    }
    let location = "/proc/sys/kernel/nmi_watchdog";
    let finding = match context.environment.nmi_watchdog {
        Some(true) if context.leaves("nmi-watchdog") => NMI_WATCHDOG
            .of_machine(
                location,
                "an interrupt that cannot be masked reaches every CPU every few seconds",
            )
            .values("1", "0")
            .fix("sysctl kernel.nmi_watchdog=0"),
        Some(_) => return Vec::new(),
        None => NMI_WATCHDOG.not_decided(
            location,
            "it is not known whether the NMI watchdog is on",
            "0",
            add_parameters(context.machine, "nmi_watchdog=0")
                .unwrap_or_else(|| "sysctl kernel.nmi_watchdog=0".to_owned()),
        ),
    };
    vec![finding]
}

pub(super) fn firmware_interrupts(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    if context.resolved.real_time.is_empty() {
        return Vec::new();
    }
    let location = "MSR_SMI_COUNT";
    let finding = match context.environment.firmware_interrupts {
        Some((count, time)) if count > 0 => FIRMWARE_INTERRUPTS
            .of_machine(
                location,
                "the firmware stops all CPUs, and no plan can prevent it",
            )
            .values(format!("{count} interrupts in {time}"), "none")
            .fix("disable USB legacy support, power capping and the logging of memory errors in the firmware's setup"),
        Some(_) => return Vec::new(),
        None => FIRMWARE_INTERRUPTS.not_decided(
            location,
            "it is not known whether the firmware interrupts the CPUs",
            "no increase of the count",
            "on an Intel processor, as root: modprobe msr; else measure with `rampart measure noise`",
        ),
    };
    vec![finding]
}

pub(super) fn shared_cache(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let topology = &context.machine.topology;
    context
        .domains()
        .filter(|domain| {
            let cache = domain.planned.cache.as_ref();
            !cache.is_some_and(|cache| cache.exclusive)
        })
        .filter_map(|domain| {
            let owned = &domain.claim.owned;
            let first = owned.first()?;
            let in_use = |cpu: &rampart_model::CpuOwnership| {
                !matches!(cpu.role, CpuRole::IdleSibling | CpuRole::Offline)
            };
            let others: CpuSet = topology
                .under_last_level_cache(owned)
                .difference(owned)
                .iter()
                .filter(|cpu| context.resolved.cpu(*cpu).is_some_and(in_use))
                .collect();
            let level = topology
                .last_level_cache(first)
                .map_or(0, |cache| cache.level);
            (!others.is_empty()).then(|| {
                SHARED_CACHE
                    .of_domain(
                        domain.planned,
                        "other CPUs fill its last-level cache",
                    )
                    .values(
                        format!("L{level} shared with {}", others.named()),
                        "a cache of its own, or ways of it",
                    )
                    .fix("write cache = { ways = N, exclusive = true } (without resctrl: cpus = { not-l3-of = \"housekeeping\" })")
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::is_of;

    #[test]
    fn matches_an_interface_as_a_whole_word() {
        for (action, expected) in [
            ("eth1", true),
            ("eth1-rx-0", true),
            ("i40e-eth1-TxRx-3", true),
            ("eth10-rx-0", false),
            ("beth1", false),
            ("eth10 eth1", true),
            ("", false),
        ] {
            assert_eq!(is_of(action, "eth1"), expected, "{action}");
        }
    }
}
