// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Converts shares of a cache and of memory bandwidth into cache ways and groups
//! (Documentation/filesystems/resctrl.rst). Computes only; reads and writes no file.

use rampart_model::{
    Allocation, AllocationGroup, BandwidthResource, CacheResource, CacheShare, CacheWays, CpuSet,
    Finding, ResolvedDomain, Schemata, WayMask, plural,
};

use super::division_ways::{Level, ways_of_instance};
use crate::plan::caches::CACHE_SHARE;

/// The request of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheRequest<'a> {
    /// Its name.
    pub domain: &'a str,
    /// Its CPUs.
    pub cpus: &'a CpuSet,
    /// Its share.
    pub share: &'a CacheShare,
}

/// The resctrl group of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DividedGroup {
    /// The domain.
    pub domain: String,
    /// Name of the group.
    pub name: String,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// The contents of its schemata: every cache of the divided level, and the bandwidth that the
    /// plan names.
    pub schemata: Schemata,
    /// The requested ways of each cache that it uses.
    pub ways: Vec<CacheWays>,
    /// Whether the group can have the mode `exclusive`. The mode applies to all caches of the
    /// machine, so it needs a single divided cache.
    pub exclusive_mode: bool,
    /// Differences from the request.
    pub findings: Vec<Finding>,
}

/// The division of a machine's caches and memory bandwidth.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Division {
    /// A group for each request, in their order.
    pub groups: Vec<DividedGroup>,
    /// The contents of the schemata of the default group, which has all other tasks; empty if it
    /// loses nothing.
    pub rest: Schemata,
}

/// A share that is not available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Indivisible {
    /// The domain.
    pub domain: String,
    /// The reason, with the expected value.
    pub finding: Finding,
}

/// Returns the shares that the domains of a plan request.
#[must_use]
pub fn cache_requests(domains: &[ResolvedDomain]) -> Vec<CacheRequest<'_>> {
    domains
        .iter()
        .filter(|domain| !domain.cpus.is_empty())
        .filter_map(|domain| {
            Some(CacheRequest {
                domain: &domain.name,
                cpus: &domain.cpus,
                share: domain.cache.as_ref()?,
            })
        })
        .collect()
}

