// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps a kernel with which the hypervisor starts the root again.

use std::fs::{self, File};
use std::io::Read as _;
use std::sync::atomic::Ordering::Relaxed;

use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{MemoryFlags, MemoryRegion};
use rampart_hypervisor_core::interface::{MEMORY_ALIGNMENT, ROOT, StopReason};
use rampart_model::{ByteSize, Finding, Severity};

use super::{OperateError, Operator};
use crate::describe::{AddressSpan, Description, Sources, describe, spans};
use crate::device::DeviceError;
use crate::linux::{KernelImage, Layout, LinuxError, StandbyTree, standby_tree};
use crate::network::ROOT_PEER;
use crate::resolve::{CellInUse, first_fit};

/// The tree with which this kernel was started; only root may read it.
const TREE: &str = "/sys/firmware/fdt";
/// Kernel parameters that limit or place the memory of this kernel.
const OF_THIS_BOOT: [&str; 5] = ["mem=", "memmap=", "crashkernel=", "elfcorehdr=", "initrd="];
/// The compatible strings of what makes interrupts of messages: the translation service of a GICv3, in which remains what
/// the last kernel has set up, and the frames of a GICv2, which the root cannot access.
const MESSAGES: [&str; 2] = ["arm,gic-v3-its", "arm,gic-v2m-frame"];

/// A kernel to keep.
#[derive(Debug, Clone)]
pub struct StandbyOrder {
    /// Its name in the list of cells.
    pub name: String,
    /// Content of the kernel's file.
    pub kernel: Vec<u8>,
    /// Content of the initramfs.
    pub initramfs: Vec<u8>,
    /// Kernel parameters; without them those of this kernel, except those that limit its memory.
    pub arguments: Option<String>,
    /// All memory of the root after it was started again, in bytes.
    pub memory_bytes: u64,
}

/// The latest start of the root by the hypervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootRestart {
    /// How often the root was started again.
    pub count: u64,
    /// What its last kernel had called: PSCI SYSTEM_RESET or SYSTEM_OFF.
    pub reason: StopReason,
    /// The time, in ticks of CNTPCT_EL0.
    pub time: u64,
}

impl Operator {
    /// Keeps a kernel with which the root is started again if it resets the machine while cells exist. Returns its
    /// memory.
    ///
    /// # Errors
    /// Returns an error if the kernel is invalid, there is not enough memory, or the driver or the hypervisor refuses;
    /// nothing is kept then.
    pub fn keep_standby(&self, order: &StandbyOrder) -> Result<AddressSpan, OperateError> {
        let in_use = self.required()?;
        let description = describe(&Sources::of_this_machine()?);
        let location = format!("standby {}", order.name);
        let problem = |what: String| Finding::new(Severity::Error, location.clone(), what);
        let refused = |what: String, fix: &str| OperateError::refused(problem(what).fix(fix));
        // The text contains the fix.
        let unfit = |error: LinuxError| OperateError::refused(problem(error.to_string()));
        let image = KernelImage::read(&order.kernel).map_err(unfit)?;
        let bytes = order.memory_bytes.max(1).next_multiple_of(MEMORY_ALIGNMENT);
        let mut free = spans::without(&description.kept, &in_use.memory());
        let Some(start) = first_fit(&mut free, bytes) else {
            let largest = free.iter().map(|span| span.bytes).max().unwrap_or(0);
            let what = format!(
                "{} of contiguous memory are free, {} are needed",
                ByteSize(largest),
                ByteSize(bytes)
            );
            let fix = "reserve more memory from Linux (mem= on the kernel command line), or name less with --memory";
            return Err(refused(what, fix));
        };
        let memory = AddressSpan { start, bytes };
        let layout =
            Layout::of(memory, &image, order.initramfs.len() as u64, false).map_err(unfit)?;
        let read_error = |path: &str, error: &std::io::Error| {
            refused(
                format!("cannot read {path}: {error}"),
                "run the command as root",
            )
        };
        let machine = fs::read(TREE).map_err(|error| read_error(TREE, &error))?;
        let mut seed = [0; 64];
        File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut seed))
            .map_err(|error| read_error("/dev/urandom", &error))?;
        let tree = standby_tree(
            &machine,
            &StandbyTree {
                memory,
                initramfs: layout.initramfs,
                arguments: &order.arguments.clone().unwrap_or_else(own_arguments),
                seed,
                disabled: &disabled(&description, &in_use.cells),
                last: &last(&description),
            },
        );
        let fix = "send the output of `rampart cell describe --json` with a bug report";
        let tree = tree.ok_or_else(|| refused(format!("{TREE} is not a device tree"), fix))?;
        let space = layout.memory.end() - layout.tree;
        if tree.len() as u64 > space {
            let too_large = problem("its device tree is too large".to_owned())
                .values(format!("{} bytes", tree.len()), format!("{space} or less"));
            let fix = "remove nodes that Linux does not use from the machine's device tree";
            return Err(OperateError::refused(too_large.fix(fix)));
        }
        let configuration = standby_blob(&order.name, memory, (layout.kernel, layout.tree));
        let number = self.call(|device| device.create(&configuration))?;
        let parts: [(u64, &[u8]); 3] = [
            (layout.kernel, &image.bytes),
            (layout.initramfs.start, &order.initramfs),
            (layout.tree, &tree),
        ];
        let kept = parts
            .into_iter()
            .filter(|(_, bytes)| !bytes.is_empty())
            .try_for_each(|(at, bytes)| self.call(|device| device.load(number, at, bytes)))
            .and_then(|()| self.call(|device| device.start(number)));
        if let Err(error) = kept {
            // The first error is the one to return.
            let _ = self.call(|device| device.destroy(number));
            return Err(error);
        }
        Ok(memory)
    }

    /// Creates the root's ends of networks with cells that do not exist. Returns those that the driver refuses.
    ///
    /// # Errors
    /// Returns the errors of the driver that concern no network.
    pub(super) fn continue_networks(&self) -> Result<Vec<Finding>, OperateError> {
        let mut refused = Vec::new();
        for cell in &self.in_use()?.cells {
            let mut links = cell.names.networks.iter();
            let Some(link) = links.find(|link| link.peer == ROOT_PEER) else {
                continue;
            };
            let created = self.call(
                |device| match device.network(cell.number, &cell.name, link) {
                    Err(DeviceError::Driver { source, .. })
                        if source.kind() == std::io::ErrorKind::AlreadyExists =>
                    {
                        Ok(())
                    }
                    other => other,
                },
            );
            if let Err(error) = created {
                refused.extend_from_slice(error.findings());
            }
        }
        Ok(refused)
    }

    /// Returns the latest start of the root by the hypervisor, or `None` if it runs the kernel that enabled it.
    ///
    /// # Errors
    /// Returns an error while the hypervisor is not enabled.
    pub fn root_restart(&self) -> Result<Option<RootRestart>, OperateError> {
        let status = self.status()?;
        let root = &status.get().cells[ROOT as usize];
        let count = root.starts.load(Relaxed);
        Ok((count != 0).then(|| RootRestart {
            count,
            reason: root.condition().stop_reason,
            time: root.changed.load(Relaxed),
        }))
    }
}

