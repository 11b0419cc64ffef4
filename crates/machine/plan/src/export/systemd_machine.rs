// SPDX-License-Identifier: Apache-2.0 OR MIT
//! systemd's files for the machine: the target, the unit that applies the plan, and the drop-ins that
//! keep ordinary work on the housekeeping CPUs.

use rampart_model::CpuSet;

use super::systemd::Means;
use super::systemd_unit::command;

/// The directory that belongs below `/etc`.
pub(super) const ROOT: &str = "systemd";

/// systemd's own units for everything else (systemd.special(7)).
const ORDINARY: [(&str, &str); 4] = [
    ("system.slice", "Slice"),
    ("user.slice", "Slice"),
    ("machine.slice", "Slice"),
    ("init.scope", "Scope"),
];

/// Returns the target that starts and stops all domains.
pub(super) fn target(means: Means<'_>, services: &[String]) -> String {
    let mut text = "[Unit]\nDescription=The domains of a plan of Rampart\n".to_owned();
    if matches!(means, Means::Rampart(_)) {
        text.push_str("Requires=rampart-apply.service\nAfter=rampart-apply.service\n");
    }
    for service in services {
        text.push_str(&format!("Wants={service}\n"));
    }
    text.push_str("\n[Install]\nWantedBy=multi-user.target\n");
    text
}

/// Returns the unit that applies the plan, and releases it when it is stopped.
pub(super) fn apply(program: &str, plan: &str) -> String {
    let words = |words: &[&str]| command(words.iter().copied());
    format!(
        "[Unit]\n\
         Description=A plan of Rampart\n\
         After=local-fs.target\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         ExecStart={}\n\
         ExecStop={}\n\
         TimeoutStartSec=5min\n\
         TimeoutStopSec=5min\n",
        words(&[program, "apply", plan]),
        words(&[program, "release"]),
    )
}

/// Returns path and text of each drop-in.
pub(super) fn drop_ins(housekeeping: &CpuSet) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = ORDINARY
        .into_iter()
        .map(|(unit, section)| {
            (
                format!("{ROOT}/system/{unit}.d/50-rampart.conf"),
                format!("[{section}]\nAllowedCPUs={housekeeping}\n"),
            )
        })
        .collect();
    files.push((
        format!("{ROOT}/system.conf.d/50-rampart.conf"),
        format!("[Manager]\nCPUAffinity={housekeeping}\n"),
    ));
    files
}