/// Divides caches and memory bandwidth. Exclusive shares come first: adjacent ways outside every
/// existing group, and outside the ways of devices if other ways are free. The default group and
/// the shares that are not exclusive get the remaining ways.
///
/// # Errors
/// Returns the first share that is not available, with its location, the found and the needed
/// value, and the fix.
pub fn divide(
    allocation: &Allocation,
    requests: &[CacheRequest<'_>],
) -> Result<Division, Box<Indivisible>> {
    check_groups(allocation, requests)?;
    let mut division = Division::default();
    for request in requests {
        division.groups.push(DividedGroup {
            domain: request.domain.to_owned(),
            name: AllocationGroup::name_of(request.domain),
            cpus: request.cpus.clone(),
            schemata: Schemata::default(),
            ways: Vec::new(),
            exclusive_mode: false,
            findings: Vec::new(),
        });
    }
    caches(allocation, requests, &mut division)?;
    for (request, group) in requests.iter().zip(&mut division.groups) {
        if let Some(percent) = request.share.bandwidth_percent {
            bandwidth(allocation, request, percent, &mut group.schemata)?;
        }
    }
    Ok(division)
}

pub(crate) fn indivisible(
    request: &CacheRequest<'_>,
    location: impl Into<String>,
    what: impl Into<String>,
    values: (String, String),
    fix: impl Into<String>,
) -> Box<Indivisible> {
    Box::new(Indivisible {
        domain: request.domain.to_owned(),
        finding: CACHE_SHARE
            .finding(location, what)
            .values(values.0, values.1)
            .fix(fix),
    })
}

/// Checks that the processor supports enough groups and that no CPU belongs to another group.
fn check_groups(
    allocation: &Allocation,
    requests: &[CacheRequest<'_>],
) -> Result<(), Box<Indivisible>> {
    let point = &allocation.point;
    let there = allocation
        .groups
        .iter()
        .filter(|group| !group.name.is_empty());
    let mut free = allocation
        .most_groups
        .saturating_sub(1)
        .saturating_sub(u32::try_from(there.clone().count()).unwrap_or(u32::MAX));
    let mut owned = CpuSet::new();
    for request in requests {
        let name = AllocationGroup::name_of(request.domain);
        let other = there
            .clone()
            .find(|group| group.name == name || !group.cpus.intersection(request.cpus).is_empty());
        if let Some(other) = other {
            let path = format!("{point}/{}", other.name);
            return Err(indivisible(
                request,
                path.clone(),
                "another resctrl group has the name or CPUs of the domain's group",
                (
                    format!("{} with {}", other.name, other.cpus.named()),
                    format!("no other group with {}", request.cpus.named()),
                ),
                format!("stop the programs in it and remove it: rmdir {path}"),
            ));
        }
        let twice = owned.intersection(request.cpus);
        if !twice.is_empty() {
            return Err(indivisible(
                request,
                format!("domain `{}`", request.domain),
                "another domain has a share for the same CPUs",
                (twice.named().to_string(), "CPUs of its own".to_owned()),
                "leave `cache` out of one of them",
            ));
        }
        owned = owned.union(request.cpus);
        free = free.checked_sub(1).ok_or_else(|| {
            indivisible(
                request,
                format!("{point}/info"),
                "the processor has no further group",
                (
                    plural(allocation.most_groups, "group"),
                    "one for the domain".to_owned(),
                ),
                format!("leave `cache` out, or remove a group below {point}"),
            )
        })?;
    }
    Ok(())
}

fn requests_ways(share: &CacheShare) -> bool {
    share.ways.is_some() || share.bytes.is_some()
}

fn caches(
    allocation: &Allocation,
    requests: &[CacheRequest<'_>],
    division: &mut Division,
) -> Result<(), Box<Indivisible>> {
    let last = allocation.caches.iter().map(|cache| cache.level).max();
    let of_level: Vec<&CacheResource> = allocation
        .caches
        .iter()
        .filter(|cache| Some(cache.level) == last)
        .collect();
    let requesting = requests.iter().find(|request| requests_ways(request.share));
    let Some(level) = Level::of(&of_level) else {
        return match requesting {
            None => Ok(()),
            Some(request) => Err(indivisible(
                request,
                format!("{}/info", allocation.point),
                "the processor divides no cache",
                ("no cache there".to_owned(), "L3 or L2".to_owned()),
                "leave `ways` and `bytes` out, or choose CPUs with a cache of their own: { not-l3-of = \"housekeeping\" }",
            )),
        };
    };
    for instance in level.instances {
        let ways = ways_of_instance(allocation, &level, instance, requests)?;
        for resource in &of_level {
            let before = default_group(allocation)
                .and_then(|group| group.ways(&resource.name, instance.id))
                .unwrap_or(level.all);
            let rest = rest_of(before, ways.taken, &level);
            if rest.count() < level.fewest {
                // Exclusive shares reduce the default group; the last of them takes too much.
                let request = requests.iter().rev().find(|request| {
                    request.share.exclusive && !request.cpus.intersection(&instance.cpus).is_empty()
                });
                if let Some(request) = request {
                    return Err(indivisible(
                        request,
                        format!("L{} cache {}", level.level, instance.id),
                        "its share leaves too little for all else",
                        (
                            format!("{} of {}", plural(rest.count(), "way"), level.all.count()),
                            format!("at least {}", plural(level.fewest, "way")),
                        ),
                        "request fewer ways",
                    ));
                }
            }
            if rest != before {
                division
                    .rest
                    .set(&resource.name, instance.id, &rest.to_string());
            }
            for (group, assigned) in division.groups.iter_mut().zip(&ways.each) {
                let mask = assigned
                    .as_ref()
                    .map_or(level.takes(rest), |assigned| assigned.ways);
                group
                    .schemata
                    .set(&resource.name, instance.id, &mask.to_string());
            }
        }
        for (group, assigned) in division.groups.iter_mut().zip(ways.each) {
            group.ways.extend(assigned);
        }
        for (group, findings) in division.groups.iter_mut().zip(ways.findings) {
            group.findings.extend(findings);
        }
    }
    // The kernel's exclusive mode covers all caches of the machine, and the ways of devices too.
    let one = level.instances.len() == 1
        && allocation
            .caches
            .iter()
            .all(|cache| cache.level == level.level);
    for (request, group) in requests.iter().zip(&mut division.groups) {
        group.exclusive_mode = one
            && request.share.exclusive
            && !group.ways.is_empty()
            && group
                .ways
                .iter()
                .all(|assigned| !assigned.ways.overlaps(level.shareable));
    }
    Ok(())
}

/// Returns the remaining ways of the default group.
fn rest_of(before: WayMask, taken: WayMask, level: &Level<'_>) -> WayMask {
    if before.overlaps(taken) {
        level.takes(before.without(taken))
    } else {
        before
    }
}

/// Returns the default group, which has all tasks and CPUs without another group.
pub(crate) fn default_group(allocation: &Allocation) -> Option<&AllocationGroup> {
    allocation.groups.iter().find(|group| group.name.is_empty())
}

fn bandwidth(
    allocation: &Allocation,
    request: &CacheRequest<'_>,
    percent: u32,
    schemata: &mut Schemata,
) -> Result<(), Box<Indivisible>> {
    let location = format!("{}/info/MB", allocation.point);
    let needed = format!("{percent} percent for {}", request.cpus.named());
    let refuse = |what: &str, present: &str, fix: &str| {
        let values = (present.to_owned(), needed.clone());
        Err(indivisible(request, location.clone(), what, values, fix))
    };
    let Some(resource) = &allocation.bandwidth else {
        return refuse(
            "the processor does not divide memory bandwidth",
            "not there",
            "leave `bandwidth-percent` out",
        );
    };
    if !resource.percent {
        return refuse(
            "memory bandwidth is counted in units of its own here, and not in percent",
            "mounted with mba_MBps, or a processor that counts so",
            "leave `bandwidth-percent` out, or mount resctrl without mba_MBps",
        );
    }
    let used = resource
        .instances
        .iter()
        .filter(|instance| !instance.cpus.intersection(request.cpus).is_empty());
    let mut any = false;
    for instance in used {
        any = true;
        let value = rounded(percent, resource);
        schemata.set("MB", instance.id, &value.to_string());
    }
    if any {
        return Ok(());
    }
    refuse(
        "which memory controller serves the domain's CPUs is not known",
        "no number of it in schemata",
        "leave `bandwidth-percent` out",
    )
}

/// Rounds a bandwidth as the kernel does, so that the value reads back unchanged.
fn rounded(percent: u32, resource: &BandwidthResource) -> u32 {
    let step = resource.step.max(1);
    let above_least = percent.max(resource.least);
    above_least.div_ceil(step).saturating_mul(step).min(100)
}
