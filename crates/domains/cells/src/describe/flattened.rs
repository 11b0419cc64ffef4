// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses a flattened device tree (Devicetree Specification 0.4, chapter 5).
//!
//! No library is used: those with a suitable licence either refuse names of more than 31
//! characters, which trees of real boards contain (dtoolkit 0.4), or do not check their input.

/// The first word of a flattened tree.
const MAGIC: u32 = 0xd00d_feed;
/// The supported version of the format; later versions name the oldest compatible one.
const VERSION: u32 = 17;
/// Maximum depth of a tree.
const DEEPEST: usize = 32;

/// An element of a tree, in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item<'a> {
    /// Start of a node; its name is empty for the root.
    Begin(&'a str),
    /// A property of the innermost open node.
    Property(&'a str, &'a [u8]),
    /// End of a node.
    End,
}

/// The parsed tree.
#[derive(Debug, Default)]
pub(super) struct Flattened<'a> {
    pub(super) items: Vec<Item<'a>>,
    /// Start and size of each reserved part of the memory.
    pub(super) reservations: Vec<(u64, u64)>,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(four.try_into().ok()?))
}

fn double(bytes: &[u8], at: usize) -> Option<u64> {
    let low = word(bytes, at.checked_add(4)?)?;
    Some(u64::from(word(bytes, at)?) << 32 | u64::from(low))
}

/// Returns the text up to the next zero byte.
fn text(bytes: &[u8], at: usize) -> Option<&str> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

/// Parses a whole tree.
///
/// # Errors
/// Returns a description of the error with its byte offset.
pub(super) fn read(bytes: &[u8]) -> Result<Flattened<'_>, String> {
    let field = |index: usize| word(bytes, 4 * index).ok_or("it is shorter than its header");
    if field(0)? != MAGIC {
        return Err(format!(
            "its first word is {:#x}, not {MAGIC:#x}",
            field(0)?
        ));
    }
    let (size, structure, strings, reserved) = (field(1)?, field(2)?, field(3)?, field(4)?);
    let (version, compatible) = (field(5)?, field(6)?);
    if version < VERSION || compatible > VERSION {
        return Err(format!(
            "it has version {version}; the supported version is {VERSION}"
        ));
    }
    let bytes = bytes
        .get(..size as usize)
        .ok_or_else(|| format!("it is shorter than its stated size of {size} bytes"))?;
    let mut found = Flattened {
        items: Vec::new(),
        reservations: reservations(bytes, reserved as usize)
            .ok_or("its list of reserved memory has no end")?,
    };
    items(
        bytes,
        structure as usize,
        strings as usize,
        &mut found.items,
    )
    .map_err(|at| format!("byte {at} is invalid"))?;
    Ok(found)
}

/// Parses pairs of address and size up to a pair of zeros (5.3).
fn reservations(bytes: &[u8], mut at: usize) -> Option<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    loop {
        let pair = (double(bytes, at)?, double(bytes, at.checked_add(8)?)?);
        if pair == (0, 0) {
            return Some(found);
        }
        found.push(pair);
        at += 16;
    }
}

/// Parses the structure block (5.4). The error is the offset of the first invalid data.
fn items<'a>(
    bytes: &'a [u8],
    begin: usize,
    strings: usize,
    found: &mut Vec<Item<'a>>,
) -> Result<(), usize> {
    const BEGIN_NODE: u32 = 1;
    const END_NODE: u32 = 2;
    const PROPERTY: u32 = 3;
    const NOTHING: u32 = 4;
    const END: u32 = 9;
    let mut at = begin;
    let mut depth = 0;
    loop {
        let token = word(bytes, at).ok_or(at)?;
        let next = at + 4;
        let after = match token {
            BEGIN_NODE if depth < DEEPEST && (depth > 0 || found.is_empty()) => {
                let name = text(bytes, next).ok_or(next)?;
                found.push(Item::Begin(name));
                depth += 1;
                next + name.len() + 1
            }
            END_NODE if depth > 0 => {
                found.push(Item::End);
                depth -= 1;
                next
            }
            PROPERTY if depth > 0 => {
                let length = word(bytes, next).ok_or(next)? as usize;
                let name = word(bytes, next + 4).ok_or(next)? as usize;
                let name = strings.checked_add(name).and_then(|name| text(bytes, name));
                let value = bytes.get(next + 8..).and_then(|rest| rest.get(..length));
                let (Some(name), Some(value)) = (name, value) else {
                    return Err(next);
                };
                found.push(Item::Property(name, value));
                next + 8 + length
            }
            NOTHING => next,
            END if depth == 0 && !found.is_empty() => return Ok(()),
            _ => return Err(at),
        };
        at = after.next_multiple_of(4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a tree of one node with one property, whose name is longer than other parsers allow.
    fn small() -> Vec<u8> {
        let name = b"a-name-of-a-property-that-is-longer-than-thirty-one\0";
        let structure: [u32; 9] = [1, 0, 3, 4, 0, 7, 2, 9, 0];
        let mut bytes = Vec::new();
        let begin = 40 + 16;
        let strings = begin + 4 * structure.len() as u32;
        let size = strings + name.len() as u32;
        for word in [
            MAGIC,
            size,
            begin,
            strings,
            40,
            17,
            16,
            0,
            name.len() as u32,
            36,
        ] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend([0; 16]);
        for word in structure {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(name);
        bytes
    }

    #[test]
    fn parses_a_tree_with_a_long_name() {
        let bytes = small();
        let tree = read(&bytes).expect("a tree");
        let name = "a-name-of-a-property-that-is-longer-than-thirty-one";
        assert_eq!(
            tree.items,
            [
                Item::Begin(""),
                Item::Property(name, &[0, 0, 0, 7]),
                Item::End
            ]
        );
    }

    #[test]
    fn no_input_makes_the_parser_panic() {
        let good = small();
        for length in 0..good.len() {
            assert!(read(&good[..length]).is_err(), "{length} bytes");
        }
        for at in 0..good.len() {
            for value in [0, 1, 3, 9, 0x7f, 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[at] = value;
                // The bytes may be a valid tree by chance.
                let _ = read(&bytes);
            }
        }
    }
}
