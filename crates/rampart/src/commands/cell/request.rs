// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `rampart cell create` is asked for, as words.

use rampart_cells::resolve::{CpuWish, RegisterFlags, RegisterGrant, Request, SharedWish, Writer};
use rampart_model::{ByteSize, Nanos};

use super::Create;

/// Bits of a register.
#[derive(Debug, Clone)]
pub(super) struct Register(RegisterGrant);

/// A shared region of its own.
#[derive(Debug, Clone)]
pub(super) struct Shared(u64, Writer);

/// A region of another cell.
#[derive(Debug, Clone)]
pub(super) struct Neighbour(String, usize);

/// Decimal, or hexadecimal with `0x`.
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

pub(super) fn shared(text: &str) -> Result<Shared, String> {
    let (size, writer) = match text.strip_suffix(":root") {
        Some(size) => (size, Writer::Root),
        None => (text, Writer::Cell),
    };
    let bytes: ByteSize = size.parse().map_err(|error| format!("{error}"))?;
    Ok(Shared(bytes.0, writer))
}

pub(super) fn neighbour(text: &str) -> Result<Neighbour, String> {
    let form = || "write CELL:NUMBER, for example press:0".to_owned();
    let (cell, index) = text.split_once(':').ok_or_else(form)?;
    Ok(Neighbour(
        cell.to_owned(),
        index.parse().map_err(|_| form())?,
    ))
}

impl Create {
    /// What is asked for.
    pub(super) fn request(&self) -> Request {
        let mut request = Request::new(&self.name);
        request.cpus = match (&self.cpus, self.cpu_count) {
            (Some(cpus), _) => CpuWish::List(cpus.clone()),
            (None, count) => CpuWish::Count(count.unwrap_or(1)),
        };
        request.memory_bytes = self.memory.0;
        request.devices.clone_from(&self.device);
        request.registers = self.register.iter().map(|register| register.0).collect();
        if !self.shared.is_empty() {
            let own = |Shared(bytes, writer): &Shared| SharedWish::Own {
                bytes: *bytes,
                writer: *writer,
            };
            request.shared = self.shared.iter().map(own).collect();
        }
        let others = self.shared_of.iter();
        request
            .shared
            .extend(others.map(|Neighbour(cell, index)| SharedWish::Neighbour {
                cell: cell.clone(),
                index: *index,
            }));
        request.bells = self.bells;
        request.rings.clone_from(&self.rings);
        request.watchdog_milliseconds = self.watchdog.map_or(0, milliseconds);
        request.argument = self.argument;
        request
    }
}

/// At least one, because 0 stands for none.
fn milliseconds(time: Nanos) -> u32 {
    u32::try_from(time.0.div_ceil(1_000_000))
        .unwrap_or(u32::MAX)
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_wishes() {
        let Register(grant) = register("0x9030400:4:0x1:0x3:acts").expect("a register");
        assert_eq!((grant.address, grant.width), (0x903_0400, 4));
        assert_eq!((grant.readable, grant.writable), (1, 3));
        assert_eq!(grant.flags, RegisterFlags::WRITE_ACTS.bits());
        assert!(
            register("0x9030400:4:1")
                .expect_err("too few")
                .contains("ADDRESS")
        );
        let Shared(bytes, writer) = shared("1MiB:root").expect("a size");
        assert_eq!((bytes, writer), (1 << 20, Writer::Root));
        let Neighbour(cell, index) = neighbour("press:1").expect("a region");
        assert_eq!((cell.as_str(), index), ("press", 1));
        assert_eq!(milliseconds(Nanos(1)), 1);
    }
}
