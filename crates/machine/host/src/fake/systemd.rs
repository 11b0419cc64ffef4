// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `systemctl`, `modprobe` and `insmod` of the machine in memory.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;

use super::Machine;
use crate::CapturedOutput;

/// A unit of systemd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) active: bool,
    /// With spaces, as systemd prints them.
    pub(crate) allowed_cpus: String,
}

impl Machine {
    pub(crate) fn add_unit(&mut self, name: &str, active: bool, allowed_cpus: &str) {
        let unit = Unit {
            active,
            allowed_cpus: allowed_cpus.to_owned(),
        };
        self.units.insert(name.to_owned(), unit);
    }

    pub(super) fn run(&mut self, words: &[String]) -> io::Result<CapturedOutput> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (mut output, mut errors) = (String::new(), String::new());
        let is_known = match words.as_slice() {
            ["/usr/bin/systemctl", "show", _, "--", name] => {
                output = match self.units.get(*name) {
                    Some(unit) => format!(
                        "LoadState=loaded\nActiveState={}\nAllowedCPUs={}\n",
                        if unit.active { "active" } else { "inactive" },
                        unit.allowed_cpus
                    ),
                    None => "LoadState=not-found\nActiveState=inactive\nAllowedCPUs=\n".to_owned(),
                };
                true
            }
            [
                "/usr/bin/systemctl",
                "set-property",
                "--runtime",
                "--",
                name,
                assignment,
            ] => {
                let value = assignment.split_once('=').map_or("", |(_, value)| value);
                let file = PathBuf::from(format!(
                    "/run/systemd/system.control/{name}.d/50-AllowedCPUs.conf"
                ));
                self.files.insert(file, format!("AllowedCPUs={value}\n"));
                let group = PathBuf::from(format!("/sys/fs/cgroup/{name}/cpuset.cpus"));
                match self.files.get_mut(&group) {
                    // Nothing is written to a group without a limit.
                    Some(text) if !value.is_empty() => *text = format!("{value}\n"),
                    _ => {}
                }
                self.with_unit(name, |unit| unit.allowed_cpus = value.replace(',', " "))
            }
            ["/usr/bin/systemctl", "stop", "--", name] => {
                self.with_unit(name, |unit| unit.active = false)
            }
            ["/usr/bin/systemctl", "start", "--", name] => {
                self.with_unit(name, |unit| unit.active = true)
            }
            ["/usr/bin/systemctl", "daemon-reload"] => true,
            ["/sbin/modprobe" | "/usr/sbin/insmod", module] => {
                let is_known = module.contains("rampart");
                if is_known {
                    let file = PathBuf::from("/sys/module/rampart/refcnt");
                    self.files.insert(file, "0\n".to_owned());
                } else {
                    errors = format!("module {module} not found\n");
                }
                is_known
            }
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(CapturedOutput {
            status: Some(ExitStatus::from_raw(if is_known { 0 } else { 1 << 8 })),
            output,
            errors,
        })
    }

    fn with_unit(&mut self, name: &str, change: impl FnOnce(&mut Unit)) -> bool {
        self.units.get_mut(name).map(change).is_some()
    }
}
