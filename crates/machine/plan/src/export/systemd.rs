// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Units of systemd: a service for each domain, a target for all of them, and drop-ins that keep
//! ordinary work on the housekeeping CPUs (systemd.exec(5), systemd.resource-control(5)).

use rampart_model::{Finding, Severity};

use super::gaps::{Gaps, Part};
use super::systemd_answers::{domain_answers, machine_answers};
use super::systemd_machine::{ROOT, apply, drop_ins, target};
use super::systemd_unit::{Service, service, slice_unit};
use super::{ExportSubject, Exported, ExportedFile, words};

/// How systemd puts a plan into effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means<'a> {
    /// Rampart, by this program: `rampart apply` isolates the CPUs, `rampart up` starts the domains.
    Rampart(&'a str),
    /// systemd alone, as far as it supports the plan.
    SystemdAlone,
}

/// Writes the units. `systemd` in the files' paths belongs below `/etc`.
#[must_use]
pub fn systemd(subject: &ExportSubject<'_>, means: Means<'_>) -> Exported {
    let mut gaps = Gaps::default();
    gaps.of_machine(subject, &machine_answers(means));
    if !subject.has_unified_cpusets() {
        gaps.add(
            None,
            Finding::new(
                Severity::Warning,
                "the machine, AllowedCPUs=",
                "systemd limits the CPUs of slices only with cgroup v2; without it only \
                 CPUAffinity= has an effect",
            )
            .values(subject.machine.control_groups.clone(), "v2")
            .fix("systemd.unified_cgroup_hierarchy=1 on the kernel command line"),
        );
    }
    let mut units = Vec::new();
    let mut services = Vec::new();
    for (planned, resolved) in subject.domains() {
        let written = match service(subject, means, planned, resolved) {
            Ok(written) => written,
            Err((why, fix)) => {
                gaps.not_written(planned, why, fix);
                continue;
            }
        };
        gaps.of_domain(planned, &domain_answers(means, planned.kind));
        for finding in &written.findings {
            gaps.add(Some(&planned.name), finding.clone());
        }
        let Service { name, text, .. } = written;
        services.push(name.clone());
        units.push((planned, resolved, name, text));
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
    for (planned, resolved, name, text) in units {
        let head = gaps.head("systemd", subject, Part::Domain(&planned.name));
        files.push(file(format!("{ROOT}/system/{name}"), head, &text));
        if means == Means::SystemdAlone && !planned.kind.is_housekeeping() {
            let path = format!("{ROOT}/system/{}", words::slice(&planned.name));
            files.push(file(path, short(), &slice_unit(subject, planned, resolved)));
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

/// Returns the instructions for use.
fn usage(means: Means<'_>) -> Vec<String> {
    let other = match means {
        Means::Rampart(_) => {
            "The domains run under Rampart; `--without-rampart` writes units for systemd alone."
        }
        Means::SystemdAlone => {
            "The units need no Rampart; without `--without-rampart` the domains run under Rampart, \
             which isolates their CPUs."
        }
    };
    let mut lines = words::broken(other);
    lines.extend(words::broken(
        "To use them: copy the directory `systemd` into /etc, then `systemctl daemon-reload`, \
         `systemctl daemon-reexec` and `systemctl enable --now rampart.target`.",
    ));
    lines
}
