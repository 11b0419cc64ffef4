// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads and writes the shared regions of cells, and reads the programs of cells.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

use rampart_hypervisor_core::format::MemoryFlags;
use rampart_model::{Finding, Severity};

use super::{OperateError, Operator};
use crate::resolve::Resolved;
use crate::shared_memory::SharedMemory;

/// Reads a program without an operating system, as a plain binary.
///
/// # Errors
/// If the file cannot be read or is an ELF file.
pub fn read_program(path: &Path) -> Result<Vec<u8>, OperateError> {
    let unreadable = |what: String| {
        OperateError::Usage(
            Finding::new(Severity::Error, path.display().to_string(), what)
                .fix("objcopy -O binary PROGRAM.elf PROGRAM.bin"),
        )
    };
    let bytes = fs::read(path).map_err(|error| unreadable(error.to_string()))?;
    if bytes.starts_with(b"\x7fELF") {
        let what = "it is an ELF file, not a plain binary";
        return Err(unreadable(what.to_owned()));
    }
    Ok(bytes)
}

impl Operator {
    /// Creates a cell and loads its program, if any. A cell whose program cannot be loaded is
    /// destroyed again. Returns the number of the cell.
    ///
    /// # Errors
    /// As [`Self::create`] and [`Self::load`].
    pub fn create_with_program(
        &self,
        resolved: &Resolved,
        program: Option<&[u8]>,
    ) -> Result<u32, OperateError> {
        let number = self.create(resolved)?;
        let name = &resolved.configuration.name;
        if let Some(program) = program
            && let Err(error) = self.load(name, None, program)
        {
            self.destroy(name)?;
            return Err(error);
        }
        Ok(number)
    }

    /// Maps a shared region of a cell, by its name or by its number from 0. Writable if the root is
    /// its writer.
    ///
    /// # Errors
    /// Returns an error if there is no such cell or region.
    pub fn region(&self, name: &str, wanted: &str) -> Result<SharedMemory, OperateError> {
        let cell = self.cell(name)?;
        let location = format!("cell {name}, shared region {wanted}");
        let Some(region) = cell.region(wanted) else {
            let names: Vec<&str> = cell.names.all().collect();
            return Err(OperateError::Usage(
                Finding::new(Severity::Error, location, "no such region")
                    .values(
                        format!("`{wanted}`"),
                        format!(
                            "one of {}, or a number below {}",
                            if names.is_empty() {
                                "no names".to_owned()
                            } else {
                                names.join(", ")
                            },
                            cell.shared().count()
                        ),
                    )
                    .fix(format!(
                        "rampart cell list --verbose, for the regions of {name}"
                    )),
            ));
        };
        let writable = region.flags().contains(MemoryFlags::ROOT_WRITE);
        let mapped = self
            .device
            .map_shared(region.physical, region.bytes as usize, writable);
        mapped.map_err(|error| {
            OperateError::refused(
                Finding::new(Severity::Error, location, format!("cannot map it: {error}")).fix(
                    format!("rampart cell list, for whether {name} still exists"),
                ),
            )
        })
    }

    /// Reads a shared region of a cell from its start, at most `limit` bytes.
    ///
    /// # Errors
    /// As [`Self::region`], and if the cell was destroyed meanwhile.
    pub fn read_region(
        &self,
        name: &str,
        region: &str,
        limit: usize,
    ) -> Result<Vec<u8>, OperateError> {
        let memory = self.region(name, region)?;
        let words = memory.words().iter();
        let mut bytes: Vec<u8> = words
            .take(limit.div_ceil(8))
            .flat_map(|word| word.load(Ordering::Acquire).to_ne_bytes())
            .collect();
        bytes.truncate(limit);
        if memory.is_lost() {
            return Err(destroyed(location(name, region)));
        }
        Ok(bytes)
    }

    /// Writes whole words of 8 bytes to a shared region whose writer is the root.
    ///
    /// # Errors
    /// As [`Self::region`], and if the root is not the writer, the data does not fit, or the cell
    /// was destroyed meanwhile.
    pub fn write_region(
        &self,
        name: &str,
        region: &str,
        at: u64,
        data: &[u8],
    ) -> Result<(), OperateError> {
        let memory = self.region(name, region)?;
        let location = location(name, region);
        if !memory.is_writable() {
            let fix = format!("rampart cell create {name} --shared NAME=SIZE:root");
            return Err(OperateError::refused(
                Finding::new(Severity::Error, location, "the root cannot write to it")
                    .values("a region of the cell", "a region of the root")
                    .fix(fix),
            ));
        }
        let bytes = memory.bytes() as u64;
        let end = at.checked_add(data.len() as u64);
        if !at.is_multiple_of(8)
            || !data.len().is_multiple_of(8)
            || end.is_none_or(|end| end > bytes)
        {
            return Err(OperateError::Usage(
                Finding::new(Severity::Error, location, "the data does not fit")
                    .values(
                        format!("{} bytes at {at}", data.len()),
                        format!("whole words of 8 bytes within {bytes}"),
                    )
                    .fix("pad the data to whole words\nchoose another --at"),
            ));
        }
        let first = at as usize / 8;
        let (words, _) = data.as_chunks::<8>();
        let mut words = words.iter().enumerate();
        let whole =
            words.all(|(index, word)| memory.store(first + index, u64::from_ne_bytes(*word)));
        if !whole || memory.is_lost() {
            return Err(destroyed(location));
        }
        Ok(())
    }
}

fn location(name: &str, region: &str) -> String {
    format!("cell {name}, shared region {region}")
}

fn destroyed(location: String) -> OperateError {
    OperateError::refused(
        Finding::new(
            Severity::Error,
            location,
            "the cell was destroyed meanwhile",
        )
        .values("destroyed", "present")
        .fix("rampart cell list"),
    )
}
