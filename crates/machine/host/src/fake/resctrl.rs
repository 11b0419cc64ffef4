// SPDX-License-Identifier: Apache-2.0 OR MIT
//! resctrl of the machine in memory: the values that the kernel accepts, and the text it returns
//! (Documentation/filesystems/resctrl.rst; fs/resctrl/rdtgroup.c).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use rampart_model::{CpuId, CpuSet, Schemata, WayMask};
use rustix::io::Errno;

use super::{Machine, errno};

pub(crate) const POINT: &str = "/sys/fs/resctrl";

/// A group; the default one has no name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CacheGroup {
    /// By resource and number of the cache.
    pub(crate) ways: BTreeMap<(&'static str, u32), WayMask>,
    pub(crate) bandwidth: BTreeMap<u32, u32>,
    /// For the default group all that no other group has.
    pub(crate) cpus: CpuSet,
    pub(crate) exclusive: bool,
}

/// The caches that can be divided, and their groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resctrl {
    pub(crate) mounted: bool,
    pub(crate) all: WayMask,
    pub(crate) shareable: WayMask,
    pub(crate) most_groups: usize,
    /// `L3`, or its code and data separately.
    pub(crate) resources: Vec<&'static str>,
    pub(crate) ids: Vec<u32>,
    pub(crate) groups: BTreeMap<String, CacheGroup>,
}

impl Resctrl {
    fn whole(&self) -> CacheGroup {
        let ids = || self.ids.iter().copied();
        CacheGroup {
            ways: self
                .resources
                .iter()
                .flat_map(|resource| ids().map(|id| ((*resource, id), self.all)))
                .collect(),
            bandwidth: ids().map(|id| (id, 100)).collect(),
            ..CacheGroup::default()
        }
    }

    fn reset(&mut self) {
        self.groups = BTreeMap::from([(String::new(), self.whole())]);
    }

    /// Returns the ways of other groups of a cache; code and data are the same cache.
    fn of_others(&self, name: &str, id: u32, exclusive_alone: bool) -> WayMask {
        self.groups
            .iter()
            .filter(|(other, group)| *other != name && (group.exclusive || !exclusive_alone))
            .flat_map(|(_, group)| &group.ways)
            .filter(|((_, other), _)| *other == id)
            .fold(WayMask(0), |all, (_, ways)| all.union(*ways))
    }

    fn schemata(&self, group: &CacheGroup) -> String {
        let mut text = String::from("    MB:");
        let values: Vec<String> = group
            .bandwidth
            .iter()
            .map(|(id, percent)| format!("{id}={percent:>4}"))
            .collect();
        text.push_str(&values.join(";"));
        for resource in &self.resources {
            let values: Vec<String> = group
                .ways
                .iter()
                .filter(|((of, _), _)| of == resource)
                .map(|((_, id), ways)| format!("{id}={:03x}", ways.0))
                .collect();
            text.push_str(&format!("\n{resource:>6}:{}", values.join(";")));
        }
        text.push('\n');
        text
    }

    fn write_schemata(&mut self, name: &str, value: &str) -> io::Result<()> {
        let refused = || errno(Errno::INVAL);
        let mut group = self.groups.get(name).cloned().ok_or_else(refused)?;
        for (resource, values) in Schemata::parse(value).0 {
            for (id, value) in values {
                if resource == "MB" {
                    let percent: u32 = value.parse().map_err(|_| refused())?;
                    if !(10..=100).contains(&percent) {
                        return Err(refused());
                    }
                    group.bandwidth.insert(id, percent.div_ceil(10) * 10);
                    continue;
                }
                let known = self.resources.iter().find(|known| **known == resource);
                let ways = WayMask::parse(&value).ok_or_else(refused)?;
                let exclusive = group.exclusive;
                let fits = ways.is_contiguous()
                    && ways.without(self.all) == WayMask(0)
                    && !ways.overlaps(self.of_others(name, id, !exclusive));
                let Some(known) = known.filter(|_| fits && self.ids.contains(&id)) else {
                    return Err(refused());
                };
                group.ways.insert((known, id), ways);
            }
        }
        self.groups.insert(name.to_owned(), group);
        Ok(())
    }

