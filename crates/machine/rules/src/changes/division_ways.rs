// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Assigns the ways of one cache to requests.

use rampart_model::{
    Allocation, CacheResource, CacheWays, Finding, ResourceInstance, WayMask, plural,
};

use super::division::{CacheRequest, Indivisible, indivisible};
use crate::plan::caches::{CACHE_SHARE_DEVICES, CACHE_SHARE_RAISED};

/// The divided caches: those of the last level that can be divided. With code and data
/// prioritisation (CDP) both parts are divided alike.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Level<'a> {
    pub(crate) level: u32,
    pub(crate) all: WayMask,
    pub(crate) fewest: u32,
    pub(crate) shareable: WayMask,
    pub(crate) sparse: bool,
    pub(crate) instances: &'a [ResourceInstance],
}

impl<'a> Level<'a> {
    pub(crate) fn of(resources: &[&'a CacheResource]) -> Option<Self> {
        let first = resources.first()?;
        Some(Self {
            level: first.level,
            all: first.all,
            fewest: resources
                .iter()
                .map(|resource| resource.fewest)
                .max()
                .unwrap_or(1)
                .max(1),
            shareable: resources
                .iter()
                .fold(WayMask(0), |all, resource| all.union(resource.shareable)),
            sparse: resources.iter().all(|resource| resource.sparse),
            instances: &first.instances,
        })
    }
}

impl Level<'_> {
    /// Returns the most of these ways that a group can have: adjacent ways, if the processor
    /// requires that.
    pub(crate) fn takes(&self, ways: WayMask) -> WayMask {
        if self.sparse {
            ways
        } else {
            ways.longest_run()
        }
    }
}

/// The ways of one cache, by request.
#[derive(Debug, Clone, Default)]
pub(crate) struct InstanceWays {
    /// The ways of each request, in order; `None` if it requests no ways of this cache.
    pub(crate) each: Vec<Option<CacheWays>>,
    /// Differences from each request.
    pub(crate) findings: Vec<Vec<Finding>>,
    /// Ways that belong to exclusive shares.
    pub(crate) taken: WayMask,
}

