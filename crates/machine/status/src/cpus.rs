// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each CPU did over the interval, and what of it was an noise source's.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rampart_model::{
    CountStatus, CpuId, CpuSet, CpuStatus, InterruptSort, NoiseSource, NoiseSourceKind,
    ObservedInterrupt, ThreadStatus, is_device_softirq,
};

use crate::seen::Seen;

/// Every CPU of the plan and of the machine.
pub(crate) fn of(seen: &Seen<'_>) -> Vec<CpuStatus> {
    let planned: CpuSet = seen
        .plan
        .iter()
        .flat_map(|plan| &plan.resolved.cpus)
        .map(|ownership| ownership.cpu)
        .collect();
    let all = planned.union(&seen.later.online);
    all.iter().map(|cpu| one(seen, cpu)).collect()
}

fn one(seen: &Seen<'_>, cpu: CpuId) -> CpuStatus {
    let ownership = seen.plan.and_then(|plan| plan.resolved.cpu(cpu));
    let interrupts = interrupts(seen, cpu);
    let softirqs = softirqs(seen, cpu);
    let total = |counts: &[CountStatus]| counts.iter().map(|count| count.count).sum::<u64>();
    CpuStatus {
        cpu,
        online: seen.later.online.contains(cpu),
        owner: ownership.and_then(|ownership| ownership.owner.clone()),
        role: ownership.map(|ownership| ownership.role),
        busy: busy(seen, cpu),
        interrupts_per_second: seen.per_second(total(&interrupts)),
        softirqs_per_second: seen.per_second(total(&softirqs)),
        threads: threads(seen, cpu),
        noise_sources: noise_sources(seen, cpu, &interrupts, &softirqs),
        interrupts,
        softirqs,
    }
}

fn busy(seen: &Seen<'_>, cpu: CpuId) -> f64 {
    let (Some(before), Some(after)) = (seen.earlier.cpus.get(&cpu), seen.later.cpus.get(&cpu))
    else {
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

fn threads(seen: &Seen<'_>, cpu: CpuId) -> Vec<ThreadStatus> {
    let mut threads: Vec<ThreadStatus> = seen
        .later
        .threads
        .iter()
        .filter(|thread| thread.cpu == cpu && !seen.is_own(thread) && seen.used(thread).0 > 0)
        .map(|thread| ThreadStatus {
            process: thread.process,
            thread: thread.thread,
            name: thread.name.clone(),
            kernel: thread.kernel,
            policy: thread.policy,
            cpu_time: seen.used(thread),
            domain: seen.domain_of(thread).map(str::to_owned),
        })
        .collect();
    threads.sort_by_key(|thread| (Reverse(thread.cpu_time), thread.thread));
    threads
}

fn grown(before: Option<&BTreeMap<CpuId, u64>>, now: &BTreeMap<CpuId, u64>, cpu: CpuId) -> u64 {
    let count = |counts: &BTreeMap<CpuId, u64>| counts.get(&cpu).copied().unwrap_or_default();
    // A device that came meanwhile begins at 0; one that took another's number may seem to go back.
    count(now).saturating_sub(before.map(count).unwrap_or_default())
}

fn ordered(mut counts: Vec<CountStatus>) -> Vec<CountStatus> {
    counts.retain(|count| count.count > 0);
    counts.sort_by_key(|count| Reverse(count.count));
    counts
}

fn interrupts(seen: &Seen<'_>, cpu: CpuId) -> Vec<CountStatus> {
    let before: BTreeMap<&str, &ObservedInterrupt> = seen
        .earlier
        .interrupts
        .iter()
        .map(|interrupt| (interrupt.name.as_str(), interrupt))
        .collect();
    let counts = seen.later.interrupts.iter().map(|interrupt| CountStatus {
        name: interrupt.name.clone(),
        action: interrupt.action.clone(),
        count: grown(
            before
                .get(interrupt.name.as_str())
                .map(|interrupt| &interrupt.counts),
            &interrupt.counts,
            cpu,
        ),
    });
    ordered(counts.collect())
}

fn softirqs(seen: &Seen<'_>, cpu: CpuId) -> Vec<CountStatus> {
    let counts = seen.later.softirqs.iter().map(|softirq| {
        let before = seen
            .earlier
            .softirqs
            .iter()
            .find(|before| before.name == softirq.name);
        CountStatus {
            name: softirq.name.clone(),
            action: String::new(),
            count: grown(before.map(|before| &before.counts), &softirq.counts, cpu),
        }
    });
    ordered(counts.collect())
}

fn noise_sources(
    seen: &Seen<'_>,
    cpu: CpuId,
    interrupts: &[CountStatus],
    softirqs: &[CountStatus],
) -> Vec<NoiseSource> {
    let Some(owner) = seen.real_time_owner(cpu) else {
        return Vec::new();
    };
    let mut noise_sources: Vec<NoiseSource> = seen
        .later
        .threads
        .iter()
        .filter(|thread| thread.cpu == cpu && !seen.is_own(thread) && seen.used(thread).0 > 0)
        .filter(|thread| seen.domain_of(thread) != Some(owner))
        .map(|thread| NoiseSource {
            kind: match (thread.kernel, thread.bound) {
                (false, _) => NoiseSourceKind::Process,
                (true, false) => NoiseSourceKind::KernelThread,
                (true, true) => NoiseSourceKind::CpuThread,
            },
            name: format!("{} ({})", thread.name, thread.thread),
            count: 1,
            cpu_time: Some(seen.used(thread)),
        })
        .collect();
    noise_sources.extend(interrupts.iter().filter_map(|interrupt| {
        let kind = match InterruptSort::of(&interrupt.name, &interrupt.action) {
            InterruptSort::Device if !owns(seen, owner, &interrupt.name) => {
                NoiseSourceKind::Interrupt
            }
            InterruptSort::CrossCall => NoiseSourceKind::CrossCall,
            _ => return None,
        };
        Some(NoiseSource {
            kind,
            name: format!("{} ({})", interrupt.action, interrupt.name),
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
                count: softirq.count,
                cpu_time: None,
            }),
    );
    noise_sources.sort_by_key(|noise_source| (noise_source.kind, Reverse(noise_source.cpu_time)));
    noise_sources
}

/// Whether the plan gave an interrupt to a domain.
fn owns(seen: &Seen<'_>, domain: &str, interrupt: &str) -> bool {
    seen.plan.is_some_and(|plan| {
        plan.resolved.interrupts.iter().any(|planned| {
            planned.number.to_string() == interrupt && planned.owner.as_deref() == Some(domain)
        })
    })
}
