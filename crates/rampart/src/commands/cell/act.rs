// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands that change something: enable, create, load, start, stop, destroy, disable.

use std::io::Read as _;
use std::path::Path;

use rampart_cells::operate::{self, EnableOrder, OperateError, Operator};
use rampart_cells::resolve::{MemoryRegion, Resolved};
use rampart_host::{StateDirectory, find_program_file};
use rampart_model::{CpuSet, ExitCode, Finding, Severity, Span};
use rampart_present::{CellMemory, CellResources};
use serde_json::json;

use super::{Create, Disable, Enable, Load, Names, Write};
use crate::failure::Failure;
use crate::output;

pub(super) fn enable(arguments: &Enable) -> Result<ExitCode, Failure> {
    let installed =
        || find_program_file(&std::env::current_exe().ok()?, "hypervisor/rampart.bin").ok();
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
        }))?)?;
    } else {
        let how = if enabled.already {
            "already enabled"
        } else {
            "enabled"
        };
        output::print(&format!("{how}, memory {}", enabled.memory))?;
    }
    Ok(ExitCode::Success)
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
    let image = arguments.image.as_deref().map(read).transpose()?;
    let operator = Operator::open()?;
    let resolved = operator.resolved(&arguments.request()?, &CpuSet::new())?;
    if arguments.dry_run {
        return show(arguments, &resolved, None);
    }
    let number = operator.create(&resolved)?;
    if let Some(image) = image
        && let Err(error) = operator.load(&arguments.name, None, &image)
    {
        // A cell without its program is useless.
        operator.destroy(&arguments.name)?;
        return Err(error.into());
    }
    show(arguments, &resolved, Some(number))
}

fn show(arguments: &Create, resolved: &Resolved, number: Option<u32>) -> Result<ExitCode, Failure> {
    let memory = |region: &MemoryRegion| CellMemory {
        span: Span {
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

fn read(path: &Path) -> Result<Vec<u8>, OperateError> {
    let unreadable = |what: String| {
        OperateError::Usage(
            Finding::new(Severity::Error, path.display().to_string(), what)
                .fix("objcopy -O binary PROGRAM.elf PROGRAM.bin"),
        )
    };
    let bytes = std::fs::read(path).map_err(|error| unreadable(error.to_string()))?;
    if bytes.starts_with(b"\x7fELF") {
        return Err(unreadable(
            "it is an ELF file, not a plain binary".to_owned(),
        ));
    }
    Ok(bytes)
}

pub(super) fn load(arguments: &Load) -> Result<ExitCode, Failure> {
    let data = read(&arguments.file)?;
    let at = Operator::open()?.load(&arguments.name, arguments.at, &data)?;
    output::print(&format!(
        "wrote {} bytes at {at:#x} of cell {}",
        data.len(),
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
    let memory = Operator::open()?.region(cell, region)?;
    let location = format!("cell {cell}, shared region {region}");
    if !memory.is_writable() {
        return Err(OperateError::Refused(vec![
            Finding::new(Severity::Error, location, "the root cannot write to it")
                .values("a region of the cell", "a region of the root")
                .fix(format!(
                    "rampart cell create {cell} --shared NAME=SIZE:root"
                )),
        ])
        .into());
    }
    let bytes = memory.bytes() as u64;
    let fits = arguments.at.is_multiple_of(8)
        && data.len().is_multiple_of(8)
        && arguments.at.checked_add(data.len() as u64) <= Some(bytes)
        && arguments.at <= bytes;
    if !fits {
        return Err(OperateError::Usage(
            Finding::new(Severity::Error, location, "the data does not fit")
                .values(
                    format!("{} bytes at {}", data.len(), arguments.at),
                    format!("whole words of 8 bytes within {bytes}"),
                )
                .fix("pad the data to whole words; fix: choose another --at"),
        )
        .into());
    }
    let first = arguments.at as usize / 8;
    let (words, _) = data.as_chunks::<8>();
    let mut words = words.iter().enumerate();
    let whole = words.all(|(index, word)| memory.store(first + index, u64::from_ne_bytes(*word)));
    if !whole || memory.is_lost() {
        return Err(OperateError::Refused(vec![
            Finding::new(
                Severity::Error,
                location,
                "the cell was destroyed while it was written",
            )
            .values("destroyed", "present")
            .fix("rampart cell list"),
        ])
        .into());
    }
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
