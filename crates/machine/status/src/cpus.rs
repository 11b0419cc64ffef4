// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The activity of each CPU over the interval, and the part of it that is unwanted.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rampart_model::{
    CountStatus, CpuId, CpuSet, CpuStatus, InterruptSort, NoiseSource, NoiseSourceKind,
    ObservedInterrupt, ThreadStatus, is_device_softirq,
};

use rampart_rules::StateComparison;

/// Returns the state of every CPU of the plan and of the machine.
pub(crate) fn all(comparison: &StateComparison<'_>) -> Vec<CpuStatus> {
    let planned: CpuSet = comparison
        .plan
        .iter()
        .flat_map(|plan| &plan.resolved.cpus)
        .map(|ownership| ownership.cpu)
        .collect();
    let all = planned.union(&comparison.later.online);
    all.iter().map(|cpu| one(comparison, cpu)).collect()
}

fn one(comparison: &StateComparison<'_>, cpu: CpuId) -> CpuStatus {
    let ownership = comparison.plan.and_then(|plan| plan.resolved.cpu(cpu));
    let interrupts = interrupts(comparison, cpu);
    let softirqs = softirqs(comparison, cpu);
    let total = |counts: &[CountStatus]| counts.iter().map(|count| count.count).sum::<u64>();
    CpuStatus {
        cpu,
        online: comparison.later.online.contains(cpu),
        owner: ownership.and_then(|ownership| ownership.owner.clone()),
        role: comparison.role(cpu),
        busy: busy(comparison, cpu),
        interrupts_per_second: comparison.per_second(total(&interrupts)),
        softirqs_per_second: comparison.per_second(total(&softirqs)),
        threads: threads(comparison, cpu),
        noise_sources: noise_sources(comparison, cpu, &interrupts, &softirqs),
        interrupts,
        softirqs,
    }
}

fn busy(comparison: &StateComparison<'_>, cpu: CpuId) -> f64 {
    let (Some(before), Some(after)) = (
        comparison.earlier.cpus.get(&cpu),
        comparison.later.cpus.get(&cpu),
    ) else {
        return 0.0;
    };
    let busy = after.busy.saturating_sub(before.busy).0 as f64;
    let total = after.total.saturating_sub(before.total).0 as f64;
    if total > 0.0 {
        (busy / total).min(1.0)
    } else {
        0.0
    }
}

fn threads(comparison: &StateComparison<'_>, cpu: CpuId) -> Vec<ThreadStatus> {
    let mut threads: Vec<ThreadStatus> = comparison
        .later
        .threads
        .iter()
        .filter(|thread| {
            thread.cpu == cpu && !comparison.is_own(thread) && comparison.used(thread).0 > 0
        })
        .map(|thread| ThreadStatus {
            process: thread.process,
            thread: thread.thread,
            name: thread.name.clone(),
            kernel: thread.kernel,
            policy: thread.policy,
            cpu_time: comparison.used(thread),
            domain: comparison.domain_of(thread).map(str::to_owned),
        })
        .collect();
    threads.sort_by_key(|thread| (Reverse(thread.cpu_time), thread.thread));
    threads
}

fn increase(before: Option<&BTreeMap<CpuId, u64>>, now: &BTreeMap<CpuId, u64>, cpu: CpuId) -> u64 {
    let count = |counts: &BTreeMap<CpuId, u64>| counts.get(&cpu).copied().unwrap_or_default();
    // A device that was added in the interval starts at 0; one that reuses a number may count back.
    count(now).saturating_sub(before.map(count).unwrap_or_default())
}

fn most_frequent_first(mut counts: Vec<CountStatus>) -> Vec<CountStatus> {
    counts.retain(|count| count.count > 0);
    counts.sort_by_key(|count| Reverse(count.count));
    counts
}

