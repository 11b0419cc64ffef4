// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands without a change: describe, list, console, read, stats.

use std::io::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rampart_cells::describe::{self, Sources};
use rampart_cells::operate::{self, CellState, OperateError, Operator};
use rampart_model::ExitCode;

use super::{ConsoleArguments, Describe, List, Read, Stats};
use crate::failure::Failure;
use crate::{output, signals};

const NO_CELL: &str = "No cell exists. `rampart cell create` creates one.";

/// Pause between two reads of a console.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) fn describe(arguments: &Describe) -> Result<ExitCode, Failure> {
    let sources = match &arguments.tree {
        Some(tree) => Sources::recorded(tree, arguments.iomem.as_deref()),
        None => Sources::of_this_machine(),
    };
    let description = describe::describe(&sources.map_err(OperateError::from)?);
    if arguments.json {
        output::print_json(&description)?;
    } else {
        let elements = rampart_present::cell_description(&description, arguments.all);
        output::print_elements(&elements, false)?;
    }
    Ok(ExitCode::Success)
}

pub(super) fn list(arguments: &List) -> Result<ExitCode, Failure> {
    let operator = Operator::open()?;
    let cells = operator.list()?;
    if let Some(restart) = operator.root_restart()? {
        output::eprint(&format!(
            "note: the hypervisor has started the root again ({} times), the last time after: {}",
            restart.count,
            operate::stop_words(restart.reason)
        ));
    }
    if let Some((count, latest, cell)) = operator.refused_dma()? {
        let owner = cell.map_or_else(|| "no cell".to_owned(), |name| format!("cell {name}"));
        output::eprint(&format!(
            "note: the SMMU has refused DMA ({count} times), the last time by a device of {owner}: {}",
            rampart_present::refused_dma(&latest)
        ));
    }
    if arguments.json {
        output::print_json(&cells)?;
        return Ok(ExitCode::Success);
    }
    if cells.is_empty() {
        output::eprint(NO_CELL);
        return Ok(ExitCode::Success);
    }
    output::print_text(&rampart_present::cell_list(&cells, arguments.verbose))?;
    Ok(ExitCode::Success)
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
    if cells.is_empty() {
        output::eprint(NO_CELL);
        return Ok(ExitCode::Success);
    }
    output::print_text(&rampart_present::cell_exits(&cells))?;
    Ok(ExitCode::Success)
}

pub(super) fn read(arguments: &Read) -> Result<ExitCode, Failure> {
    let (cell, region) = &arguments.region;
    let limit = arguments.bytes.map_or(usize::MAX, |bytes| {
        usize::try_from(bytes.0).unwrap_or(usize::MAX)
    });
    let bytes = Operator::open()?.read_region(cell, region, limit)?;
    std::io::stdout().write_all(&bytes)?;
    Ok(ExitCode::Success)
}

pub(super) fn console(arguments: &ConsoleArguments) -> Result<ExitCode, Failure> {
    let operator = Operator::open()?;
    let mut console = operate::console(&operator, &arguments.name)?;
    let number = operator.cell(&arguments.name)?.number;
    let stop = signals::stop_flag()?;
    // After the cell has stopped, the rest of its output is read.
    let mut running = true;
    while !stop.load(Ordering::Relaxed) {
        let lines = console.lines();
        if !lines.is_empty() {
            output::print(&lines.join("\n"))?;
        } else if arguments.follow && running {
            let state = operator.state(number);
            running =
                state.is_ok_and(|(state, _)| state == CellState::Running) && !console.is_lost();
            std::thread::sleep(PAUSE);
        } else {
            break;
        }
    }
    Ok(ExitCode::Success)
}
