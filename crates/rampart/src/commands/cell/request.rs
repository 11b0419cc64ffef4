// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The arguments of `rampart cell create`, as a request for resources.

use rampart_cells::names::wrong_name;
use rampart_cells::network::{DEFAULT_BYTES, NetworkRequest, wrong_bytes};
use rampart_cells::resolve::{
    CellRequest, CpuSelection, RegionWriter, RegisterFlags, RegisterGrant, SharedRequest,
};
use rampart_model::{ByteSize, Nanos};

use super::Create;
use crate::failure::Failure;

/// A grant of bits of a register.
#[derive(Debug, Clone)]
pub(super) struct Register(RegisterGrant);

/// A shared region that the cell owns.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    name: Option<String>,
    bytes: u64,
    writer: RegionWriter,
}

/// A shared region of another cell.
#[derive(Debug, Clone)]
pub(super) struct OtherRegion {
    name: Option<String>,
    cell: String,
    region: String,
}

/// Parses a decimal number, or a hexadecimal one after `0x`.
pub(super) fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| format!("{error}; write a number such as 4096 or 0x1000"))
}

pub(super) fn register(text: &str) -> Result<Register, String> {
    const FORM: &str = "write ADDRESS:BYTES:READABLE:WRITABLE, for example 0x9030400:4:0x1:0x1";
    let mut parts: Vec<&str> = text.split(':').collect();
    let acts = parts.last() == Some(&"acts");
    if acts {
        parts.pop();
    }
    let [address, width, readable, writable] = parts[..] else {
        return Err(FORM.to_owned());
    };
    let part = |text| number(text).map_err(|error| format!("{error}; {FORM}"));
    let width = u32::try_from(part(width)?).map_err(|_| FORM.to_owned())?;
    Ok(Register(RegisterGrant {
        address: part(address)?,
        readable: part(readable)?,
        writable: part(writable)?,
        width,
        flags: if acts {
            RegisterFlags::WRITE_ACTS.bits()
        } else {
            0
        },
    }))
}

/// Splits off the name before `=`, if any.
fn named(text: &str) -> Result<(Option<String>, &str), String> {
    let Some((name, rest)) = text.split_once('=') else {
        return Ok((None, text));
    };
    wrong_name(name).map_or_else(|| Ok((Some(name.to_owned()), rest)), Err)
}

pub(super) fn shared(text: &str) -> Result<Shared, String> {
    let (name, rest) = named(text)?;
    let (size, writer) = match rest.strip_suffix(":root") {
        Some(size) => (size, RegionWriter::Root),
        None => (rest, RegionWriter::Cell),
    };
    let bytes: ByteSize = size.parse().map_err(|error| {
        format!("{error}; write [NAME=]SIZE, for example records=64KiB, with `:root` where the root writes it")
    })?;
    Ok(Shared {
        name,
        bytes: bytes.0,
        writer,
    })
}

pub(super) fn other_region(text: &str) -> Result<OtherRegion, String> {
    let (name, rest) = named(text)?;
    match rest.split_once(':') {
        Some((cell, region)) if !cell.is_empty() && !region.is_empty() => Ok(OtherRegion {
            name,
            cell: cell.to_owned(),
            region: region.to_owned(),
        }),
        _ => Err("write CELL:NAME or CELL:NUMBER, for example press:records".to_owned()),
    }
}

/// Parses a network of a program without an operating system, which uses no caches.
pub(super) fn network(text: &str) -> Result<NetworkRequest, String> {
    let (peer, bytes) = match text.split_once('=') {
        None => (text, DEFAULT_BYTES),
        Some((peer, size)) => {
            let size: ByteSize = size
                .parse()
                .map_err(|error| format!("{error}; write PEER[=SIZE], for example root=256KiB"))?;
            (peer, size.0)
        }
    };
    match wrong_bytes(bytes) {
        Some(reason) => Err(reason),
        None => Ok(NetworkRequest {
            peer: peer.to_owned(),
            bytes,
            cached: false,
        }),
    }
}