pub(crate) fn ways_of_instance(
    allocation: &Allocation,
    level: &Level<'_>,
    instance: &ResourceInstance,
    requests: &[CacheRequest<'_>],
) -> Result<InstanceWays, Box<Indivisible>> {
    let mut ways = InstanceWays {
        each: vec![None; requests.len()],
        findings: vec![Vec::new(); requests.len()],
        taken: WayMask(0),
    };
    let of_groups = |only_exclusive: bool| {
        allocation
            .groups
            .iter()
            .filter(|group| !group.name.is_empty())
            .filter(|group| !only_exclusive || group.mode != "shareable")
            .flat_map(|group| {
                let names = allocation.caches.iter();
                names
                    .filter(|cache| cache.level == level.level)
                    .filter_map(|cache| group.ways(&cache.name, instance.id))
            })
            .fold(WayMask(0), WayMask::union)
    };
    let (of_other_groups, exclusive_of_groups) = (of_groups(false), of_groups(true));
    // Ways of earlier shared requests; later ones avoid them if other ways are free.
    let mut shared = WayMask(0);
    for exclusive in [true, false] {
        for (index, request) in requests.iter().enumerate() {
            if request.share.exclusive != exclusive
                || request.cpus.intersection(&instance.cpus).is_empty()
            {
                continue;
            }
            let Some((count, raised)) = number_of_ways(level, instance, request)? else {
                continue;
            };
            let free = if exclusive {
                level.all.without(of_other_groups.union(ways.taken))
            } else {
                level.all.without(exclusive_of_groups.union(ways.taken))
            };
            let avoided = level.shareable.union(shared);
            let Some(mask) = choose_ways(free, count, avoided) else {
                return Err(too_few_ways(
                    allocation, level, instance, request, count, free,
                ));
            };
            if exclusive {
                ways.taken = ways.taken.union(mask);
            } else {
                shared = shared.union(mask);
            }
            let findings = [
                raised,
                (exclusive && mask.overlaps(level.shareable))
                    .then(|| device_ways_finding(level, instance, mask)),
            ];
            if let Some(all) = ways.findings.get_mut(index) {
                all.extend(findings.into_iter().flatten());
            }
            if let Some(assigned) = ways.each.get_mut(index) {
                *assigned = Some(CacheWays {
                    level: level.level,
                    id: instance.id,
                    ways: mask,
                    all: level.all,
                    size: way_size(level, instance).saturating_mul(u64::from(count)),
                    exclusive,
                });
            }
        }
    }
    Ok(ways)
}

fn way_size(level: &Level<'_>, instance: &ResourceInstance) -> u64 {
    instance.size / u64::from(level.all.count().max(1))
}

/// Returns the number of ways of a request, with a finding if it differs from the request; `None`
/// if no ways are requested.
fn number_of_ways(
    level: &Level<'_>,
    instance: &ResourceInstance,
    request: &CacheRequest<'_>,
) -> Result<Option<(u32, Option<Finding>)>, Box<Indivisible>> {
    let location = format!("L{} cache {}", level.level, instance.id);
    let requested = match (request.share.ways, request.share.bytes) {
        (Some(ways), _) => ways,
        (None, Some(bytes)) => {
            let size = way_size(level, instance);
            if size == 0 {
                return Err(indivisible(
                    request,
                    location,
                    "the size of the cache is not known",
                    (
                        "no size of a way".to_owned(),
                        format!("{bytes} in whole ways"),
                    ),
                    format!("write `ways`, of {}", level.all.count()),
                ));
            }
            u32::try_from(bytes.0.div_ceil(size)).unwrap_or(u32::MAX)
        }
        (None, None) => return Ok(None),
    };
    let count = requested.max(level.fewest);
    let raised = (count > requested).then(|| {
        CACHE_SHARE_RAISED
            .finding(
                location,
                format!(
                    "domain `{}` gets more ways than it requests: the processor supports no fewer",
                    request.domain
                ),
            )
            .values(plural(count, "way"), plural(requested, "way"))
    });
    Ok(Some((count, raised)))
}

/// Returns `count` adjacent free ways with the fewest avoided ways; the lowest of several.
fn choose_ways(free: WayMask, count: u32, avoided: WayMask) -> Option<WayMask> {
    (0..free.end())
        .filter_map(|first| WayMask::run(first, count))
        .filter(|run| run.without(free) == WayMask(0))
        .min_by_key(|run| WayMask(run.0 & avoided.0).count())
}

fn too_few_ways(
    allocation: &Allocation,
    level: &Level<'_>,
    instance: &ResourceInstance,
    request: &CacheRequest<'_>,
    count: u32,
    free: WayMask,
) -> Box<Indivisible> {
    let groups: Vec<String> = allocation
        .groups
        .iter()
        .filter(|group| !group.name.is_empty())
        .map(|group| format!("{}/{}", allocation.point, group.name))
        .collect();
    let fix = if groups.is_empty() {
        "request fewer ways, here or in another domain".to_owned()
    } else {
        format!(
            "request fewer ways, or remove an existing group: rmdir {}",
            groups.join(" ")
        )
    };
    let most = free.longest_run();
    indivisible(
        request,
        format!("L{} cache {}", level.level, instance.id),
        "so many ways are not free side by side",
        (
            format!(
                "{} side by side of {} (mask {free})",
                plural(most.count(), "free way"),
                level.all.count()
            ),
            plural(count, "way"),
        ),
        fix,
    )
}

fn device_ways_finding(level: &Level<'_>, instance: &ResourceInstance, mask: WayMask) -> Finding {
    CACHE_SHARE_DEVICES
        .finding(
            format!("L{} cache {}", level.level, instance.id),
            "some ways of the share are written by devices too, whatever groups there are",
        )
        .values(
            format!("mask {mask}, of devices {}", level.shareable),
            "ways that devices do not use",
        )
        .fix(
            "request fewer ways, or disable writes of devices into the cache in the firmware's setup",
        )
}
