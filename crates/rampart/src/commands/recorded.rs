// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--machine`: the machine that a command reads.

use std::path::PathBuf;

use clap::Args;
use rampart_host::MachineRoot;

use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct RecordedMachine {
    /// Read a recorded machine: a directory with its proc, sys, etc and boot
    #[arg(long, value_name = "DIRECTORY")]
    machine: Option<PathBuf>,
}

impl RecordedMachine {
    /// Whether it is another one than this machine.
    pub(crate) fn is_given(&self) -> bool {
        self.machine.is_some()
    }

    /// The place below which the machine is read.
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
