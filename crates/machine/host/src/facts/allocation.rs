// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads which caches and memory bandwidth can be divided, and how they are divided
//! (Documentation/filesystems/resctrl.rst).

use std::collections::BTreeMap;
use std::path::Path;

use rampart_model::{
    Allocation, AllocationGroup, BandwidthResource, CacheControl, CacheResource, CpuId, CpuSet,
    ResourceInstance, Schemata, WayMask,
};

use crate::MachineRoot;
use crate::kernel::Kernel;
use crate::mounts::point_of;

/// Type of the file system.
pub(crate) const KIND: &str = "resctrl";
/// Usual mount point.
pub(crate) const USUAL_POINT: &str = "/sys/fs/resctrl";
const CPUS: &str = "/sys/devices/system/cpu";
/// Directories that are not groups.
const NO_GROUPS: [&str; 3] = ["info", "mon_data", "mon_groups"];

/// Files of a recorded machine, the running one, or one in memory, by absolute paths.
pub(crate) trait Files {
    /// Reads the text of a file. Returns `None` if it cannot be read.
    fn text(&self, path: &str) -> Option<String>;
    /// Returns the names in a directory, in a stable order.
    fn names(&self, path: &str) -> Vec<String>;

    /// Reads the text without surrounding space.
    fn line(&self, path: &str) -> Option<String> {
        self.text(path).map(|text| text.trim().to_owned())
    }

    /// Parses a number.
    fn number(&self, path: &str) -> Option<u32> {
        self.line(path)?.parse().ok()
    }
}

impl Files for MachineRoot {
    fn text(&self, path: &str) -> Option<String> {
        MachineRoot::text(self, path.trim_start_matches('/'))
    }

    fn names(&self, path: &str) -> Vec<String> {
        MachineRoot::names(self, path.trim_start_matches('/'))
    }
}

impl Files for &dyn Kernel {
    fn text(&self, path: &str) -> Option<String> {
        self.read(Path::new(path)).ok()
    }

    fn names(&self, path: &str) -> Vec<String> {
        Kernel::names(*self, Path::new(path))
    }
}

/// Reads the caches and bandwidth. Returns `None` if `/proc/filesystems` cannot be read.
pub(crate) fn read(files: &impl Files) -> Option<CacheControl> {
    let mounts = files.text("/proc/self/mountinfo").unwrap_or_default();
    let point = point_of(&mounts, KIND).unwrap_or(USUAL_POINT);
    if let Some(schemata) = files.text(&format!("{point}/schemata")) {
        let allocation = allocation(files, point, &Schemata::parse(&schemata));
        return Some(CacheControl::Mounted(allocation));
    }
    let known = files.text("/proc/filesystems")?;
    let is_there = known
        .lines()
        .any(|line| line.split_whitespace().next_back() == Some(KIND));
    Some(if is_there {
        CacheControl::NotMounted
    } else {
        CacheControl::Absent
    })
}

fn allocation(files: &impl Files, point: &str, default: &Schemata) -> Allocation {
    let resources = files.names(&format!("{point}/info"));
    let by_id = instances(files);
    let last = by_id.keys().map(|(level, _)| *level).max().unwrap_or(3);
    let of = |name: &str, level: u32| -> Vec<ResourceInstance> {
        let ids = default.0.get(name).into_iter().flat_map(BTreeMap::keys);
        ids.map(|id| {
            let (cpus, size) = by_id.get(&(level, *id)).cloned().unwrap_or_default();
            ResourceInstance {
                id: *id,
                cpus,
                size,
            }
        })
        .collect()
    };
    let caches: Vec<CacheResource> = resources
        .iter()
        .filter_map(|name| {
            let info = format!("{point}/info/{name}");
            let level = name.strip_prefix('L')?.get(..1)?.parse().ok()?;
            Some(CacheResource {
                level,
                all: WayMask::parse(&files.line(&format!("{info}/cbm_mask"))?)?,
                fewest: files.number(&format!("{info}/min_cbm_bits")).unwrap_or(1),
                shareable: files
                    .line(&format!("{info}/shareable_bits"))
                    .and_then(|text| WayMask::parse(&text))
                    .unwrap_or_default(),
                sparse: files.number(&format!("{info}/sparse_masks")) == Some(1),
                instances: of(name, level),
                name: name.clone(),
            })
        })
        // A resource without a line in the default group is not divided.
        .filter(|cache| !cache.instances.is_empty())
        .collect();
    let most_groups = resources
        .iter()
        .filter_map(|name| files.number(&format!("{point}/info/{name}/num_closids")))
        .min()
        .unwrap_or(1);
    Allocation {
        point: point.to_owned(),
        bandwidth: bandwidth(files, point, default, of("MB", last)),
        caches,
        most_groups,
        groups: groups(files, point),
    }
}

