// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the programs of the domains from the records of their supervisors.

use rampart_model::{ObservedProgram, ProcessIdentity, SupervisedDomain};

use super::Watch;
use crate::MachineRoot;
use crate::tasks::TaskStat;

/// Returns the program of each domain with a valid record.
pub(super) fn read(root: &MachineRoot, watch: &Watch) -> Vec<ObservedProgram> {
    let boot = root.line("proc/sys/kernel/random/boot_id");
    watch
        .domains
        .iter()
        .filter_map(|name| {
            let text = std::fs::read(watch.programs.join(format!("{name}.json"))).ok()?;
            let record: SupervisedDomain = serde_json::from_slice(&text).ok()?;
            // After a restart of the machine the same numbers are other processes.
            let same_boot = boot.as_ref().is_none_or(|boot| *boot == record.boot);
            let lives = |process: &ProcessIdentity| same_boot && is_alive(root, process);
            Some(ObservedProgram {
                domain: name.clone(),
                process: record.program.map(|program| program.process),
                supervised: lives(&record.supervisor),
                alive: record.program.as_ref().is_some_and(lives),
                state: record.state,
                restarts: record.restarts.into(),
                last_exit: record.last_exit.map(|exit| exit.status),
            })
        })
        .collect()
}

/// Returns whether the process runs, and its number is not that of a later process.
fn is_alive(root: &MachineRoot, of: &ProcessIdentity) -> bool {
    root.text(&format!("proc/{}/stat", of.process))
        .and_then(|text| TaskStat::parse(&text))
        .is_some_and(|stat| !stat.is_gone() && stat.start == of.start)
}
