// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cell. It runs next to Linux under the hypervisor and outlives this process; the driver identifies
//! it by its name.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rampart_cells::linux::{Console, LinuxCell, LinuxOrder};
use rampart_cells::network::NetworkRequest;
use rampart_cells::operate::{
    self, CellState, EnableOrder, OperateError, Operator, StopReason, stop_words,
};
use rampart_cells::resolve::{CellRequest, CpuSelection, RegionWriter, SharedRequest};
use rampart_host::StateDirectory;
use rampart_model::{CellOptions, CellWriter, Finding, Nanos, PlannedDomain, Severity};

use super::{Program, ProgramExit, StartRequest};
use crate::SuperviseError;

struct Cell {
    operator: Operator,
    name: String,
    number: u32,
    log: File,
    console: Option<Console>,
    /// The last line of the console in the log.
    last_line: String,
    /// Set for a cell that runs Linux; destroys the cell when dropped.
    linux: Option<LinuxCell>,
    began: Instant,
    /// Time for the first program of a Linux to write a console.
    starts_within: Option<Nanos>,
}

pub(super) fn start(
    order: &StartRequest<'_>,
) -> Result<(Box<dyn Program>, Vec<Finding>), SuperviseError> {
    let domain = order.domain;
    let path = order.files.log();
    let log = crate::log::open(&path).map_err(SuperviseError::file("write the log", &path))?;
    enable(order.state)?;
    let operator = Operator::open().map_err(refused)?;
    // A cell that ended, or that a killed supervisor left, is not reused.
    if operate::is_there(&domain.name) {
        operator.destroy(&domain.name).map_err(refused)?;
    }
    let image = read(domain, domain.image.as_deref())?;
    let housekeeping = &order.active.plan.resolved.housekeeping;
    let resolved = operator
        .resolved(&request(order), housekeeping)
        .map_err(refused)?;
    let findings = resolved.findings.clone();
    let (number, linux) = if rampart_plan::is_linux(domain) {
        let linux = LinuxCell::boot(LinuxOrder {
            configuration: resolved.configuration,
            image,
            initramfs: read(domain, domain.initramfs.as_deref())?,
            arguments: options(domain).arguments,
            nodes: resolved.nodes,
            names: resolved.names,
            functions: resolved.functions,
        })
        .map_err(|error| missing(domain, error.to_string()))?;
        (linux.number(), Some(linux))
    } else {
        let number = operator.create(&resolved).map_err(refused)?;
        let begun = operator
            .load(&domain.name, None, &image)
            .and_then(|_| operator.start(&domain.name));
        if let Err(error) = begun {
            // The first error is returned.
            let _ = operator.destroy(&domain.name);
            return Err(refused(error));
        }
        (number, None)
    };
    let cell = Cell {
        operator,
        name: domain.name.clone(),
        number,
        log,
        console: None,
        last_line: String::new(),
        linux,
        began: Instant::now(),
        starts_within: options(domain).starts_within,
    };
    Ok((Box::new(cell), findings))
}

/// Enables the hypervisor if it is not enabled. Records this on disk before, so that
/// `rampart release` disables it again.
pub(crate) fn enable(state: &StateDirectory) -> Result<(), SuperviseError> {
    if operate::is_enabled() {
        return Ok(());
    }
    let mark = hypervisor_mark(state.path());
    rampart_host::replace_file(&mark, b"rampart up enabled the hypervisor\n")
        .map_err(SuperviseError::file("write", &mark))?;
    operate::enable(state, &EnableOrder::default()).map_err(refused)?;
    Ok(())
}

/// Returns the file that records that `up` enabled the hypervisor.
fn hypervisor_mark(state: &Path) -> std::path::PathBuf {
    state.join("hypervisor-enabled")
}

