// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of operations on cells.

use std::fmt;

use rampart_host::HostError;
use rampart_model::{Finding, Severity};

use crate::describe::TreeError;
use crate::device;
use crate::system_configuration;

/// The reason why an operation failed.
#[derive(Debug)]
pub enum OperateError {
    /// Invalid arguments: no such cell, or an unusable file.
    Usage(Finding),
    /// The findings that prevent the operation, at least one, each with a fix.
    Refused(Vec<Finding>),
}

impl OperateError {
    pub(super) fn refused(finding: Finding) -> Self {
        Self::Refused(vec![finding])
    }

    /// Returns all findings.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        match self {
            Self::Usage(finding) => std::slice::from_ref(finding),
            Self::Refused(findings) => findings,
        }
    }
}

impl fmt::Display for OperateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, finding) in self.findings().iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{finding}")?;
        }
        Ok(())
    }
}

impl std::error::Error for OperateError {}

impl From<TreeError> for OperateError {
    fn from(error: TreeError) -> Self {
        Self::refused(Finding::new(
            Severity::Error,
            "device tree",
            error.to_string(),
        ))
    }
}

impl From<HostError> for OperateError {
    fn from(error: HostError) -> Self {
        let error_at =
            |location: String, what: String| Finding::new(Severity::Error, location, what);
        Self::refused(match error {
            HostError::Request {
                location,
                what,
                found: present,
                expected: needed,
                fix,
            } => error_at(location, what).values(present, needed).fix(fix),
            HostError::File {
                action,
                path,
                cause,
                fix,
            } => error_at(
                path.display().to_string(),
                format!("cannot {action}: {cause}"),
            )
            .fix(fix),
            other => error_at("driver rampart".to_owned(), other.to_string()),
        })
    }
}

impl From<system_configuration::SystemConfigurationError> for OperateError {
    fn from(error: system_configuration::SystemConfigurationError) -> Self {
        match error {
            system_configuration::SystemConfigurationError::Tree(error) => error.into(),
            system_configuration::SystemConfigurationError::Unsuitable(finding) => {
                Self::refused(finding)
            }
        }
    }
}

/// Converts a refusal of the driver or of the hypervisor, with the driver's messages from the
/// kernel log.
pub(super) fn from_device(error: &device::DeviceError, messages: &[String]) -> OperateError {
    let messages = messages.join("; ");
    let finding = match error {
        device::DeviceError::Open { path, source } => {
            Finding::new(Severity::Error, path.clone(), source.to_string()).fix(
                match source.kind() {
                    std::io::ErrorKind::PermissionDenied => "run the command as root",
                    _ => "modprobe rampart, or rampart cell enable --module FILE",
                },
            )
        }
        device::DeviceError::Driver { what, source } => {
            let reason = if messages.is_empty() {
                source.to_string()
            } else {
                messages
            };
            let fix = match source.raw_os_error() {
                Some(libc::EPERM) => "run the command as root",
                Some(libc::ENOENT) if *what == "enable" => {
                    "rampart cell enable --image FILE, or install the images in /lib/firmware"
                }
                Some(libc::ENODEV) if *what != "enable" => "rampart cell enable",
                Some(libc::EREMOTEIO) if *what == "disable" => {
                    "bring every CPU online first; rampart detach lists those that are taken, \
                     rampart detach give CPU returns one"
                }
                Some(libc::EPROTONOSUPPORT | libc::ENOTTY) => {
                    "use program, driver and image of the same version"
                }
                Some(libc::EOPNOTSUPP) => {
                    "add kvm-arm.mode=nvhe to the kernel command line, and restart"
                }
                _ => "dmesg",
            };
            Finding::new(Severity::Error, format!("/dev/rampart, {what}"), reason).fix(fix)
        }
        device::DeviceError::Hypervisor { what, outcome } => Finding::new(
            Severity::Error,
            format!("hypervisor, {what}"),
            if messages.is_empty() {
                format!("the hypervisor refuses: {}", device::outcome_text(*outcome))
            } else {
                messages
            },
        )
        .fix(fix_of(*outcome)),
        device::DeviceError::Refused {
            what,
            refusal,
            index,
        } => Finding::new(
            Severity::Error,
            format!("hypervisor, {what}, entry {index} of a table of the configuration"),
            refusal.text(),
        )
        .fix("rampart cell list shows the owners; docs/hypervisor.md explains each reason"),
    };
    OperateError::refused(finding)
}

fn fix_of(outcome: rampart_hypervisor_core::interface::Outcome) -> &'static str {
    use rampart_hypervisor_core::interface::Outcome;
    match outcome {
        Outcome::WrongState => {
            "rampart cell list shows the state of the cell; stop or load it first"
        }
        Outcome::Exhausted => {
            "destroy a cell, or enable the hypervisor with more memory (--memory)"
        }
        Outcome::CpuInUse => "run the command again; the CPU was still leaving Linux",
        Outcome::TimedOut => "rampart cell list --verbose, then rampart cell destroy",
        Outcome::WrongRevision => "use program, driver and image of the same version",
        Outcome::NoSuchCell => "rampart cell list",
        Outcome::Busy => "run the command again",
        _ => "dmesg, and docs/hypervisor.md",
    }
}