    fn take_exclusively(&mut self, name: &str) -> io::Result<()> {
        let group = self.groups.get(name).ok_or_else(|| errno(Errno::NOENT))?;
        let overlaps = group.ways.iter().any(|((_, id), ways)| {
            ways.overlaps(self.of_others(name, *id, false).union(self.shareable))
        });
        if overlaps {
            return Err(errno(Errno::INVAL));
        }
        if let Some(group) = self.groups.get_mut(name) {
            group.exclusive = true;
        }
        Ok(())
    }

    fn make(&mut self, name: &str) -> io::Result<()> {
        if self.groups.contains_key(name) {
            return Err(errno(Errno::EXIST));
        }
        if self.groups.len() >= self.most_groups {
            return Err(errno(Errno::NOSPC));
        }
        let mut group = self.whole();
        for ((_, id), ways) in &mut group.ways {
            *ways = ways.without(self.of_others(name, *id, true)).longest_run();
        }
        self.groups.insert(name.to_owned(), group);
        Ok(())
    }
}

/// Returns the group and the file in a path.
fn parts(path: &Path) -> Option<(String, String)> {
    let inside = path.strip_prefix(POINT).ok()?;
    let names: Vec<String> = inside
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    match names.as_slice() {
        [file] => Some((String::new(), file.clone())),
        [group, file] => Some((group.clone(), file.clone())),
        _ => None,
    }
}

impl Machine {
    /// Adds caches that can be divided: one for every `cpus_of_each` CPUs, with 11 ways of 1 MiB, of
    /// which devices use two.
    pub(crate) fn add_resctrl(&mut self, mounted: bool, cpus_of_each: u32) {
        let ids = || self.online.iter().map(|cpu| (cpu, cpu.0 / cpus_of_each));
        for (cpu, id) in ids() {
            let cache = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index3");
            for (file, text) in [
                ("type", "Unified".to_owned()),
                ("level", "3".to_owned()),
                ("id", id.to_string()),
                ("size", "11264K".to_owned()),
            ] {
                self.files
                    .insert(format!("{cache}/{file}").into(), format!("{text}\n"));
            }
        }
        let mut numbers: Vec<u32> = ids().map(|(_, id)| id).collect();
        numbers.dedup();
        let mut resctrl = Resctrl {
            mounted,
            all: WayMask(0x7ff),
            shareable: WayMask(0x600),
            most_groups: 8,
            resources: vec!["L3"],
            ids: numbers,
            groups: BTreeMap::new(),
        };
        resctrl.reset();
        self.resctrl = Some(resctrl);
    }

    pub(super) fn mounted_resctrl(&self) -> Option<&Resctrl> {
        self.resctrl.as_ref().filter(|resctrl| resctrl.mounted)
    }

    pub(super) fn read_resctrl(&self, path: &Path) -> Option<String> {
        match path.to_str()? {
            "/proc/filesystems" => {
                let known = self.resctrl.as_ref().map_or("", |_| "nodev\tresctrl\n");
                return Some(format!("nodev\tproc\n{known}"));
            }
            "/proc/self/mountinfo" => {
                let own = self.mounted_resctrl().map_or(String::new(), |_| {
                    format!("9 0 0:9 / {POINT} rw - resctrl resctrl rw\n")
                });
                return Some(format!("{}{own}", self.files.get(path)?));
            }
            _ => {}
        }
        let resctrl = self.mounted_resctrl()?;
        let inside = path.strip_prefix(POINT).ok()?.to_str()?;
        if let Some(info) = inside.strip_prefix("info/") {
            let (resource, file) = info.split_once('/').unwrap_or(("", info));
            return match (resource, file) {
                ("", "last_cmd_status") => Some("ok\n".to_owned()),
                ("MB", "min_bandwidth" | "bandwidth_gran") => Some("10\n".to_owned()),
                (_, "num_closids") => Some(format!("{}\n", resctrl.most_groups)),
                (known, _) if !resctrl.resources.contains(&known) => None,
                (_, "cbm_mask") => Some(format!("{}\n", resctrl.all)),
                (_, "min_cbm_bits") => Some("1\n".to_owned()),
                (_, "shareable_bits") => Some(format!("{}\n", resctrl.shareable)),
                _ => None,
            };
        }
        let (name, file) = parts(path)?;
        let group = resctrl.groups.get(&name)?;
        match file.as_str() {
            "schemata" => Some(resctrl.schemata(group)),
            "mode" if group.exclusive => Some("exclusive\n".to_owned()),
            "mode" => Some("shareable\n".to_owned()),
            "cpus_list" if name.is_empty() => {
                let others = resctrl.groups.values();
                let rest = others.fold(self.online.clone(), |rest, group| {
                    rest.difference(&group.cpus)
                });
                Some(format!("{rest}\n"))
            }
            "cpus_list" => Some(format!("{}\n", group.cpus)),
            _ => None,
        }
    }

