// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the programs that test Linux cells share: the files of a cell, its boot, programs in it, and reports.
#![allow(dead_code, reason = "each program uses a part")]

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rampart_agent::{Agent, AgentCommand, MODULE_LIST};
use rampart_cells::device::{Device, DeviceError};
use rampart_cells::linux::{LinuxCell, LinuxError, LinuxOrder, initramfs};
use rampart_cells::operate::Operator;
use rampart_cells::resolve::{CellRequest, Resolved};
use rampart_cells::system_configuration::SystemParts;
use rampart_hypervisor_core::interface::Outcome;
use rampart_model::CpuSet;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The calling program in the cell.
pub(crate) const GUEST_PROGRAM: &str = "/bin/guest-program";

/// How long the hypervisor is enabled again if a CPU was late.
const LATE: Duration = Duration::from_secs(60);

/// Prints the result of a check.
pub(crate) fn report(good: bool, what: &str) {
    println!("{}  {what}", if good { "ok" } else { "FAILED" });
}

/// Reports an error, and returns the exit code.
pub(crate) fn exit_code(done: Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(false, &error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// The files of a cell: the kernel of this machine, the meter, this program, and others.
pub(crate) struct Parts {
    pub(crate) image: Vec<u8>,
    pub(crate) initramfs: Vec<u8>,
}

impl Parts {
    /// Reads the files. `modules` are loaded in their order; `programs` are paths in the cell and here.
    pub(crate) fn read(
        kernel: &str,
        meter: &str,
        modules: &[&str],
        programs: &[(&str, &str)],
    ) -> Result<Self> {
        let own = fs::read(std::env::current_exe()?)?;
        let mut files = vec![(GUEST_PROGRAM.to_owned(), 0o755, own)];
        for (path, program) in programs {
            files.push(((*path).to_owned(), 0o755, fs::read(program)?));
        }
        let mut list = String::new();
        for module in modules {
            let name = Path::new(module).file_name().unwrap_or_default();
            let path = format!("/lib/{}", name.to_string_lossy());
            list.push_str(&format!("{path}\n"));
            files.push((path, 0o644, fs::read(module)?));
        }
        if !modules.is_empty() {
            files.push((MODULE_LIST.to_owned(), 0o644, list.into_bytes()));
        }
        let files: Vec<_> = files
            .iter()
            .map(|(path, mode, content)| (path.trim_start_matches('/'), *mode, content.as_slice()))
            .collect();
        Ok(Self {
            image: fs::read(kernel)?,
            initramfs: initramfs(&fs::read(meter)?, &files)?,
        })
    }

    /// Boots a cell with these resources.
    pub(crate) fn boot(&self, resolved: Resolved) -> std::result::Result<LinuxCell, LinuxError> {
        for finding in &resolved.findings {
            println!("figure {finding}");
        }
        LinuxCell::boot(LinuxOrder {
            configuration: resolved.configuration,
            image: self.image.clone(),
            initramfs: self.initramfs.clone(),
            arguments: String::new(),
            nodes: resolved.nodes,
            names: resolved.names,
            functions: resolved.functions,
        })
    }
}

/// Returns the resources of a cell.
pub(crate) fn resolved(request: &CellRequest) -> Result<Resolved> {
    let resolved = Operator::open()?.resolved(request, &CpuSet::new());
    Ok(resolved.map_err(|error| error.to_string())?)
}

/// Waits for the agent in a cell, and prints the kernel log if there is none.
pub(crate) fn agent_of(cell: &LinuxCell, name: &str, timeout: Duration) -> Result<Agent> {
    let agent = match cell.agent(timeout) {
        Ok(agent) => agent,
        Err(error) => {
            let lines = cell.kernel_log()?.unwrap_or_default();
            lines.iter().for_each(|line| println!("cell {line}"));
            return Err(error.into());
        }
    };
    let problems = &agent.hello().problems;
    report(
        problems.is_empty(),
        &format!("{name}: problems {problems:?}"),
    );
    Ok(agent)
}

/// Returns the output of a program in the cell.
pub(crate) fn output(agent: &Agent, words: &[&str], timeout: Duration) -> Result<String> {
    let mut process = agent.spawn(&AgentCommand::new(words.iter().copied()))?;
    let mut text = String::new();
    process.stdout.read_to_string(&mut text)?;
    process.wait(timeout)?.ok_or("the program does not end")?;
    Ok(text)
}

/// Prints the console of a cell.
pub(crate) fn print_console(cell: &LinuxCell) {
    for line in cell.console() {
        println!("cell {line}");
    }
}

/// Enables the hypervisor in this memory: address and bytes.
pub(crate) fn enable(hypervisor: (u64, u64)) -> Result<Device> {
    let device = Device::open()?;
    let machine = SystemParts::read(Path::new("/proc/device-tree"), 40)?;
    let blob = machine.system(hypervisor).checked();
    let blob = blob.map_err(|refused| format!("{refused:?}"))?;
    let begin = Instant::now();
    loop {
        match device.enable(hypervisor.0, hypervisor.1, &blob) {
            // An emulated CPU may be late on a busy host: nothing has changed, and the call is made again.
            Err(DeviceError::Hypervisor {
                outcome: Outcome::TimedOut,
                ..
            }) if begin.elapsed() < LATE => {}
            answer => {
                answer?;
                return Ok(device);
            }
        }
    }
}
