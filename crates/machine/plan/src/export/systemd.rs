// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Units of systemd: a service for each domain, a target for all of them, and what keeps ordinary
//! work on the housekeeping CPUs (systemd.exec(5), systemd.resource-control(5)).

use rampart_model::{Finding, Severity};

use super::gaps::{Gaps, Part};
use super::systemd_answers::{of_domain, of_machine};
use super::systemd_machine::{ROOT, apply, drop_ins, target};
use super::systemd_unit::{Service, service, slice_unit};
use super::{Exported, ExportedFile, Subject, words};

/// Who carries a plan out that systemd starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means<'a> {
    /// Rampart, by this program: `rampart apply` isolates the CPUs, `rampart up` starts the domains.
    Rampart(&'a str),
    /// systemd alone, as far as it can.
    SystemdAlone,
}

/// Writes the units. `systemd` in the files' paths belongs below `/etc`.
#[must_use]
pub fn systemd(subject: &Subject<'_>, means: Means<'_>) -> Exported {
    let mut gaps = Gaps::default();
    gaps.of_machine(subject, |field| of_machine(means, field));
    if !subject.has_unified_cpusets() {
        gaps.add(
            None,
            Finding::new(
                Severity::Warning,
                "the machine, AllowedCPUs=",
                "systemd keeps slices to CPUs by control groups of version 2 alone; without them \
                 CPUAffinity= is all that its files do here",
            )
            .values(subject.machine.control_groups.clone(), "v2")
            .fix("systemd.unified_cgroup_hierarchy=1 on the kernel command line, and a restart"),
        );
    }
    let mut units = Vec::new();
    let mut services = Vec::new();
    for (planned, got) in subject.domains() {
        let written = match service(subject, means, planned, got) {
            Ok(written) => written,
            Err((why, fix)) => {
                gaps.not_written(planned, why, fix);
                continue;
            }
        };
        gaps.of_domain(planned, |field| of_domain(means, planned.kind, field));
        for finding in &written.findings {
            gaps.add(Some(&planned.name), finding.clone());
        }
        let Service { name, text, .. } = written;
        services.push(name.clone());
        units.push((planned, got, name, text));
    }
    let mut files = Vec::new();
    let file = |path: String, head: Vec<String>, text: &str| ExportedFile {
        path,
        text: format!("{}\n{text}", words::hash(&head)),
    };
    let mut head = gaps.head("systemd", subject, Part::Machine);
    head.extend(usage(means));
    files.push(file(
        format!("{ROOT}/system/rampart.target"),
        head,
        &target(means, &services),
    ));
    let short = || gaps.head("systemd", subject, Part::Nothing);
    if let Means::Rampart(program) = means {
        let text = apply(program, subject.file);
        files.push(file(
            format!("{ROOT}/system/rampart-apply.service"),
            short(),
            &text,
        ));
    }
    for (planned, got, name, text) in units {
        let head = gaps.head("systemd", subject, Part::Domain(&planned.name));
        files.push(file(format!("{ROOT}/system/{name}"), head, &text));
        if means == Means::SystemdAlone && !planned.kind.is_housekeeping() {
            let path = format!("{ROOT}/system/{}", words::slice(&planned.name));
            files.push(file(path, short(), &slice_unit(subject, planned, got)));
        }
    }
    for (path, text) in drop_ins(&subject.resolved.housekeeping) {
        files.push(file(path, short(), &text));
    }
    Exported {
        files,
        findings: gaps.into_findings(),
    }
}

/// How the files are put to use.
fn usage(means: Means<'_>) -> Vec<String> {
    let other = match means {
        Means::Rampart(_) => {
            "The domains run under Rampart; `--without-rampart` writes units that systemd carries \
             out alone."
        }
        Means::SystemdAlone => {
            "systemd carries the units out alone; without `--without-rampart` they run under \
             Rampart, which isolates the CPUs."
        }
    };
    let mut lines = words::broken(other);
    lines.extend(words::broken(
        "To use them: copy the directory `systemd` into /etc, then `systemctl daemon-reload`, \
         `systemctl daemon-reexec` and `systemctl enable --now rampart.target`.",
    ));
    lines
}
