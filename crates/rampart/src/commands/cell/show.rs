// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands that change nothing: describe, list, console, read, stats.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rampart_cells::describe::{self, Sources};
use rampart_cells::operate::{self, CellState, OperateError, Operator};
use rampart_model::{CellListEntry, ExitCode, Finding, Severity};

use super::{ConsoleArguments, Describe, List, Read, Stats};
use crate::failure::Failure;
use crate::{output, signals};

/// Pause between two reads of a console.
const LOOK: Duration = Duration::from_millis(50);

pub(super) fn describe(arguments: &Describe) -> Result<ExitCode, Failure> {
    let sources = match &arguments.tree {
        Some(tree) => Sources::recorded(tree, arguments.iomem.as_deref()),
        None => Sources::of_this_machine(),
    };
    let description = describe::describe(&sources.map_err(OperateError::from)?);
    if arguments.json {
        output::print_json(&description)?;
    } else {
        output::print(&describe::text(&description, arguments.all))?;
    }
    Ok(ExitCode::Success)
}

pub(super) fn list(arguments: &List) -> Result<ExitCode, Failure> {
    let cells = Operator::open()?.list()?;
    if arguments.json {
        output::print_json(&cells)?;
        return Ok(ExitCode::Success);
    }
    if cells.is_empty() {
        output::say("No cell exists; `rampart cell create` creates one.");
        return Ok(ExitCode::Success);
    }
    let width = cells.iter().map(|cell| cell.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for cell in &cells {
        let why = cell.stop_reason.as_deref().unwrap_or("");
        let line = format!(
            "{:>2}  {:width$}  {:8}  CPUs {:8}  {why}",
            cell.number,
            cell.name,
            cell.state,
            cell.cpus.to_string()
        );
        let _ = writeln!(text, "{}", line.trim_end());
        if arguments.verbose {
            more(&mut text, cell);
        }
    }
    output::print(&text)?;
    Ok(ExitCode::Success)
}

fn more(text: &mut String, cell: &CellListEntry) {
    for part in &cell.memory {
        let mut line = format!(
            "      {:7} {}, in the cell at {:#x}",
            part.purpose, part.span, part.guest
        );
        if let Some(writer) = &part.writer {
            let _ = write!(line, ", written by {writer}");
        }
        if let Some(name) = &part.name {
            let _ = write!(line, ", name {name}");
        }
        let _ = writeln!(text, "{line}");
    }
    if !cell.interrupts.is_empty() {
        let all: Vec<String> = cell.interrupts.iter().map(u32::to_string).collect();
        let _ = writeln!(text, "      interrupts {}", all.join(", "));
    }
    if cell.watchdog_milliseconds > 0 {
        let _ = writeln!(text, "      watchdog {} ms", cell.watchdog_milliseconds);
    }
    let _ = writeln!(text, "      started {} times", cell.starts);
    let Some(failure) = &cell.failure else {
        return;
    };
    let _ = writeln!(text, "      latest failure: {}", failure.reason);
    let _ = writeln!(
        text,
        "        pc {}  pstate {}  esr {}  far {}  address {}",
        failure.program_counter,
        failure.processor_state,
        failure.syndrome,
        failure.virtual_address,
        failure.guest_address
    );
    for (row, registers) in failure.registers.chunks(4).enumerate() {
        let named = registers.iter().enumerate().map(|(location, value)| {
            let name = format!("x{}", 4 * row + location);
            format!("{name:>3} {value:<18}")
        });
        let line: Vec<String> = named.collect();
        let _ = writeln!(text, "        {}", line.join("  ").trim_end());
    }
}

pub(super) fn stats(arguments: &Stats) -> Result<ExitCode, Failure> {
    let operator = Operator::open()?;
    let cells = if arguments.names.is_empty() {
        operator.list()?
    } else {
        let named = arguments.names.iter().map(|name| operator.report(name));
        named.collect::<Result<Vec<_>, _>>()?
    };
    if arguments.json {
        output::print_json(&cells)?;
        return Ok(ExitCode::Success);
    }
    let mut text = String::new();
    for cell in &cells {
        let _ = writeln!(text, "cell {} ({})", cell.name, cell.state);
        for cpu in &cell.by_cpu {
            let number = cpu.number.map_or_else(
                || format!("MPIDR {:#x}", cpu.mpidr),
                |number| number.to_string(),
            );
            let _ = writeln!(
                text,
                "  CPU {number}: {} exits to the hypervisor, {} of them for interrupts",
                cpu.exits, cpu.interrupt_exits
            );
            for exit in &cpu.by_reason {
                let _ = writeln!(text, "    {:20} {}", exit.reason, exit.count);
            }
        }
    }
    if cells.is_empty() {
        output::say("No cell exists; `rampart cell create` creates one.");
    }
    output::print(&text)?;
    Ok(ExitCode::Success)
}

pub(super) fn read(arguments: &Read) -> Result<ExitCode, Failure> {
    let (cell, region) = &arguments.region;
    let memory = Operator::open()?.region(cell, region)?;
    let limit = arguments.bytes.map_or(usize::MAX, |bytes| {
        usize::try_from(bytes.0).unwrap_or(usize::MAX)
    });
    let words = memory.words().iter();
    let mut bytes: Vec<u8> = words
        .take(limit.div_ceil(8))
        .flat_map(|word| word.load(Ordering::Acquire).to_ne_bytes())
        .collect();
    bytes.truncate(limit);
    if memory.is_lost() {
        return Err(OperateError::Refused(vec![
            Finding::new(
                Severity::Error,
                format!("cell {cell}, shared region {region}"),
                "the cell was destroyed while it was read",
            )
            .values("destroyed", "present")
            .fix("rampart cell list"),
        ])
        .into());
    }
    std::io::stdout().write_all(&bytes)?;
    Ok(ExitCode::Success)
}

pub(super) fn console(arguments: &ConsoleArguments) -> Result<ExitCode, Failure> {
    let operator = Operator::open()?;
    let mut console = operate::console(&operator, &arguments.name)?;
    let number = operator.cell(&arguments.name)?.number;
    let stop = signals::stop_flag()?;
    // When the cell stops, everything that it wrote is still read.
    let mut running = true;
    while !stop.load(Ordering::Relaxed) {
        let lines = console.lines();
        if !lines.is_empty() {
            output::print(&lines.join("\n"))?;
        } else if arguments.follow && running {
            let state = operator.state(number);
            running =
                state.is_ok_and(|(state, _)| state == CellState::Running) && !console.is_lost();
            std::thread::sleep(LOOK);
        } else {
            break;
        }
    }
    Ok(ExitCode::Success)
}
