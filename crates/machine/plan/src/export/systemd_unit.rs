// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service of one domain, and its slice.

use rampart_model::{
    ContainerEngine, DomainProgram, Finding, PlannedDomain, ResolvedDomain, Restart,
    SchedulingPolicy, Severity,
};

use super::engine::{Engine, Start};
use super::systemd::Means;
use super::{ExportSubject, interrupts, words};

/// A service.
#[derive(Debug)]
pub(super) struct Service {
    /// The unit's name.
    pub(super) name: String,
    /// The unit.
    pub(super) text: String,
    /// Manual steps.
    pub(super) findings: Vec<Finding>,
}

/// The reason why a domain has no service, and the fix.
pub(super) type Refusal = (String, &'static str);

/// Writes the service of a domain.
pub(super) fn service(
    subject: &ExportSubject<'_>,
    means: Means<'_>,
    planned: &PlannedDomain,
    resolved: &ResolvedDomain,
) -> Result<Service, Refusal> {
    let mut unit = Vec::new();
    let mut body = Vec::new();
    match means {
        Means::Rampart(program) => {
            startable(planned)?;
            unit.push("Requires=rampart-apply.service".to_owned());
            unit.push("After=rampart-apply.service".to_owned());
            body.push("Type=exec".to_owned());
            let words = [program, "up", "--foreground", planned.name.as_str()];
            body.push(format!("ExecStart={}", command(words)));
            // The unit runs the supervisor; the supervisor places the domain on its CPUs.
            body.push(format!("CPUAffinity={}", subject.resolved.housekeeping));
            body.push("KillMode=mixed".to_owned());
            body.push(restart(planned.restart));
            limits(resolved, &mut body);
        }
        Means::SystemdAlone => alone(subject, planned, resolved, &mut unit, &mut body)?,
    }
    body.push("TimeoutStopSec=60".to_owned());
    let findings = match (means, interrupts::commands(subject, &planned.name)) {
        (Means::SystemdAlone, commands) if !commands.is_empty() => {
            vec![
                Finding::new(
                    Severity::Note,
                    format!("domain `{}`, interrupts", planned.name),
                    "as root, with their present numbers",
                )
                .fix(commands.join("; ")),
            ]
        }
        _ => Vec::new(),
    };
    let mut text = format!(
        "[Unit]\nDescription=Domain {} of a plan of Rampart ({})\nPartOf=rampart.target\n",
        planned.name, planned.kind
    );
    for line in unit {
        text.push_str(&format!("{line}\n"));
    }
    text.push_str("\n[Service]\n");
    for line in body {
        text.push_str(&format!("{line}\n"));
    }
    text.push_str("\n[Install]\nWantedBy=rampart.target\n");
    Ok(Service {
        name: format!("rampart-{}.service", planned.name),
        text,
        findings,
    })
}

/// Checks that a unit can start the domain.
fn startable(planned: &PlannedDomain) -> Result<(), Refusal> {
    match planned.kind.program() {
        DomainProgram::Image => Err(not_by_units(planned)),
        DomainProgram::Process if planned.run.is_empty() => Err((
            "the plan has no `run` for it".to_owned(),
            "write run = [\"/path/of/the/program\"] in the plan",
        )),
        _ => Ok(()),
    }
}

fn not_by_units(planned: &PlannedDomain) -> Refusal {
    let what = format!("domains of kind {} are not started by units", planned.kind);
    (what, "rampart plan check")
}

/// Adds the settings of a domain that systemd runs without Rampart.
fn alone(
    subject: &ExportSubject<'_>,
    planned: &PlannedDomain,
    resolved: &ResolvedDomain,
    unit: &mut Vec<String>,
    body: &mut Vec<String>,
) -> Result<(), Refusal> {
    startable(planned)?;
    // systemd cannot take a CPU from Linux.
    if planned.kind.leaves_linux() {
        return Err(not_by_units(planned));
    }
    match planned.kind.program() {
        DomainProgram::Guest => {
            unit.push("Requires=libvirtd.service".to_owned());
            unit.push("After=libvirtd.service".to_owned());
            body.push("Type=oneshot".to_owned());
            body.push("RemainAfterExit=yes".to_owned());
            for (key, verb) in [("ExecStart", "start"), ("ExecStop", "shutdown")] {
                let words = ["/usr/bin/virsh", verb, planned.name.as_str()];
                body.push(format!("{key}={}", command(words)));
            }
            // A oneshot unit has no start limit by default.
            body.push("TimeoutStartSec=2min".to_owned());
            return Ok(());
        }
        DomainProgram::Container => {
            let engine = match planned.container.as_ref().and_then(|from| from.engine) {
                Some(ContainerEngine::Docker) => Engine::Docker,
                Some(ContainerEngine::Podman | ContainerEngine::Embedded) | None => Engine::Podman,
            };
            let start = engine.command(subject, planned, resolved, Start::Foreground)?;
            let program = format!("/usr/bin/{}", engine.word());
            let rest = start.words.iter().skip(1).map(String::as_str);
            body.push("Type=exec".to_owned());
            // A container that a crash left behind keeps the name.
            let name = start.name.as_str();
            let clean = command([program.as_str(), "rm", "--force", name]);
            body.push(format!("ExecStartPre=-{clean}"));
            let words = std::iter::once(program.as_str()).chain(rest);
            body.push(format!("ExecStart={}", command(words)));
            let stop = command([program.as_str(), "stop", "--time", "30", name]);
            body.push(format!("ExecStop={stop}"));
        }
        _ => {
            let program = planned.run.first().map(String::as_str).unwrap_or_default();
            if program.contains('/') && !program.starts_with('/') {
                return Err((
                    format!("`{}` is not an absolute path", program.escape_debug()),
                    "write the program's absolute path in `run`, as systemd requires",
                ));
            }
            body.push("Type=exec".to_owned());
            let words = planned.run.iter().map(String::as_str);
            body.push(format!("ExecStart={}", command(words)));
            body.push(format!("CPUAffinity={}", resolved.cpus));
            if !planned.kind.is_housekeeping() {
                body.push(format!("Slice={}", words::slice(&planned.name)));
            }
            if let Some(nodes) = subject.several_nodes(&resolved.cpus) {
                body.push("NUMAPolicy=bind".to_owned());
                body.push(format!("NUMAMask={nodes}"));
            }
            let policy = planned.policy.map(|policy| policy.0);
            let class = match policy {
                Some(SchedulingPolicy::Fifo(priority)) => Some(("fifo", priority)),
                Some(SchedulingPolicy::RoundRobin(priority)) => Some(("rr", priority)),
                _ => None,
            };
            if let Some((class, priority)) = class {
                body.push(format!("CPUSchedulingPolicy={class}"));
                body.push(format!("CPUSchedulingPriority={priority}"));
            }
            limits(resolved, body);
        }
    }
    body.push(restart(planned.restart));
    Ok(())
}

fn restart(restart: Restart) -> String {
    let word = match restart {
        Restart::Never => "no",
        Restart::OnFailure => "on-failure",
        Restart::Always => "always",
    };
    format!("Restart={word}")
}

/// Adds the limits that a program needs to set its policy and to lock its memory (sched(7),
/// getrlimit(2)).
fn limits(resolved: &ResolvedDomain, body: &mut Vec<String>) {
    let Some(policy) = resolved.policy.filter(|policy| policy.is_real_time()) else {
        return;
    };
    if let SchedulingPolicy::Fifo(priority) | SchedulingPolicy::RoundRobin(priority) = policy {
        body.push(format!("LimitRTPRIO={priority}"));
    }
    body.push("LimitMEMLOCK=infinity".to_owned());
}

/// Returns the slice of a domain that runs without Rampart.
pub(super) fn slice_unit(
    subject: &ExportSubject<'_>,
    planned: &PlannedDomain,
    resolved: &ResolvedDomain,
) -> String {
    let cpus = if planned.kind.program() == DomainProgram::Guest {
        resolved
            .cpus
            .union(&resolved.emulator)
            .union(&resolved.service)
    } else {
        resolved.cpus.clone()
    };
    let mut text = format!(
        "[Unit]\nDescription=CPUs of domain {} of a plan of Rampart\n\n[Slice]\nAllowedCPUs={cpus}\n",
        planned.name
    );
    if let Some(nodes) = subject.several_nodes(&resolved.cpus) {
        text.push_str(&format!("AllowedMemoryNodes={nodes}\n"));
    }
    text
}

/// Returns a command line in the syntax of systemd.service(5), "COMMAND LINES", with `%`, `$` and
/// backslashes escaped.
pub(super) fn command<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(word).collect();
    words.join(" ")
}

fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_.-+=:,@".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '%' => quoted.push_str("%%"),
            '$' => quoted.push_str("$$"),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() && u32::from(c) < 0x80 => {
                quoted.push_str(&format!("\\x{:02x}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_what_they_are() {
        let words = [
            "/opt/a b", "100%", "$HOME", "a\"\\", "", ";", "x=1,2", "a\nb",
        ];
        assert_eq!(
            command(words),
            r#""/opt/a b" "100%%" "$$HOME" "a\"\\" "" ";" x=1,2 "a\nb""#
        );
    }
}
