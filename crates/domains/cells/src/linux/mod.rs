// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An unmodified Linux in a cell: a distribution's kernel, a device tree that describes the cell,
//! and an initramfs with `rampart-meter` as its first program. It has no serial port: its kernel
//! log and the agent's connection use memory that it shares with the root.

mod console;
mod error;
mod image;
mod initramfs;
mod kernel_log;
mod layout;
mod standby_tree;
mod tree;

use std::fs::{self, File};
use std::io::Read as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rampart_agent::{Agent, MemoryConnection};
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::Platform;
use rampart_hypervisor_core::interface::{CellState, StopReason};

pub use console::Console;
pub use error::LinuxError;
pub use image::KernelImage;
pub use initramfs::initramfs;
pub(crate) use layout::configuration_space;
pub use layout::{CONSOLE_BYTES, FROM_ROOT_BYTES, Layout, LinuxRegions, TO_ROOT_BYTES};
pub use rampart_model::AddressSpan;
use rampart_rules::KernelCommandLine;
pub(crate) use standby_tree::{StandbyTree, standby_tree};
pub use tree::{FIRST_PHANDLE, TreeContents, TreeNode, device_tree};
pub(crate) use tree::{INTERRUPT_CONTROLLER, LEVEL_HIGH};

use crate::device::Device;
use crate::names::RegionNames;
use crate::pci::{self, CellFunction};
use crate::shared_memory::SharedMemory;

/// Alignment of a kernel's memory in bytes (Linux, Documentation/arch/arm64/booting.rst).
pub const ALIGNMENT: u64 = 2 << 20;

/// Kernel parameters of every Linux cell: the first program, and a reset after a panic, which stops
/// the cell: the root is notified, and can read the kernel log ([`LinuxCell::kernel_log`]).
const ARGUMENTS: &str = "rdinit=/init panic=1";

/// Returns the kernel parameters that a cell takes over from the root's command line: where the root chose a fixed
/// address of its kernel, to debug it or because it is emulated, that of a cell is fixed too.
fn same_as_root(command_line: &str) -> &'static str {
    match KernelCommandLine::parse(command_line).has("nokaslr") {
        true => " nokaslr",
        false => "",
    }
}

/// Number of console lines in an error.
const LAST_LINES: usize = 12;
/// Number of lines of a kernel log in an error: a panic with its registers and call trace.
const LAST_LINES_OF_LOG: usize = 60;
/// Time limit for a cell to copy its kernel log, on a busy emulated machine.
const LOG_TIMEOUT: Duration = Duration::from_secs(60);

/// An order to start Linux in a cell.
#[derive(Debug, Clone)]
pub struct LinuxOrder {
    /// Resources of the cell, as read by [`LinuxRegions::of`]. Entry and argument are set here.
    pub configuration: Blob,
    /// Content of the kernel's file.
    pub image: Vec<u8>,
    /// The initramfs: [`initramfs()`].
    pub initramfs: Vec<u8>,
    /// Additional kernel parameters.
    pub arguments: String,
    /// Its devices and named regions, as [`crate::resolve::Resolved::nodes`].
    pub nodes: Vec<TreeNode>,
    /// Names of its shared regions, as [`crate::resolve::Resolved::names`].
    pub names: RegionNames,
    /// Its PCI functions, as [`crate::resolve::Resolved::functions`].
    pub functions: Vec<CellFunction>,
}

/// A Linux in a cell. Dropping it destroys the cell.
#[derive(Debug)]
pub struct LinuxCell {
    device: Device,
    number: u32,
    name: String,
    cpus: Vec<u64>,
    regions: LinuxRegions,
    layout: Layout,
    image: KernelImage,
    initramfs: Vec<u8>,
    arguments: String,
    nodes: Vec<TreeNode>,
    functions: Vec<CellFunction>,
    platform: Platform,
    console: Mutex<Console>,
    lines: Mutex<Vec<MemoryConnection>>,
    destroyed: bool,
}

/// A mapping for a section of the agent's connection.
struct Section(SharedMemory);

impl AsRef<[AtomicU64]> for Section {
    fn as_ref(&self) -> &[AtomicU64] {
        self.0.words()
    }
}

