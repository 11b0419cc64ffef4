// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ends what Linux has a PCI function do, before another system gets it.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;

use crate::{HostError, MachineRoot};

/// The command register (PCI Express base specification 5.0, 7.5.1.1.3).
const COMMAND: u64 = 0x04;
const MEMORY: u16 = 1 << 1;
const MASTER: u16 = 1 << 2;
const INTERRUPTS_DISABLED: u16 = 1 << 10;

/// Resets a PCI function without a driver, such as `0000:00:04.0`, if Linux can, withdraws its memory and DMA, and lets
/// it raise its interrupt, which a driver with message-signalled interrupts has disabled. Without `with_reset` it is not
/// reset: Linux could not restore its addresses.
///
/// Nothing of that is recorded: a driver of Linux sets all of it again when it gets the function.
///
/// # Errors
/// Returns an error if Linux refuses the reset or the write.
pub fn quiet_pci_function(
    machine: &MachineRoot,
    address: &str,
    with_reset: bool,
) -> Result<(), HostError> {
    let directory = machine.path("sys/bus/pci/devices").join(address);
    let reset = directory.join("reset");
    if with_reset && reset.exists() {
        fs::write(&reset, "1").map_err(|error| {
            let fix = "wait until the function answers, or leave it with Linux";
            HostError::file("reset a PCI function by", &reset, error, fix)
        })?;
    }
    let path = directory.join("config");
    let written = || {
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let mut command = [0; 2];
        file.read_exact_at(&mut command, COMMAND)?;
        let command = u16::from_le_bytes(command) & !(INTERRUPTS_DISABLED | MEMORY | MASTER);
        file.write_all_at(&command.to_le_bytes(), COMMAND)
    };
    written().map_err(|error| {
        let fix = "run this as root, without the kernel's lockdown";
        HostError::file("change", &path, error, fix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_reset_and_may_raise_its_interrupt() {
        const ADDRESS: &str = "0000:00:04.0";
        let directory = tempfile::tempdir().expect("a directory");
        let machine = MachineRoot::at(directory.path());
        let error = quiet_pci_function(&machine, ADDRESS, true).expect_err("no files");
        let error = error.to_string();
        assert!(
            error.contains("config") && error.contains("fix:"),
            "{error}"
        );
        let files = directory.path().join("sys/bus/pci/devices").join(ADDRESS);
        fs::create_dir_all(&files).expect("made");
        let mut configuration = vec![0x55; 256];
        configuration[4..6].copy_from_slice(&0x0547_u16.to_le_bytes());
        fs::write(files.join("config"), &configuration).expect("written");
        fs::write(files.join("reset"), "").expect("written");
        quiet_pci_function(&machine, ADDRESS, false).expect("quiet");
        assert_eq!(fs::read(files.join("reset")).expect("read"), b"");
        quiet_pci_function(&machine, ADDRESS, true).expect("quiet");
        assert_eq!(fs::read(files.join("reset")).expect("read"), b"1");
        configuration[4..6].copy_from_slice(&0x0141_u16.to_le_bytes());
        assert_eq!(fs::read(files.join("config")).expect("read"), configuration);
    }
}
