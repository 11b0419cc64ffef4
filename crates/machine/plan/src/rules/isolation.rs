// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What reaches a real-time CPU past every wall: interrupts, firmware, shared caches.

use rampart_model::{CpuSet, PlanFinding, Severity, plural};

use super::{Context, Say, about, machine, unknown};
use crate::view;

pub(super) fn network_queues(context: &Context<'_>) -> Vec<PlanFinding> {
    let rule = "network-queues";
    let housekeeping = context.resolved.housekeeping.len();
    if context.resolved.real_time.is_empty() || housekeeping == 0 {
        return Vec::new();
    }
    let Some(interfaces) = &context.environment.network_queues else {
        return vec![unknown(
            rule,
            "/sys/class/net",
            "the queues of network interfaces are not known",
            format!("at most {} an interface", plural(housekeeping, "queue")),
            "mount -t sysfs sysfs /sys, or look with `ethtool -l INTERFACE`",
        )];
    };
    interfaces
        .iter()
        .filter(|interface| usize::try_from(interface.queues).unwrap_or(usize::MAX) > housekeeping)
        .filter(|interface| !is_owned(context, &interface.interface))
        .map(|interface| {
            let name = &interface.interface;
            machine(rule, Severity::Warning, format!("network interface {name}"), "it has more queues than there are housekeeping CPUs, and the driver spreads their interrupts over the others")
                .values(plural(interface.queues, "queue"), format!("at most {housekeeping}"))
                .fix(format!("ethtool -L {name} combined {housekeeping}; the link goes down for a moment"))
        })
        .collect()
}

/// Whether a domain owns an interrupt of this interface.
fn is_owned(context: &Context<'_>, interface: &str) -> bool {
    context
        .resolved
        .interrupts
        .iter()
        .any(|interrupt| interrupt.owner.is_some() && is_of(&interrupt.action, interface))
}

/// Whether an interrupt's name has the interface as a word of its own: `eth1-rx-0` is of `eth1`,
/// `eth10-rx-0` is not.
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

pub(super) fn latency_killers(context: &Context<'_>) -> Vec<PlanFinding> {
    let rule = "latency-killers";
    if context.resolved.real_time.is_empty() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let watchdog = "/proc/sys/kernel/nmi_watchdog";
    match context.environment.nmi_watchdog {
        Some(true) if context.leaves("nmi-watchdog") => findings.push(
            machine(
                rule,
                Severity::Warning,
                watchdog,
                "an interrupt that nothing can mask comes to every CPU every few seconds",
            )
            .values("1", "0")
            .fix("sysctl kernel.nmi_watchdog=0"),
        ),
        Some(_) => {}
        None => findings.push(unknown(
            rule,
            watchdog,
            "whether the NMI watchdog is on is not known",
            "0",
            "boot with nmi_watchdog=0, where the kernel has one and does not show it",
        )),
    }
    let register = "MSR_SMI_COUNT";
    match context.environment.firmware_interrupts {
        Some((count, time)) if count > 0 => findings.push(
            machine(rule, Severity::Warning, register, "the firmware stops all CPUs, and no plan keeps it from that")
                .values(format!("{count} interrupts in {time}"), "none")
                .fix("look in the firmware's settings for USB legacy support, power capping, and logging of memory errors; stop fwupd-refresh.timer"),
        ),
        Some(_) => {}
        None => findings.push(
            unknown(
                rule,
                register,
                "whether the firmware interrupts the CPUs is not known",
                "no interrupt while it is watched",
                "on an Intel processor, as root: modprobe msr; else measure with `rampart measure noise`",
            ),
        ),
    }
    findings
}

pub(super) fn shared_cache(context: &Context<'_>) -> Vec<PlanFinding> {
    let topology = &context.machine.topology;
    context
        .domains()
        .filter(|each| !each.claim.got.is_empty())
        .filter(|each| !each.planned.cache.as_ref().is_some_and(|cache| cache.exclusive))
        .filter_map(|each| {
            let under = view::under_last_level(topology, &each.claim.got);
            let others: CpuSet = under
                .difference(&each.claim.got)
                .iter()
                .filter(|cpu| {
                    context.resolved.cpu(*cpu).is_some_and(|other| {
                        !matches!(
                            other.role,
                            rampart_model::CpuRole::IdleSibling | rampart_model::CpuRole::Offline
                        )
                    })
                })
                .collect();
            let level = each
                .claim
                .got
                .first()
                .and_then(|cpu| view::last_level(topology, cpu))
                .map_or(0, |cache| cache.level);
            (!others.is_empty()).then(|| {
                about("shared-cache", each.planned, Severity::Warning, "others fill the last-level cache that it works in, which no shield keeps out")
                    .values(format!("L{level} shared with {}", others.named()), "a cache, or ways of it, of its own")
                    .fix("write cache = { ways = N, exclusive = true } where the processor can, choose CPUs with { not-l3-of = \"housekeeping\" }, or measure the leak and waive the rule")
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::is_of;

    #[test]
    fn an_interrupt_is_of_the_interface_that_it_names_whole() {
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