impl LinuxCell {
    /// Creates, loads and starts the cell. The kernel needs seconds from here until [`Self::agent`]
    /// gets an answer.
    ///
    /// # Errors
    /// Returns an error if the image is invalid, something does not fit, or the driver or the
    /// hypervisor refuses.
    pub fn boot(order: LinuxOrder) -> Result<Self, LinuxError> {
        let device = Device::open()?;
        let image = KernelImage::read(&order.image)?;
        let regions = LinuxRegions::of(&order.configuration)?;
        let layout = Layout::of(
            regions.memory,
            &image,
            order.initramfs.len() as u64,
            !order.functions.is_empty(),
        )?;
        let platform = device.platform()?.ok_or(LinuxError::NoPlatform)?;
        let mut blob = order.configuration;
        (blob.entry, blob.argument) = (layout.reader, layout.tree);
        let bytes = blob.checked().map_err(LinuxError::Configuration)?;
        order.functions.iter().try_for_each(CellFunction::prepare)?;
        let number = device.create_named(&bytes, &order.names)?;
        let console =
            device.map_shared(regions.console.start, regions.console.bytes as usize, false);
        let console = match console {
            Ok(console) => console,
            Err(source) => {
                // The first error is the one to return.
                let _ = device.destroy(number);
                return Err(LinuxError::system("the console's shared memory")(source));
            }
        };
        let cell = Self {
            device,
            number,
            name: blob.name,
            cpus: blob.cpus,
            regions,
            layout,
            image,
            initramfs: order.initramfs,
            arguments: order.arguments,
            nodes: order.nodes,
            functions: order.functions,
            platform,
            console: Mutex::new(Console::new(console)),
            lines: Mutex::default(),
            destroyed: false,
        };
        cell.start()?;
        Ok(cell)
    }

