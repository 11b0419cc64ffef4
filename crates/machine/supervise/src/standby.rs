// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps the plan's kernels for the root with the hypervisor, and removes them. They have no process: the hypervisor
//! has them until they are used or removed.

use std::fs;

use rampart_cells::operate::{self, OperateError, Operator, StandbyOrder};
use rampart_host::StateDirectory;
use rampart_model::{AddressSpan, Finding, PlannedStandby, Severity};

use crate::SuperviseError;
use crate::program::cell::{enable, refused};

/// The result of `up` for a standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandbyOutcome {
    /// It is kept now, in this memory.
    Kept(AddressSpan),
    /// It was kept before.
    Already,
}

/// Keeps a kernel for the root. One that is kept stays, unless `renewed`: it does not know the devices of cells that
/// were created later.
///
/// # Errors
/// If a file cannot be read, or the hypervisor refuses; with `renewed` no kernel of this name is kept then.
pub fn keep_standby(
    state: &StateDirectory,
    standby: &PlannedStandby,
    renewed: bool,
) -> Result<StandbyOutcome, SuperviseError> {
    let read = |path: &str| {
        fs::read(path).map_err(|error| {
            SuperviseError::Missing(
                Finding::new(
                    Severity::Error,
                    format!("standby {}", standby.name),
                    format!("{path}: {error}"),
                )
                .fix("change the plan and apply it again"),
            )
        })
    };
    if !renewed && operate::is_there(&standby.name) {
        return Ok(StandbyOutcome::Already);
    }
    let (kernel, initramfs) = (read(&standby.kernel)?, read(&standby.initramfs)?);
    enable(state)?;
    remove_standby(&standby.name)?;
    let order = StandbyOrder {
        name: standby.name.clone(),
        kernel,
        initramfs,
        arguments: standby.arguments.clone(),
        memory_bytes: standby.memory.0,
    };
    let kept = Operator::open().and_then(|operator| operator.keep_standby(&order));
    kept.map(StandbyOutcome::Kept).map_err(refused)
}

/// Removes a kept kernel. Returns whether there was one; a cell of this name stays.
///
/// # Errors
/// If the hypervisor refuses.
pub fn remove_standby(name: &str) -> Result<bool, SuperviseError> {
    if !operate::is_there(name) {
        return Ok(false);
    }
    let removed = || -> Result<bool, OperateError> {
        let operator = Operator::open()?;
        if !operator.cell(name)?.is_standby() {
            return Ok(false);
        }
        operator.destroy(name).map(|()| true)
    };
    removed().map_err(refused)
}