fn interrupts(comparison: &StateComparison<'_>, cpu: CpuId) -> Vec<CountStatus> {
    let before: BTreeMap<&str, &ObservedInterrupt> = comparison
        .earlier
        .interrupts
        .iter()
        .map(|interrupt| (interrupt.name.as_str(), interrupt))
        .collect();
    let counts = comparison
        .later
        .interrupts
        .iter()
        .map(|interrupt| CountStatus {
            name: interrupt.name.clone(),
            action: interrupt.action.clone(),
            count: increase(
                before
                    .get(interrupt.name.as_str())
                    .map(|interrupt| &interrupt.counts),
                &interrupt.counts,
                cpu,
            ),
        });
    most_frequent_first(counts.collect())
}

fn softirqs(comparison: &StateComparison<'_>, cpu: CpuId) -> Vec<CountStatus> {
    let counts = comparison.later.softirqs.iter().map(|softirq| {
        let before = comparison
            .earlier
            .softirqs
            .iter()
            .find(|before| before.name == softirq.name);
        CountStatus {
            name: softirq.name.clone(),
            action: String::new(),
            count: increase(before.map(|before| &before.counts), &softirq.counts, cpu),
        }
    });
    most_frequent_first(counts.collect())
}

fn noise_sources(
    comparison: &StateComparison<'_>,
    cpu: CpuId,
    interrupts: &[CountStatus],
    softirqs: &[CountStatus],
) -> Vec<NoiseSource> {
    if !comparison.is_reserved(cpu) {
        return Vec::new();
    }
    let mut noise_sources: Vec<NoiseSource> = comparison
        .later
        .threads
        .iter()
        .filter(|thread| {
            thread.cpu == cpu && !comparison.is_own(thread) && comparison.used(thread).0 > 0
        })
        .filter(|thread| !comparison.is_work_of_cpu(thread))
        .map(|thread| NoiseSource {
            kind: match (thread.kernel, thread.bound) {
                (false, _) => NoiseSourceKind::Process,
                (true, false) => NoiseSourceKind::KernelThread,
                (true, true) => NoiseSourceKind::CpuThread,
            },
            name: format!("{} ({})", thread.name, thread.thread),
            number: Some(thread.thread),
            count: 1,
            cpu_time: Some(comparison.used(thread)),
        })
        .collect();
    noise_sources.extend(interrupts.iter().filter_map(|interrupt| {
        let kind = match InterruptSort::of(&interrupt.name, &interrupt.action) {
            InterruptSort::Device if !owns(comparison, cpu, &interrupt.name) => {
                NoiseSourceKind::Interrupt
            }
            InterruptSort::CrossCall => NoiseSourceKind::CrossCall,
            _ => return None,
        };
        Some(NoiseSource {
            kind,
            name: format!("{} ({})", interrupt.action, interrupt.name),
            number: interrupt.name.parse().ok(),
            count: interrupt.count,
            cpu_time: None,
        })
    }));
    noise_sources.extend(
        softirqs
            .iter()
            .filter(|softirq| is_device_softirq(&softirq.name))
            .map(|softirq| NoiseSource {
                kind: NoiseSourceKind::Softirq,
                name: softirq.name.clone(),
                number: None,
                count: softirq.count,
                cpu_time: None,
            }),
    );
    noise_sources.sort_by_key(|noise_source| (noise_source.kind, Reverse(noise_source.cpu_time)));
    noise_sources
}

/// Returns whether the plan gives an interrupt to the domain of a CPU.
fn owns(comparison: &StateComparison<'_>, cpu: CpuId, interrupt: &str) -> bool {
    comparison.plan.is_some_and(|plan| {
        let owner = plan
            .resolved
            .cpu(cpu)
            .and_then(|ownership| ownership.owner.as_deref());
        plan.resolved.interrupts.iter().any(|planned| {
            planned.number.to_string() == interrupt
                && planned.owner.is_some()
                && planned.owner.as_deref() == owner
        })
    })
}
