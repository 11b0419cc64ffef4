// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The byte stream of the agent.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, open as open_file};

use super::ServeError;

/// The directory with the ports of the kernel, each with the name from the configuration of the
/// machine.
const PORTS: &str = "/sys/class/virtio-ports";

/// Timeout for drivers to probe their devices.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// Opens a virtio-serial port by name.
pub(super) fn open(name: &str) -> Result<(OwnedFd, OwnedFd), ServeError> {
    let until = Instant::now() + PROBE_TIMEOUT;
    loop {
        let ports = ports(Path::new(PORTS));
        if let Some((device, _)) = ports.iter().find(|(_, present)| present == name) {
            let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
            match open_file(format!("/dev/{device}"), flags, Mode::empty()) {
                Ok(port) => {
                    let again = port.try_clone();
                    return again
                        .map(|again| (port, again))
                        .map_err(ServeError::system("virtio-serial port"));
                }
                // The device node may appear after the name.
                Err(rustix::io::Errno::NOENT) if Instant::now() < until => {}
                Err(error) => {
                    return Err(ServeError::System {
                        what: "virtio-serial port",
                        source: error.into(),
                    });
                }
            }
        }
        if Instant::now() >= until {
            let names: Vec<_> = ports.into_iter().map(|(_, name)| name).collect();
            return Err(ServeError::NoPort {
                name: name.to_owned(),
                present: if names.is_empty() {
                    "no port".to_owned()
                } else {
                    format!("ports: {}", names.join(", "))
                },
            });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the devices and their names.
fn ports(directory: &Path) -> Vec<(String, String)> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let name = fs::read_to_string(entry.path().join("name")).ok()?;
            Some((
                entry.file_name().into_string().ok()?,
                name.trim().to_owned(),
            ))
        })
        .collect()
}

/// Duplicates standard input and output to descriptors that programs do not inherit. From here on,
/// standard output is standard error.
pub(super) fn standard() -> io::Result<(OwnedFd, OwnedFd)> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    let null = open_file("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(null)?;
    for descriptor in [&input, &output] {
        not_blocking(descriptor)?;
    }
    Ok((input, output))
}

/// Sets a descriptor to non-blocking mode.
pub(super) fn not_blocking(descriptor: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(&descriptor)?;
    Ok(fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_ports_by_the_name_in_sys() {
        let directory = tempfile::tempdir().expect("a directory");
        for (device, name) in [
            ("vport1p1", "org.example.0\n"),
            ("vport1p2", "agent-port\n"),
        ] {
            let port = directory.path().join(device);
            fs::create_dir(&port).expect("port");
            fs::write(port.join("name"), name).expect("name");
        }
        fs::create_dir(directory.path().join("vport9p9")).expect("nameless");
        let mut found = ports(directory.path());
        found.sort();
        assert_eq!(
            found,
            [("vport1p1", "org.example.0"), ("vport1p2", "agent-port")]
                .map(|(device, name)| (device.to_owned(), name.to_owned()))
        );
        assert!(ports(Path::new("/nowhere")).is_empty());
    }
}
