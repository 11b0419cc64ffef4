// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel log of a Linux cell that ended before its first program exported it. The root cannot read
//! the memory of a cell. So the cell is started again as it is, and its first code (`log_reader.s`)
//! copies the log to a shared region. It finds the log by its structure (Linux 6.1 and 6.12,
//! `kernel/printk/printk_ringbuffer.c`), until the identifiers of records exceed 32 bits: after 4,096
//! records with the default size.

use std::collections::BTreeMap;

use rampart_model::AddressSpan;

use super::console::printable;

/// Size of the code with its parameters: one page.
pub(super) const READER_BYTES: u64 = 4096;
/// Offset of the parameters. The following constants are in `log_reader.s` as well.
const PARAMETERS: usize = 4032;
const TEXTS: u64 = 64;
const INFOS: u64 = 1 << 20;
const INFO_WORDS: usize = 3;
/// The first word of the region, when the log is complete.
const MAGIC: u64 = u64::from_le_bytes(*b"RMPKLOG\x01");
/// Bits from 20 on of an identifier.
const IDENTIFIER: u64 = 0xfff;
/// Behind the last identifier: the first one is this minus the number of records.
const IDENTIFIERS: u64 = 1 << 32;
/// Exponents of the number of records, from `CONFIG_LOG_BUF_SHIFT` 12 to 25 less 5.
const EXPONENTS: std::ops::RangeInclusive<u32> = 7..=20;

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(include_str!("log_reader.s"));

#[cfg(target_arch = "aarch64")]
fn code() -> &'static [u8] {
    unsafe extern "C" {
        static rampart_log_reader_begin: u8;
        static rampart_log_reader_end: u8;
    }
    let (begin, end) = (
        &raw const rampart_log_reader_begin,
        &raw const rampart_log_reader_end,
    );
    // SAFETY: both are symbols of one section, which is only read, and the end is behind the begin.
    unsafe { std::slice::from_raw_parts(begin, end.offset_from_unsigned(begin)) }
}

/// No other architecture has cells.
#[cfg(not(target_arch = "aarch64"))]
const fn code() -> &'static [u8] {
    &[]
}

/// Returns the page with the first code of a cell: `memory` is Linux's, `region` receives the log.
pub(super) fn reader(kernel: u64, memory: AddressSpan, region: AddressSpan) -> Vec<u8> {
    let mut page = code().to_vec();
    debug_assert!(page.len() <= PARAMETERS);
    page.resize(PARAMETERS, 0);
    let end = memory.end();
    for value in [0, kernel, memory.start, end, region.start, MAGIC] {
        page.extend(value.to_le_bytes());
    }
    page
}

/// Returns the lines of the log that the cell has copied to a region of these words, or `None` if there
/// is no log. The cell may have written anything.
pub(super) fn lines(region: &[u64]) -> Option<Vec<String>> {
    let part = |start: u64, end: u64| region.get(start as usize / 8..end as usize / 8);
    if *region.first()? != MAGIC {
        return None;
    }
    let texts = blocks(part(TEXTS, *region.get(1)?)?);
    let (infos, _) = part(INFOS, *region.get(2)?)?.as_chunks::<INFO_WORDS>();
    let infos: BTreeMap<u64, Info> = infos.iter().map(|words| (words[0], info(*words))).collect();
    let fits = |count: u64| {
        let known = texts.iter().filter(|(identifier, text)| {
            let info = infos.get(&number(**identifier, count));
            info.is_some_and(|info| info.bytes <= text.len())
        });
        known.count()
    };
    let count = EXPONENTS
        .map(|bits| 1 << bits)
        .max_by_key(|count| fits(*count))?;
    let mut lines = Vec::new();
    for (identifier, text) in &texts {
        match infos.get(&number(*identifier, count)) {
            Some(info) => {
                let text = text.get(..info.bytes).unwrap_or(text);
                for line in text.split(|byte| *byte == b'\n') {
                    let (seconds, rest) =
                        (info.microseconds / 1_000_000, info.microseconds % 1_000_000);
                    lines.push(format!("[{seconds:5}.{rest:06}] {}", printable(line)));
                }
            }
            // A word beside the log that looks like an identifier.
            None if !infos.is_empty() => {}
            None => {
                let end = text.iter().position(|byte| matches!(byte, 0 | b'\n'));
                lines.push(printable(&text[..end.unwrap_or(text.len())]));
            }
        }
    }
    Some(lines)
}

