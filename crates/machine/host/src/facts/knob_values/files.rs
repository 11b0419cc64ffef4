// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the files that match path templates of the rules.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use rampart_model::{CpuId, CpuSet};
use rampart_rules::readings::{file_templates, presence_templates};
use rampart_rules::{LocationValue, Reading, Unread};

use crate::MachineRoot;

const DEBUG: &str = "sys/kernel/debug";

/// Limit of directories that `{groups}` matches.
const MOST_GROUPS: usize = 1 << 14;

/// Returns every template with at least one value.
pub(super) fn read(root: &MachineRoot, real_time: &CpuSet) -> BTreeMap<String, Vec<LocationValue>> {
    let machine = Names {
        root,
        real_time,
        online: root
            .value("sys/devices/system/cpu/online")
            .unwrap_or_default(),
    };
    let mut files = BTreeMap::new();
    for template in file_templates() {
        let mut locations: Vec<LocationValue> = machine
            .paths(template)
            .into_iter()
            .filter_map(|(path, keys)| {
                let reading = reading(root, &path)?;
                Some(location_value(path, keys, reading))
            })
            .collect();
        if locations.is_empty() {
            locations.extend(hidden(root, template).map(|why| {
                location_value(template[1..].to_owned(), Vec::new(), Reading::Refused(why))
            }));
        }
        if !locations.is_empty() {
            files.insert(template.to_owned(), locations);
        }
    }
    for template in presence_templates() {
        let locations: Vec<LocationValue> = machine
            .paths(template)
            .into_iter()
            .filter(|(path, _)| root.exists(path))
            .map(|(path, keys)| location_value(path, keys, Reading::Value(String::new())))
            .collect();
        if !locations.is_empty() {
            files.insert(template.to_owned(), locations);
        }
    }
    files
}

fn location_value(path: String, keys: Vec<String>, reading: Reading) -> LocationValue {
    LocationValue {
        path: format!("/{path}"),
        keys,
        reading,
    }
}

/// Reads a file. Returns `None` if it does not exist, or the device does not support it.
fn reading(root: &MachineRoot, path: &str) -> Option<Reading> {
    match std::fs::read(root.path(path)) {
        Ok(bytes) => Some(Reading::Value(
            String::from_utf8_lossy(&bytes).trim().to_owned(),
        )),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Some(Reading::Refused(Unread::Privilege))
        }
        Err(_) => None,
    }
}

/// Returns why no file of a template in debugfs was found, or `None` if it does not exist.
fn hidden(root: &MachineRoot, template: &str) -> Option<Unread> {
    if !template[1..].starts_with(DEBUG) {
        return None;
    }
    match std::fs::read_dir(root.path(DEBUG)) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Some(Unread::Privilege),
        Err(_) => Some(Unread::DebugFiles),
        Ok(mut entries) => entries.next().is_none().then_some(Unread::DebugFiles),
    }
}

/// The values of parts in braces.
struct Names<'a> {
    root: &'a MachineRoot,
    real_time: &'a CpuSet,
    online: CpuSet,
}

impl Names<'_> {
    /// Returns the paths without the leading slash, and the values of the parts in each.
    fn paths(&self, template: &str) -> Vec<(String, Vec<String>)> {
        let mut paths = vec![(String::new(), Vec::new())];
        for part in template.split('/').filter(|part| !part.is_empty()) {
            if part == "{groups}" {
                paths = paths
                    .into_iter()
                    .flat_map(|(path, keys)| self.below(&path, &keys))
                    .collect();
                continue;
            }
            let split = part
                .split_once('{')
                .and_then(|(begin, rest)| Some((begin, rest.split_once('}')?)));
            let mut longer = Vec::new();
            for (path, keys) in paths {
                let under = |name: &str| match path.is_empty() {
                    true => name.to_owned(),
                    false => format!("{path}/{name}"),
                };
                let Some((begin, (key, end))) = split else {
                    longer.push((under(part), keys));
                    continue;
                };
                for name in self.values_of(&path, begin, key, end) {
                    let mut keys: Vec<String> = keys.clone();
                    keys.push(name.clone());
                    longer.push((under(&format!("{begin}{name}{end}")), keys));
                }
            }
            paths = longer;
        }
        paths
    }

    /// Returns every directory below `top` at any depth, each with its path from there as the last key.
    fn below(&self, top: &str, keys: &[String]) -> Vec<(String, Vec<String>)> {
        let mut found = Vec::new();
        let mut open = vec![String::new()];
        while let Some(parent) = open.pop() {
            let directory = match parent.as_str() {
                "" => top.to_owned(),
                parent => format!("{top}/{parent}"),
            };
            for name in self.root.directories(&directory) {
                if found.len() >= MOST_GROUPS {
                    return found;
                }
                let path = match parent.as_str() {
                    "" => name,
                    parent => format!("{parent}/{name}"),
                };
                let keys = keys.iter().cloned().chain([path.clone()]).collect();
                found.push((format!("{top}/{path}"), keys));
                open.push(path);
            }
        }
        found.sort();
        found
    }

    fn values_of(&self, directory: &str, begin: &str, key: &str, end: &str) -> Vec<String> {
        let numbers = |cpus: &CpuSet| cpus.iter().map(|cpu| cpu.to_string()).collect();
        match key {
            "real-time-cpu" => numbers(self.real_time),
            "cpu" => numbers(&self.online),
            "real-time-policy" => self.policies(directory),
            _ => {
                let mut names: Vec<String> = self
                    .root
                    .names(directory)
                    .iter()
                    .filter_map(|name| name.strip_prefix(begin)?.strip_suffix(end))
                    .filter(|name| !name.is_empty())
                    .map(str::to_owned)
                    .collect();
                // 10 sorts after 9.
                names.sort_by_key(|name| (name.parse::<u32>().ok(), name.clone()));
                names
            }
        }
    }

    /// Returns the numbers of the frequency policies that apply to a real-time CPU.
    fn policies(&self, directory: &str) -> Vec<String> {
        self.root
            .numbered(directory, "policy")
            .into_iter()
            .filter(|number| {
                self.root
                    .line(&format!("{directory}/policy{number}/affected_cpus"))
                    .unwrap_or_else(|| number.to_string())
                    .split_whitespace()
                    .filter_map(|cpu| cpu.parse().ok().map(CpuId))
                    .any(|cpu| self.real_time.contains(cpu))
            })
            .map(|number| number.to_string())
            .collect()
    }
}