/// Parses a region of a cell, by name or number.
pub(super) fn region(text: &str) -> Result<(String, String), String> {
    let OtherRegion { name, cell, region } = other_region(text)?;
    match name {
        None => Ok((cell, region)),
        Some(_) => Err("write CELL:NAME or CELL:NUMBER, for example press:records".to_owned()),
    }
}

/// Parses a device and the reason to trust a cell with it.
pub(super) fn reason(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((device, reason)) if !device.is_empty() && !reason.trim().is_empty() => {
            Ok((device.to_owned(), reason.to_owned()))
        }
        _ => Err("write DEVICE=REASON, for example '/dma@30bd0000=trusted program'".to_owned()),
    }
}

impl Create {
    /// Returns the request.
    pub(super) fn request(&self) -> Result<CellRequest, Failure> {
        let mut request = CellRequest::new(&self.name);
        request.cpus = match (super::super::cpus_here(self.cpus.as_ref())?, self.cpu_count) {
            (Some(cpus), _) => CpuSelection::List(cpus),
            (None, count) => CpuSelection::Count(count.unwrap_or(1)),
        };
        request.memory_bytes = self.memory.0;
        request.cache_percent = self.cache_percent;
        request.devices.clone_from(&self.device);
        request.unconfined_dma = self.unconfined_dma.iter().cloned().collect();
        request.registers = self.register.iter().map(|register| register.0).collect();
        if !self.shared.is_empty() {
            let own = |region: &Shared| SharedRequest::Own {
                name: region.name.clone(),
                bytes: region.bytes,
                writer: region.writer,
            };
            request.shared = self.shared.iter().map(own).collect();
        }
        let others = self.shared_of.iter();
        request
            .shared
            .extend(others.map(|region| SharedRequest::OtherCell {
                name: region.name.clone(),
                cell: region.cell.clone(),
                region: region.region.clone(),
            }));
        // A program without an operating system uses no caches.
        request.networks = self.network.clone();
        request.bells = self.bells;
        request.rings.clone_from(&self.rings);
        request.watchdog_milliseconds = self.watchdog.map_or(0, milliseconds);
        request.argument = self.argument;
        Ok(request)
    }
}

/// Returns whole milliseconds, at least one, since 0 means no watchdog.
fn milliseconds(time: Nanos) -> u32 {
    u32::try_from(time.0.div_ceil(1_000_000))
        .unwrap_or(u32::MAX)
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_registers_and_regions() {
        let Register(grant) = register("0x9030400:4:0x1:0x3:acts").expect("a register");
        assert_eq!((grant.address, grant.width), (0x903_0400, 4));
        assert_eq!((grant.readable, grant.writable), (1, 3));
        assert_eq!(grant.flags, RegisterFlags::WRITE_ACTS.bits());
        assert!(
            register("0x9030400:4:1")
                .expect_err("too few")
                .contains("ADDRESS")
        );
        let plain = shared("1MiB:root").expect("a size");
        assert_eq!((plain.bytes, plain.writer), (1 << 20, RegionWriter::Root));
        assert_eq!(plain.name, None);
        let named = shared("records=64KiB").expect("a size");
        assert_eq!(named.name.as_deref(), Some("records"));
        assert_eq!((named.bytes, named.writer), (64 << 10, RegionWriter::Cell));
        assert!(shared("7=64KiB").expect_err("a number").contains("name"));
        assert!(shared("64").is_err() || shared("x=").is_err());
        let other = other_region("press:1").expect("a region");
        assert_eq!((other.cell.as_str(), other.region.as_str()), ("press", "1"));
        let other = other_region("view=press:records").expect("a region");
        assert_eq!(other.name.as_deref(), Some("view"));
        assert_eq!(other.region, "records");
        assert!(other_region("press").is_err() && other_region("press:").is_err());
        assert!(region("view=press:records").is_err());
        let default = network("root").expect("a peer");
        assert_eq!((default.peer.as_str(), default.bytes), ("root", 256 << 10));
        assert_eq!(network("press=1MiB").expect("a size").bytes, 1 << 20);
        assert!(network("press=3KiB").is_err() && network("press=").is_err());
        assert_eq!(
            region("press:records"),
            Ok(("press".to_owned(), "records".to_owned()))
        );
        assert_eq!(milliseconds(Nanos(1)), 1);
    }
}