struct Info {
    microseconds: u64,
    bytes: usize,
}

fn info(words: [u64; INFO_WORDS]) -> Info {
    Info {
        microseconds: words[1] / 1000,
        bytes: usize::from(words[2] as u16),
    }
}

/// Returns the number of the record with an identifier, if there are `count` at a time.
const fn number(identifier: u64, count: u64) -> u64 {
    identifier.wrapping_sub(IDENTIFIERS - count)
}

/// Returns the texts by identifier. A text at the end of the ring has a second block at its start, which
/// is the one with the text.
fn blocks(words: &[u64]) -> BTreeMap<u64, Vec<u8>> {
    let mut found: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut identifiers = words
        .iter()
        .enumerate()
        .filter(|(_, word)| **word >> 20 == IDENTIFIER)
        .peekable();
    while let Some((at, identifier)) = identifiers.next() {
        let end = identifiers.peek().map_or(words.len(), |(next, _)| *next);
        let text: Vec<u8> = words[at + 1..end]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let kept = found.entry(*identifier).or_default();
        if kept.is_empty() {
            *kept = text;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u64 = IDENTIFIERS - 4096;

    /// Builds a region from texts by number of record and time.
    fn region(records: &[(u64, u64, &str)], with_infos: bool) -> Vec<u64> {
        let mut words = vec![0; 2 << 17];
        let mut at = 8;
        for (number, _, text) in records {
            words[at] = FIRST + number;
            // The kernel's memory has the end of a longer text behind it.
            let padded = format!("{text}xy\n\0");
            for (index, chunk) in padded.as_bytes().chunks(8).enumerate() {
                let mut bytes = [0; 8];
                bytes[..chunk.len()].copy_from_slice(chunk);
                words[at + 1 + index] = u64::from_le_bytes(bytes);
            }
            at += 1 + padded.len().div_ceil(8);
        }
        let mut end = INFOS as usize / 8;
        for (number, nanoseconds, text) in records.iter().filter(|_| with_infos) {
            let info = [*number, *nanoseconds, 0xabcd_0000 | text.len() as u64];
            words[end..end + 3].copy_from_slice(&info);
            end += 3;
        }
        words[..3].copy_from_slice(&[MAGIC, at as u64 * 8, end as u64 * 8]);
        words
    }

    #[test]
    fn lines_are_in_the_order_of_their_numbers() {
        // The ring has wrapped: the newest text is before the oldest.
        let records = [
            (902, 5_000_001_000, "Kernel panic"),
            (900, 4_123_456_789, "first\nsecond"),
            (901, 4_999_999_999, "\x1b[2Jthird"),
        ];
        let wanted = [
            "[    4.123456] first",
            "[    4.123456] second",
            "[    4.999999] [2Jthird",
            "[    5.000001] Kernel panic",
        ];
        assert_eq!(lines(&region(&records, true)).expect("a log"), wanted);
        let without = lines(&region(&records[..1], false));
        assert_eq!(without.expect("a log"), ["Kernel panicxy"]);
    }

    #[test]
    fn whatever_a_cell_writes_is_read_to_the_end() {
        assert_eq!(lines(&[]), None);
        assert_eq!(lines(&[0; 64]), None);
        let good = region(&[(0, 1, "a"), (1, 2, "b")], true);
        for index in 0..3 {
            for value in [0, 1, 7, 8, 1 << 20, (1 << 21) + 8, u64::MAX] {
                let mut changed = good.clone();
                changed[index] = value;
                let _ = lines(&changed);
            }
        }
        let mut changed = good;
        changed[INFOS as usize / 8 + 2] = u64::MAX;
        assert_eq!(lines(&changed).expect("a log").len(), 3);
    }

    #[test]
    fn the_first_code_fits_into_its_page() {
        let span = AddressSpan {
            start: 0x7000_0000,
            bytes: 0x1000,
        };
        let page = reader(0x1234, span, span);
        assert!(page.len() as u64 <= READER_BYTES);
        assert_eq!(page[PARAMETERS + 8..][..8], 0x1234_u64.to_le_bytes());
    }
}