    pub(super) fn write_resctrl(&mut self, path: &Path, value: &str) -> io::Result<()> {
        let (name, file) = parts(path).ok_or_else(|| errno(Errno::NOENT))?;
        let online = self.online.clone();
        let Some(resctrl) = self.resctrl.as_mut().filter(|resctrl| resctrl.mounted) else {
            return Err(errno(Errno::NOENT));
        };
        match (file.as_str(), value) {
            ("schemata", _) => resctrl.write_schemata(&name, value),
            ("mode", "exclusive") => resctrl.take_exclusively(&name),
            ("cpus_list", _) if !name.is_empty() => {
                let cpus: CpuSet = value.parse().map_err(|_| errno(Errno::INVAL))?;
                if !cpus.is_subset(&online) {
                    return Err(errno(Errno::INVAL));
                }
                for (other, group) in &mut resctrl.groups {
                    if *other == name {
                        group.cpus.clone_from(&cpus);
                    } else {
                        group.cpus = group.cpus.difference(&cpus);
                    }
                }
                Ok(())
            }
            _ => Err(errno(Errno::ACCESS)),
        }
    }

    pub(super) fn make_cache_group(&mut self, path: &Path) -> io::Result<()> {
        match (self.resctrl.as_mut(), parts(path)) {
            (Some(resctrl), Some((group, name))) if resctrl.mounted && group.is_empty() => {
                resctrl.make(&name)
            }
            _ => Err(errno(Errno::NOENT)),
        }
    }

    pub(super) fn remove_cache_group(&mut self, path: &Path) -> io::Result<()> {
        let name = parts(path).map(|(_, name)| name).unwrap_or_default();
        let known = self.resctrl.as_mut().filter(|resctrl| resctrl.mounted);
        known
            .and_then(|resctrl| resctrl.groups.remove(&name))
            .map(|_| ())
            .ok_or_else(|| errno(Errno::NOENT))
    }

    pub(super) fn resctrl_names(&self, path: &Path) -> Vec<String> {
        let Some(resctrl) = self.mounted_resctrl() else {
            return Vec::new();
        };
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let mut names: Vec<String> = match path.strip_prefix(POINT).ok().and_then(Path::to_str) {
            Some("") => owned(&["cpus_list", "info", "mode", "mon_groups", "schemata"]),
            Some("info") => owned(&["MB", "last_cmd_status"]),
            _ => Vec::new(),
        };
        if path == Path::new(POINT) {
            names.extend(
                resctrl
                    .groups
                    .keys()
                    .filter(|name| !name.is_empty())
                    .cloned(),
            );
        } else if path.ends_with("info") {
            names.extend(resctrl.resources.iter().map(|name| (*name).to_owned()));
        }
        names.sort();
        names
    }

    pub(super) fn is_cache_directory(&self, path: &Path) -> bool {
        let group = |resctrl: &Resctrl| {
            parts(path)
                .is_some_and(|(of, name)| of.is_empty() && resctrl.groups.contains_key(&name))
        };
        (path == Path::new(POINT) && self.resctrl.is_some())
            || self.mounted_resctrl().is_some_and(group)
    }

    pub(super) fn mount(&mut self, kind: &str, point: &Path, mounted: bool) -> io::Result<()> {
        let fits = kind == "resctrl" && point == Path::new(POINT);
        let Some(resctrl) = self.resctrl.as_mut().filter(|_| fits) else {
            return Err(errno(Errno::NODEV));
        };
        if resctrl.mounted == mounted {
            return Err(errno(if mounted { Errno::BUSY } else { Errno::INVAL }));
        }
        resctrl.mounted = mounted;
        resctrl.reset();
        Ok(())
    }

    /// Adds a group of another program.
    pub(crate) fn add_cache_group(&mut self, name: &str, ways: u64, cpu: Option<u32>) {
        if let Some(resctrl) = &mut self.resctrl {
            let mut group = resctrl.whole();
            for mask in group.ways.values_mut() {
                *mask = WayMask(ways);
            }
            group.cpus = cpu.map(CpuId).into_iter().collect();
            resctrl.groups.insert(name.to_owned(), group);
        }
    }
}
