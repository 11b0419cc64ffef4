// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--machine`: reads a recorded machine instead of this one.

use std::path::PathBuf;

use clap::Args;
use rampart_host::MachineRoot;

use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct RecordedMachine {
    /// Read a recorded machine: a directory with its proc, sys, etc and boot
    #[arg(long, value_name = "DIR")]
    pub(super) machine: Option<PathBuf>,
}

impl RecordedMachine {
    /// Returns whether a recorded machine is given.
    pub(crate) fn is_given(&self) -> bool {
        self.machine.is_some()
    }

    /// Returns the directory to read the machine from.
    pub(crate) fn root(&self) -> Result<MachineRoot, Failure> {
        match &self.machine {
            None => Ok(MachineRoot::system()),
            Some(directory) if directory.join("sys").is_dir() => Ok(MachineRoot::at(directory)),
            Some(directory) => Err(Failure::usage(format!(
                "--machine {}: no recorded machine there; fix: name a directory that contains \
                 `sys` and `proc`",
                directory.display()
            ))),
        }
    }
}