    /// Loads everything again and starts the cell after a stop or a failure.
    ///
    /// # Errors
    /// Returns an error while the cell runs, if it has PCI functions and was started before, or if the driver or the
    /// hypervisor refuses.
    pub fn start(&self) -> Result<(), LinuxError> {
        if !self.functions.is_empty() && self.starts()? > 0 {
            return Err(LinuxError::FunctionsUsed {
                name: self.name.clone(),
            });
        }
        let mut seed = [0; 64];
        File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut seed))
            .map_err(LinuxError::system("/dev/urandom"))?;
        let arguments = format!(
            "{ARGUMENTS}{} {} -- {}",
            same_as_root(&fs::read_to_string("/proc/cmdline").unwrap_or_default()),
            self.arguments,
            self.regions.agent_arguments()
        );
        let tree = device_tree(&TreeContents {
            name: &self.name,
            cpus: &self.cpus,
            memory: (self.layout.memory.start, self.layout.memory.bytes),
            platform: self.platform,
            initramfs: (self.layout.initramfs.start, self.layout.initramfs.bytes),
            arguments: &arguments,
            seed,
            nodes: &self.nodes,
        });
        let load = |location, bytes: &[u8]| self.device.load(self.number, location, bytes);
        load(self.layout.kernel, &self.image.bytes)?;
        load(self.layout.initramfs.start, &self.initramfs)?;
        load(self.layout.tree, &tree)?;
        if !self.functions.is_empty() {
            load(self.layout.space, &pci::space(&self.functions))?;
        }
        let Layout {
            kernel,
            memory,
            reader,
            ..
        } = self.layout;
        let to_root = self.regions.to_root;
        load(reader, &kernel_log::reader(kernel, memory, to_root))?;
        self.device.start(self.number)?;
        Ok(())
    }

    /// Returns the cell's number.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Returns the cell's regions.
    #[must_use]
    pub const fn regions(&self) -> &LinuxRegions {
        &self.regions
    }

    /// Connects to the guest agent, which starts programs in the cell as in any guest. There is one
    /// connection at a time: the previous one is closed, and its programs end.
    ///
    /// # Errors
    /// Returns an error if the agent does not answer within `timeout`, with the cell's state and
    /// the last lines of its kernel log. The cell is stopped then.
    pub fn agent(&self, timeout: Duration) -> Result<Agent, LinuxError> {
        // Two writers of one section would overwrite each other's data.
        self.hang_up();
        let map = |span: AddressSpan, writable| {
            let mapped = self
                .device
                .map_shared(span.start, span.bytes as usize, writable);
            mapped
                .map(Section)
                .map_err(LinuxError::system("the agent's shared memory"))
        };
        let (own, other) = (
            map(self.regions.from_root, true)?,
            map(self.regions.to_root, false)?,
        );
        let called = MemoryConnection::call(own, other);
        let (stream, line) = called.map_err(LinuxError::system("a thread for the agent"))?;
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(line);
        Agent::connect(stream, timeout).map_err(|source| self.silent(timeout, source))
    }

    fn silent(&self, timeout: Duration, source: rampart_agent::AgentError) -> LinuxError {
        let (state, reason) = self.state().unwrap_or((CellState::Free, StopReason::None));
        let (lines, most) = match self.kernel_log() {
            Ok(Some(lines)) => (lines, LAST_LINES_OF_LOG),
            Ok(None) | Err(_) => (self.console(), LAST_LINES),
        };
        let last = &lines[lines.len().saturating_sub(most)..];
        LinuxError::Silent {
            name: self.name.clone(),
            timeout,
            state,
            reason,
            last: if last.is_empty() {
                "nothing".to_owned()
            } else {
                last.join("\n")
            },
            source,
        }
    }

    /// Returns the lines of its console since the last call: its kernel log, available once the
    /// first program runs.
    #[must_use]
    pub fn console(&self) -> Vec<String> {
        let mut console = self.console.lock().unwrap_or_else(PoisonError::into_inner);
        console.lines()
    }

    /// Stops the cell and returns its kernel log from its memory, also if it failed before its first
    /// program. Returns `None` if its memory has no log. [`Self::start`] starts the cell again.
    ///
    /// # Errors
    /// Returns an error if the cell does not stop, cannot be started, or does not end within a
    /// minute.
    pub fn kernel_log(&self) -> Result<Option<Vec<String>>, LinuxError> {
        self.hang_up();
        if self.state()?.0 == CellState::Running {
            self.device.stop(self.number)?;
        }
        // Without loading it again: its first code copies the log and turns the cell off.
        self.device.start(self.number)?;
        if self.wait_stopped(LOG_TIMEOUT)?.is_none() {
            self.device.stop(self.number)?;
            return Ok(None);
        }
        let region = self.regions.to_root;
        let memory = self
            .device
            .map_shared(region.start, region.bytes as usize, false);
        let memory = memory.map_err(LinuxError::system("the shared memory of the kernel log"))?;
        let words = memory.words().iter();
        let words: Vec<u64> = words.map(|word| word.load(Ordering::Acquire)).collect();
        Ok(kernel_log::lines(&words))
    }

    /// Returns the cell's state and the reason of its last stop.
    ///
    /// # Errors
    /// Returns an error if the hypervisor is disabled.
    pub fn state(&self) -> Result<(CellState, StopReason), LinuxError> {
        let status = self.device.status();
        let status = status.map_err(LinuxError::system("the hypervisor's status"))?;
        let condition = status.get().cells[self.number as usize].condition();
        Ok((condition.state, condition.stop_reason))
    }

    /// Returns the number of starts since the cell was created.
    fn starts(&self) -> Result<u64, LinuxError> {
        let status = self.device.status();
        let status = status.map_err(LinuxError::system("the hypervisor's status"))?;
        let cell = &status.get().cells[self.number as usize];
        Ok(cell.starts.load(Ordering::Relaxed))
    }

    /// Returns the exits of each CPU, in the order of the configuration, by
    /// [`rampart_hypervisor_core::interface::Exit`].
    ///
    /// # Errors
    /// Returns an error if the hypervisor is disabled.
    pub fn exits(&self) -> Result<Vec<Vec<u64>>, LinuxError> {
        let status = self.device.status();
        let status = status.map_err(LinuxError::system("the hypervisor's status"))?;
        let index = |affinity: &u64| {
            let mut cpus = status.get().cpus.iter();
            cpus.position(|cpu| {
                cpu.mpidr.load(Ordering::Relaxed) == *affinity && cpu.cell() == self.number
            })
        };
        let found = self.cpus.iter().filter_map(index);
        Ok(found.map(|cpu| status.exits(cpu)).collect())
    }

    /// Waits until the cell stops, at most `limit`. Returns the reason of the stop, or `None` if it
    /// still runs.
    ///
    /// # Errors
    /// Returns an error if the hypervisor is disabled.
    pub fn wait_stopped(&self, limit: Duration) -> Result<Option<StopReason>, LinuxError> {
        let begin = std::time::Instant::now();
        loop {
            let (state, reason) = self.state()?;
            if state != CellState::Running {
                return Ok(Some(reason));
            }
            let left = limit.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            // Poll as well, because another reader may have consumed the driver's event.
            let pause = left.min(Duration::from_millis(100));
            let waited = self.device.wait(pause);
            waited.map_err(LinuxError::system("/dev/rampart"))?;
        }
    }

    /// Stops the cell; its memory is kept until it is started again or destroyed.
    ///
    /// # Errors
    /// Returns an error if the cell does not run, or a CPU does not stop in time.
    pub fn stop(&self) -> Result<(), LinuxError> {
        self.hang_up();
        Ok(self.device.stop(self.number)?)
    }

    /// Releases the cell without destroying it, so that another program can use it.
    pub fn leave(mut self) {
        self.destroyed = true;
    }

    /// Destroys the cell: its memory is wiped, its CPUs return to Linux.
    ///
    /// # Errors
    /// Returns an error if a CPU does not stop in time.
    pub fn destroy(mut self) -> Result<(), LinuxError> {
        self.end()
    }

    /// Closes the agent's connection. After this only the console accesses the shared memory.
    fn hang_up(&self) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.drain(..).for_each(MemoryConnection::close);
    }

    fn end(&mut self) -> Result<(), LinuxError> {
        if self.destroyed {
            return Ok(());
        }
        // An access after the end would raise SIGBUS.
        self.hang_up();
        if self.state()?.0 == CellState::Running {
            self.device.stop(self.number)?;
        }
        self.device.destroy(self.number)?;
        self.destroyed = true;
        Ok(())
    }
}

impl Drop for LinuxCell {
    fn drop(&mut self) {
        // The error cannot be returned; `rampart cell list` shows the cell if it remains.
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_address_of_the_roots_kernel_is_one_of_the_cells() {
        assert_eq!(same_as_root("quiet nokaslr isolcpus=1 -- run"), " nokaslr");
        assert_eq!(same_as_root("quiet isolcpus=1 -- nokaslr"), "");
        assert_eq!(same_as_root(""), "");
    }
}
