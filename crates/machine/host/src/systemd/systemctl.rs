// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls `systemctl`, whose interface is stable.

use std::path::Path;
use std::time::Duration;

use crate::HostError;
use crate::kernel::Kernel;

/// Stopping a service may take its `TimeoutStopSec=`, usually 90 s.
const RUN_LIMIT: Duration = Duration::from_secs(120);

/// The state of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) is_loaded: bool,
    pub(super) is_active: bool,
    /// Empty without a limit.
    pub(super) allowed_cpus: String,
}

impl Unit {
    /// Reads the state of a unit. A unit that does not exist is not loaded.
    pub(super) fn read(kernel: &dyn Kernel, name: &str) -> Result<Self, HostError> {
        let text = run(
            kernel,
            &[
                "show",
                "--property=LoadState,ActiveState,AllowedCPUs",
                "--",
                name,
            ],
        )?;
        let value = |key: &str| {
            text.lines()
                .filter_map(|line| line.split_once('='))
                .find(|(name, _)| *name == key)
                .map(|(_, value)| value.trim().to_owned())
                .unwrap_or_default()
        };
        Ok(Self {
            is_loaded: value("LoadState") == "loaded",
            is_active: matches!(
                value("ActiveState").as_str(),
                "active" | "activating" | "reloading"
            ),
            allowed_cpus: value("AllowedCPUs"),
        })
    }
}

/// Sets a property until the next restart.
pub(super) fn set_property(
    kernel: &dyn Kernel,
    unit: &str,
    property: &str,
    value: &str,
) -> Result<(), HostError> {
    let assignment = format!("{property}={value}");
    run(
        kernel,
        &["set-property", "--runtime", "--", unit, &assignment],
    )
    .map(|_| ())
}

pub(super) fn stop(kernel: &dyn Kernel, unit: &str) -> Result<(), HostError> {
    run(kernel, &["stop", "--", unit]).map(|_| ())
}

pub(super) fn start(kernel: &dyn Kernel, unit: &str) -> Result<(), HostError> {
    run(kernel, &["start", "--", unit]).map(|_| ())
}

/// Makes systemd read its units' files again.
pub(super) fn reload(kernel: &dyn Kernel) -> Result<(), HostError> {
    run(kernel, &["daemon-reload"]).map(|_| ())
}

fn run(kernel: &dyn Kernel, arguments: &[&str]) -> Result<String, HostError> {
    let program = ["/usr/bin/systemctl", "/bin/systemctl"]
        .into_iter()
        .find(|program| kernel.exists(Path::new(program)))
        .unwrap_or("/usr/bin/systemctl");
    let mut words = vec![program.to_owned()];
    words.extend(arguments.iter().map(|word| (*word).to_owned()));
    let failed = |present: String| HostError::Request {
        location: words.join(" "),
        what: "the command failed".to_owned(),
        found: present,
        expected: "exit status 0".to_owned(),
        fix: "run this command and remove the cause of its error".to_owned(),
    };
    match kernel.run(&words, RUN_LIMIT) {
        Err(error) => Err(failed(format!("cannot start it: {error}"))),
        Ok(captured) => match captured.status {
            Some(status) if status.success() => Ok(captured.output),
            Some(status) => Err(failed(format!("{status}: {}", captured.errors.trim()))),
            None => Err(failed(format!("no end within {} s", RUN_LIMIT.as_secs()))),
        },
    }
}