/// Disables the hypervisor if `up` enabled it. Returns whether it was enabled.
///
/// # Errors
/// If the hypervisor cannot be disabled, for example because other cells exist.
pub(crate) fn release_hypervisor(state: &StateDirectory) -> Result<bool, Finding> {
    let mark = hypervisor_mark(state.path());
    if !mark.exists() {
        return Ok(false);
    }
    let disabled = operate::disable(state, false).map_err(|error| {
        let mut findings = error.findings().to_vec();
        findings.remove(0)
    })?;
    fs::remove_file(&mark).map_err(|error| {
        Finding::new(
            Severity::Warning,
            mark.display().to_string(),
            format!("cannot remove the file: {error}"),
        )
        .fix(format!("rm {}", mark.display()))
    })?;
    Ok(disabled.was_enabled)
}

fn options(domain: &PlannedDomain) -> CellOptions {
    domain.cell.clone().unwrap_or_default()
}

/// Returns the request for the cell of the plan.
fn request(order: &StartRequest<'_>) -> CellRequest {
    let domain = order.domain;
    let options = options(domain);
    let bytes = domain.memory.as_ref().map_or(0, |memory| memory.size.0);
    let mut request = if rampart_plan::is_linux(domain) {
        CellRequest::linux(&domain.name, bytes)
    } else {
        CellRequest::new(&domain.name)
    };
    request.memory_bytes = bytes;
    request.cpus = CpuSelection::List(order.destination.cpus.clone());
    request.devices.clone_from(&domain.devices);
    request.unconfined_dma.clone_from(&options.unconfined_dma);
    if !options.shared.is_empty() {
        let request_of = |region: &rampart_model::CellRegion| SharedRequest::Own {
            name: region.name.clone(),
            bytes: region.size.0,
            writer: match region.writer {
                CellWriter::Cell => RegionWriter::Cell,
                CellWriter::Root => RegionWriter::Root,
            },
        };
        let own = options.shared.iter().map(request_of);
        if rampart_plan::is_linux(domain) {
            // After the regions that every Linux cell has.
            request.shared.extend(own);
        } else {
            request.shared = own.collect();
        }
    }
    let others = options.reads.iter().filter_map(|read| read.split_once(':'));
    request
        .shared
        .extend(others.map(|(cell, region)| SharedRequest::OtherCell {
            name: None,
            cell: cell.to_owned(),
            region: region.to_owned(),
        }));
    request.cache_percent = options.cache_percent;
    // Programs without an operating system use no caches, and cells with a share of a cache only their own part.
    let has_share = |domain: &PlannedDomain| {
        let options = domain.cell.as_ref();
        options.is_some_and(|options| options.cache_percent.is_some())
    };
    let planned = &order.active.planned.domains;
    let uses_caches = |name: &str| {
        let peer = planned.iter().find(|domain| domain.name == name);
        peer.is_none_or(|peer| rampart_plan::is_linux(peer) && !has_share(peer))
    };
    let networks = options.network.iter().map(|network| NetworkRequest {
        peer: network.peer.clone(),
        bytes: network.size.0,
        cached: rampart_plan::is_linux(domain) && uses_caches(&network.peer),
    });
    request.networks = networks.collect();
    request.bells = options.bells;
    request.rings = options.rings;
    request.argument = options.argument;
    request.watchdog_milliseconds = options.watchdog.map_or(0, |watchdog| {
        let milliseconds = watchdog.0.div_ceil(1_000_000).max(1);
        u32::try_from(milliseconds).unwrap_or(u32::MAX)
    });
    request
}

fn read(domain: &PlannedDomain, path: Option<&str>) -> Result<Vec<u8>, SuperviseError> {
    let path = path.unwrap_or_default();
    fs::read(path).map_err(|error| missing(domain, format!("{path}: {error}")))
}

fn missing(domain: &PlannedDomain, what: String) -> SuperviseError {
    SuperviseError::Missing(
        Finding::new(Severity::Error, format!("cell {}", domain.name), what)
            .fix("change the plan and apply it again"),
    )
}

/// Returns the first finding of an error, with the others appended.
pub(crate) fn refused(error: OperateError) -> SuperviseError {
    let mut findings = error.findings().to_vec();
    let mut first = findings.remove(0);
    if !findings.is_empty() {
        let others: Vec<String> = findings.iter().map(ToString::to_string).collect();
        first.what = format!("{} (and: {})", first.what, others.join("; "));
    }
    SuperviseError::Missing(first)
}

