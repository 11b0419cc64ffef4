// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Process 1 of the machine: the agent itself, or systemd with the agent as its service.

use std::fmt;

use rampart_agent::MODULE_LIST;

use super::architecture::Devices;
use super::initramfs::METER;

const SYSTEMD: &str = "/usr/lib/systemd/systemd";

/// The package that contains systemd.
pub(super) const SYSTEMD_PACKAGE: &str = "systemd";

/// The agent's service. The machine is up when the service is (`After=`).
const SERVICE: &str = "rampart-agent.service";

/// Process 1 of a simulated machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Init {
    /// The agent alone; nothing else runs.
    #[default]
    Agent,
    /// The distribution's systemd with its slices, logins and services.
    Systemd,
}

impl fmt::Display for Init {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Agent => "agent",
            Self::Systemd => "systemd",
        })
    }
}

impl Init {
    /// Returns its part of the kernel command line. After `--` follow the arguments of the first
    /// process: switch to the root file system, start process 1.
    ///
    /// `systemd.wants=` starts the agent, `systemd.mask=` disables the login on the console, which
    /// the agent's machine does not use (kernel-command-line(7)).
    pub(super) fn boot_words(self, devices: &Devices) -> String {
        let enter = format!("-- enter-root {}", devices.root());
        match self {
            Self::Agent => format!(
                "{enter} {METER} agent --init --stay {}",
                devices.agent_arguments(0).join(" ")
            ),
            Self::Systemd => format!(
                "systemd.wants={SERVICE} systemd.mask=serial-getty@ttyS0.service {enter} {SYSTEMD}"
            ),
        }
    }

    /// Returns the paths and texts of the files that it needs in the machine.
    pub(super) fn files(self, devices: &Devices) -> Vec<(String, String)> {
        match self {
            Self::Agent => Vec::new(),
            Self::Systemd => vec![(format!("/etc/systemd/system/{SERVICE}"), service(devices))],
        }
    }
}

/// Returns the unit of the agent. Its settings do what the agent does as process 1.
fn service(devices: &Devices) -> String {
    format!(
        "[Unit]\n\
         Description=Rampart agent of the simulated machine\n\
         After=multi-user.target\n\
         \n\
         [Service]\n\
         Environment=HOME=/root TERM=linux\n\
         Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n\
         ExecStartPre=-/bin/sh -c 'while read -r module; do insmod $$module; done < {MODULE_LIST}'\n\
         ExecStart={METER} agent --stay {}\n",
        devices.agent_arguments(0).join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICES: Devices = Devices::Virtio("pci");

    #[test]
    fn requests_the_service_that_is_carried() {
        let words = Init::Systemd.boot_words(&DEVICES);
        let [(path, text)] = &Init::Systemd.files(&DEVICES)[..] else {
            panic!("one file");
        };
        let name = path.rsplit('/').next().expect("a name");
        assert!(words.contains(&format!("systemd.wants={name}")), "{words}");
        assert!(words.ends_with("-- enter-root /dev/vda /usr/lib/systemd/systemd"));
        assert!(text.contains("--port org.rampart.agent.0\n"), "{text}");
        assert!(Init::Agent.files(&DEVICES).is_empty());
    }
}