fn bandwidth(
    files: &impl Files,
    point: &str,
    default: &Schemata,
    instances: Vec<ResourceInstance>,
) -> Option<BandwidthResource> {
    let info = format!("{point}/info/MB");
    let values = default.0.get("MB")?;
    let mounts = files.text("/proc/self/mountinfo").unwrap_or_default();
    let in_megabytes = mounts
        .lines()
        .any(|line| line.contains(" - resctrl ") && line.contains("mba_MBps"));
    Some(BandwidthResource {
        least: files.number(&format!("{info}/min_bandwidth"))?,
        step: files.number(&format!("{info}/bandwidth_gran")).unwrap_or(1),
        percent: !in_megabytes
            && values
                .values()
                .all(|value| value.parse().is_ok_and(|value: u32| value <= 100)),
        instances,
    })
}

/// Returns CPUs and bytes of the caches that contain data, by level and number
/// (Documentation/ABI/testing/sysfs-devices-system-cpu).
fn instances(files: &impl Files) -> BTreeMap<(u32, u32), (CpuSet, u64)> {
    let online: CpuSet = files
        .line(&format!("{CPUS}/online"))
        .and_then(|text| text.parse().ok())
        .unwrap_or_default();
    let mut all: BTreeMap<(u32, u32), (CpuSet, u64)> = BTreeMap::new();
    for cpu in online.iter() {
        for name in files.names(&format!("{CPUS}/cpu{cpu}/cache")) {
            if let Some((key, size)) = instance(files, cpu, &name) {
                let entry = all.entry(key).or_default();
                entry.0.insert(cpu);
                entry.1 = size;
            }
        }
    }
    all
}

fn instance(files: &impl Files, cpu: CpuId, name: &str) -> Option<((u32, u32), u64)> {
    let cache = format!("{CPUS}/cpu{cpu}/cache/{name}");
    if files.line(&format!("{cache}/type"))? == "Instruction" {
        return None;
    }
    let level = files.number(&format!("{cache}/level"))?;
    let size = files
        .line(&format!("{cache}/size"))
        .and_then(|size| size.strip_suffix('K')?.parse::<u64>().ok())
        .map_or(0, |size| size.saturating_mul(1024));
    Some(((level, files.number(&format!("{cache}/id"))?), size))
}

/// Returns the default group, then the others.
fn groups(files: &impl Files, point: &str) -> Vec<AllocationGroup> {
    let names = files.names(point).into_iter();
    let names = names.filter(|name| !NO_GROUPS.contains(&name.as_str()));
    std::iter::once(String::new())
        .chain(names)
        .filter_map(|name| {
            let directory = if name.is_empty() {
                point.to_owned()
            } else {
                format!("{point}/{name}")
            };
            Some(AllocationGroup {
                schemata: Schemata::parse(&files.text(&format!("{directory}/schemata"))?),
                cpus: files
                    .line(&format!("{directory}/cpus_list"))
                    .and_then(|text| text.parse().ok())
                    .unwrap_or_default(),
                mode: files
                    .line(&format!("{directory}/mode"))
                    .unwrap_or_else(|| "shareable".to_owned()),
                name,
            })
        })
        .collect()
}

/// Returns the groups that unmounting would remove: those that allocate, and those that only measure.
pub(crate) fn groups_of_others(kernel: &dyn Kernel, point: &Path) -> Vec<String> {
    let mut names: Vec<String> = kernel
        .names(point)
        .into_iter()
        .filter(|name| kernel.exists(&point.join(name).join("schemata")))
        .collect();
    let measuring = kernel.names(&point.join("mon_groups"));
    names.extend(measuring.iter().map(|name| format!("mon_groups/{name}")));
    names
}