impl Cell {
    /// Appends new console output to the log.
    fn listen(&mut self) {
        if self.console.is_none() {
            self.console = operate::console(&self.operator, &self.name).ok();
        }
        let Some(console) = &mut self.console else {
            return;
        };
        for line in console.lines() {
            // A full disk does not stop the cell.
            let _ = writeln!(self.log, "{line}");
            self.last_line = line;
        }
    }

    /// Appends the lines that a kernel wrote after its console, such as those of a panic. Stops the cell.
    fn append_kernel_log(&mut self) {
        let Some(Ok(Some(lines))) = self.linux.as_ref().map(LinuxCell::kernel_log) else {
            return;
        };
        let known = lines.iter().rposition(|line| *line == self.last_line);
        for line in &lines[known.map_or(0, |index| index + 1)..] {
            let _ = writeln!(self.log, "{line}");
            self.last_line.clone_from(line);
        }
    }

    /// Stops a Linux whose first program does not start in its time. Returns `None` if it does, or has time left.
    fn late(&mut self) -> Option<ProgramExit> {
        let limit = self.starts_within?;
        if self.began.elapsed() < Duration::from_nanos(limit.0) {
            return None;
        }
        self.listen();
        if self.console.is_some() {
            self.starts_within = None;
            return None;
        }
        self.append_kernel_log();
        let last = match self.last_line.as_str() {
            "" => "its kernel wrote no log".to_owned(),
            line => format!("the last line of its kernel log: {line}"),
        };
        Some(ProgramExit {
            status: format!("its first program did not start within {limit}; {last}"),
            success: false,
        })
    }

    fn end(&self, reason: StopReason) -> ProgramExit {
        let success = matches!(reason, StopReason::SystemOff);
        let mut status = stop_words(reason).to_owned();
        let report = self.operator.report(&self.name).ok();
        if let Some(failure) = report.and_then(|report| report.failure)
            && !success
        {
            status = format!(
                "{status} (pc {}, address {}, esr {}; rampart cell list --verbose has the registers)",
                failure.program_counter, failure.guest_address, failure.syndrome
            );
        }
        ProgramExit { status, success }
    }
}

impl Program for Cell {
    fn process(&self) -> Option<u32> {
        None
    }

    fn ended(&mut self) -> Option<ProgramExit> {
        let state = self.operator.state(self.number);
        let ended = match state {
            Ok((CellState::Running, _)) => self.late()?,
            Ok((CellState::Free, _)) => ProgramExit {
                status: "destroyed by another program".to_owned(),
                success: false,
            },
            Ok((_, reason)) => self.end(reason),
            Err(_) => ProgramExit {
                status: "the hypervisor was disabled".to_owned(),
                success: false,
            },
        };
        self.listen();
        // A kernel that panics resets itself.
        if let Ok((_, StopReason::SystemReset)) = state {
            self.append_kernel_log();
        }
        // A failed cell remains for inspection until it is restarted or ended.
        if let Some(linux) = self.linux.take() {
            linux.leave();
        }
        Some(ended)
    }

    fn place_new_threads(&mut self) -> Vec<Finding> {
        self.listen();
        Vec::new()
    }

    /// Destroys the cell without a request to it: removes its memory.
    fn stop(&mut self, _limit: Duration) -> ProgramExit {
        self.listen();
        if self.console.is_none() {
            self.append_kernel_log();
        }
        let destroyed = match self.linux.take() {
            Some(linux) => linux.destroy().map_err(|error| error.to_string()),
            None => {
                let destroyed = self.operator.destroy(&self.name);
                destroyed.map_err(|error| error.to_string())
            }
        };
        match destroyed {
            Ok(()) => ProgramExit {
                status: "destroyed; its memory is wiped".to_owned(),
                success: true,
            },
            Err(error) => ProgramExit {
                status: format!("not destroyed: {error}"),
                success: false,
            },
        }
    }
}
