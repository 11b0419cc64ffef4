// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands that change something: enable, create, load, start, stop, destroy, disable.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use rampart_cells::operate::{self, EnableOrder, OperateError, Operator, StandbyOrder};
use rampart_cells::resolve::{MemoryRegion, Resolved};
use rampart_host::{StateDirectory, find_program_file};
use rampart_model::{AddressSpan, CpuSet, ExitCode, Finding, Severity};
use rampart_present::{CellMemory, CellResources};
use serde_json::json;

use super::{Create, Disable, Enable, Load, Names, Standby, Write};
use crate::failure::Failure;
use crate::output;

/// Returns the file of a cell's program: the named one, or an installed one if only a name is given that is no file
/// here.
fn program_file(named: &Path) -> PathBuf {
    let installed = || {
        let is_name = named.file_name() == Some(named.as_os_str()) && !named.exists();
        let program = std::env::current_exe().ok().filter(|_| is_name)?;
        find_program_file(&program, Path::new("hypervisor").join(named)).ok()
    };
    installed().unwrap_or_else(|| named.to_owned())
}

pub(super) fn enable(arguments: &Enable) -> Result<ExitCode, Failure> {
    let installed = || {
        let name = format!("hypervisor/{}", operate::image_name());
        find_program_file(&std::env::current_exe().ok()?, &name).ok()
    };
    let enabled = operate::enable(
        &StateDirectory::standard(),
        &EnableOrder {
            module: arguments.module.clone(),
            image: arguments.image.clone().or_else(installed),
            memory_bytes: Some(arguments.memory.0),
        },
    )?;
    if arguments.json {
        output::print(&serde_json::to_string_pretty(&json!({
            "enabled": true,
            "already": enabled.already,
            "memory": enabled.memory,
            "findings": enabled.findings,
        }))?)?;
    } else {
        enabled.findings.iter().for_each(output::finding);
        let how = if enabled.already {
            "already enabled"
        } else {
            "enabled"
        };
        output::print(&format!("{how}, memory {}", enabled.memory))?;
    }
    Ok(ExitCode::of_work(enabled.findings.is_empty()))
}

pub(super) fn disable(arguments: &Disable) -> Result<ExitCode, Failure> {
    let disabled = operate::disable(&StateDirectory::standard(), arguments.destroy_cells)?;
    if arguments.json {
        let answer = json!({
            "enabled": false,
            "was-enabled": disabled.was_enabled,
            "driver": disabled.driver,
        });
        output::print_json(&answer)?;
    } else {
        output::print(if disabled.was_enabled {
            "disabled"
        } else {
            "was not enabled"
        })?;
        for restored in &disabled.driver.restored {
            output::print(&format!("{}: {}", restored.location, restored.what))?;
        }
        for left in &disabled.driver.left {
            output::print(&left.to_string())?;
        }
    }
    let left = &disabled.driver.left;
    let is_complete = left.iter().all(|left| left.severity != Severity::Error);
    Ok(ExitCode::of_work(is_complete))
}

pub(super) fn create(arguments: &Create) -> Result<ExitCode, Failure> {
    let image = arguments.image.as_deref().map(program_file);
    let image = image.as_deref().map(operate::read_program).transpose()?;
    let operator = Operator::open()?;
    let resolved = operator.resolved(&arguments.request()?, &CpuSet::new())?;
    if arguments.dry_run {
        return show(arguments, &resolved, None);
    }
    let number = operator.create_with_program(&resolved, image.as_deref())?;
    show(arguments, &resolved, Some(number))
}

fn show(arguments: &Create, resolved: &Resolved, number: Option<u32>) -> Result<ExitCode, Failure> {
    let memory = |region: &MemoryRegion| CellMemory {
        span: AddressSpan {
            start: region.physical,
            bytes: region.bytes,
        },
        guest: region.guest,
        name: resolved.names.of(region).map(str::to_owned),
    };
    let resources = CellResources {
        name: arguments.name.clone(),
        number,
        cpus: resolved.cpus.iter().copied().collect(),
        memory: memory(&resolved.memory),
        shared: resolved.shared.iter().map(memory).collect(),
        devices: resolved.devices.clone(),
        bells: resolved.bells.clone(),
        findings: resolved.findings.clone(),
    };
    if arguments.json {
        output::print_json(&resources)?;
        return Ok(ExitCode::Success);
    }
    for finding in &resources.findings {
        output::finding(finding);
    }
    output::print_text(&rampart_present::cell_resources(&resources))?;
    Ok(ExitCode::Success)
}

pub(super) fn load(arguments: &Load) -> Result<ExitCode, Failure> {
    let data = operate::read_program(&program_file(&arguments.file))?;
    let at = Operator::open()?.load(&arguments.name, arguments.at, &data)?;
    output::print(&format!(
        "wrote {} bytes at {at:#x} of cell {}",
        data.len(),
        arguments.name
    ))?;
    Ok(ExitCode::Success)
}

pub(super) fn standby(arguments: &Standby) -> Result<ExitCode, Failure> {
    let read = |path: &Path, option: &str| {
        std::fs::read(path).map_err(|error| {
            let location = path.display().to_string();
            let finding = Finding::new(Severity::Error, location, error.to_string());
            OperateError::Usage(finding.fix(format!("name a readable file with {option}")))
        })
    };
    let memory = Operator::open()?.keep_standby(&StandbyOrder {
        name: arguments.name.clone(),
        kernel: read(&arguments.kernel, "--kernel")?,
        initramfs: read(&arguments.initramfs, "--initramfs")?,
        arguments: arguments.append.clone(),
        memory_bytes: arguments.memory.0,
    })?;
    output::print(&format!(
        "standby {} is kept, memory {memory}",
        arguments.name
    ))?;
    Ok(ExitCode::Success)
}

pub(super) fn write(arguments: &Write) -> Result<ExitCode, Failure> {
    let mut data = Vec::new();
    match &arguments.file {
        Some(path) => {
            data = std::fs::read(path).map_err(|error| {
                let location = path.display().to_string();
                OperateError::Usage(Finding::new(Severity::Error, location, error.to_string()))
            })?;
        }
        None => {
            std::io::stdin().read_to_end(&mut data)?;
        }
    }
    let (cell, region) = &arguments.region;
    Operator::open()?.write_region(cell, region, arguments.at, &data)?;
    output::print(&format!(
        "wrote {} bytes at {} of {cell}:{region}",
        data.len(),
        arguments.at
    ))?;
    Ok(ExitCode::Success)
}

/// Acts on each cell. A failure is reported and does not keep the other cells from being handled.
pub(super) fn each(
    arguments: &Names,
    done: &str,
    act: impl Fn(&Operator, &str) -> Result<(), OperateError>,
) -> Result<ExitCode, Failure> {
    let operator = Operator::open()?;
    let mut failures = Vec::new();
    for name in &arguments.names {
        match act(&operator, name) {
            Ok(()) => output::print(&format!("cell {name} {done}"))?,
            Err(error) => failures.push(Failure::from(error)),
        }
    }
    Ok(Failure::report_each(failures, arguments.names.len()))
}
