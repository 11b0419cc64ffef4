// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How shares of a cache and of memory bandwidth become ways and groups
//! (Documentation/filesystems/resctrl.rst). Pure: what there is goes in, what is written comes out.

use rampart_model::{
    Allocation, AllocationGroup, BandwidthResource, CacheResource, CacheShare, CacheWays, CpuSet,
    Finding, ResolvedDomain, Schemata, WayMask, plural,
};

use crate::division_ways::{Level, ways_of_instance};
use crate::plan::caches::CACHE_SHARE;

/// What a domain asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheRequest<'a> {
    /// Its name.
    pub domain: &'a str,
    /// Its CPUs.
    pub cpus: &'a CpuSet,
    /// Its share.
    pub share: &'a CacheShare,
}

/// What a domain gets: a group of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DividedGroup {
    /// The domain.
    pub domain: String,
    /// Name of the group.
    pub name: String,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// What is written to its schemata: every cache of the level that is divided, and the bandwidth
    /// that the plan names.
    pub schemata: Schemata,
    /// The ways that it asked for, of each cache that it uses.
    pub ways: Vec<CacheWays>,
    /// Whether the kernel can be told to let no other group overlap with it. It can where there is
    /// one cache to divide, as it means all caches of the machine.
    pub exclusive_mode: bool,
    /// What is not quite as asked.
    pub findings: Vec<Finding>,
}

/// A machine divided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Division {
    /// A group for each request, in their order.
    pub groups: Vec<DividedGroup>,
    /// What is written to the schemata of the default group, which all else is in; empty where
    /// nothing is taken from it.
    pub rest: Schemata,
}

/// A share that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Indivisible {
    /// Whose.
    pub domain: String,
    /// Why, with what would do.
    pub finding: Finding,
}

/// The shares that the domains of a plan ask for.
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

/// Divides what there is: exclusive shares first, side by side, each outside of every group that
/// is there already and away from ways that devices use as long as there are others; then what is
/// left for the default group and for shares that others may use too.
///
/// # Errors
/// The first share that cannot be had, with the place, what there is, what is needed and the fix.
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

/// Groups cost numbers of the processor, and a CPU is in one of them.
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

fn wants_ways(share: &CacheShare) -> bool {
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
    let asking = requests.iter().find(|request| wants_ways(request.share));
    let Some(level) = Level::of(&of_level) else {
        return match asking {
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
                // Each exclusive share takes from the default group, the last of them too much.
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
                        "ask for fewer ways",
                    ));
                }
            }
            if rest != before {
                division
                    .rest
                    .set(&resource.name, instance.id, &rest.to_string());
            }
            for (group, got) in division.groups.iter_mut().zip(&ways.each) {
                let mask = got.as_ref().map_or(level.takes(rest), |got| got.ways);
                group
                    .schemata
                    .set(&resource.name, instance.id, &mask.to_string());
            }
        }
        for (group, got) in division.groups.iter_mut().zip(ways.each) {
            group.ways.extend(got);
        }
        for (group, findings) in division.groups.iter_mut().zip(ways.findings) {
            group.findings.extend(findings);
        }
    }
    // The kernel's own mode is about all caches of the machine, and about ways of devices as well.
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
                .all(|got| !got.ways.overlaps(level.shareable));
    }
    Ok(())
}

/// What is left of the default group's ways.
fn rest_of(before: WayMask, taken: WayMask, level: &Level<'_>) -> WayMask {
    if before.overlaps(taken) {
        level.takes(before.without(taken))
    } else {
        before
    }
}

/// The group that all else is in.
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

/// The kernel rounds so too, and reads back what it made of the value.
fn rounded(percent: u32, resource: &BandwidthResource) -> u32 {
    let step = resource.step.max(1);
    let above_least = percent.max(resource.least);
    above_least.div_ceil(step).saturating_mul(step).min(100)
}