/// Returns the configuration of a standby: memory, and the kernel's entry and device tree.
#[must_use]
pub fn standby_blob(name: &str, memory: AddressSpan, (entry, argument): (u64, u64)) -> Vec<u8> {
    let flags =
        MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::EXECUTE | MemoryFlags::LOADABLE;
    let blob = Blob {
        name: name.to_owned(),
        entry,
        argument,
        memory: vec![MemoryRegion {
            physical: memory.start,
            guest: memory.start,
            bytes: memory.bytes,
            flags: flags.bits(),
            colours: 0,
        }],
        ..Blob::default()
    };
    blob.bytes()
}

fn own_arguments() -> String {
    let text = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let of_this_boot = |word: &&str| OF_THIS_BOOT.iter().any(|name| word.starts_with(name));
    let words: Vec<&str> = text
        .split_whitespace()
        .filter(|word| !of_this_boot(word))
        .collect();
    words.join(" ")
}

/// Returns the devices that the kernel leaves alone: those of cells, and those for message-signalled interrupts.
fn disabled(description: &Description, cells: &[CellInUse]) -> Vec<String> {
    let regions = cells.iter().flat_map(|cell| &cell.configuration.memory);
    let owned: Vec<AddressSpan> = regions
        .filter(|region| region.flags().contains(MemoryFlags::DEVICE))
        .map(|region| AddressSpan {
            start: region.physical,
            bytes: region.bytes,
        })
        .collect();
    let overlaps = |span: AddressSpan| {
        owned
            .iter()
            .any(|own| own.start < span.end() && span.start < own.end())
    };
    let left = description.devices.iter().filter(|device| {
        device
            .compatible
            .iter()
            .any(|one| MESSAGES.contains(&one.as_str()))
            || device.ranges.iter().any(|range| overlaps(range.span()))
    });
    left.map(|device| device.path.clone()).collect()
}

/// Returns the memory that Linux uses, except what the tree reserves anyway.
fn last(description: &Description) -> Vec<AddressSpan> {
    let used = spans::without(&description.memory, &description.kept);
    let reserved: Vec<AddressSpan> = description.reserved.iter().map(|one| one.span).collect();
    spans::without(&used, &reserved)
}
