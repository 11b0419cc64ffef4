// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads what a simulated machine's memory has, also when its kernel no longer runs.

use std::sync::atomic::AtomicU64;

use rampart_bench::sim::Sim;

/// Reads physical memory of the machine, or registers of its devices.
///
/// # Panics
/// If QEMU does not save them.
#[must_use]
pub fn memory(machine: &Sim, start: u64, bytes: u64) -> Vec<u8> {
    let location = tempfile::tempdir().expect("a directory");
    let file = location.path().join("memory");
    let arguments = serde_json::json!({ "val": start, "size": bytes, "filename": file });
    let saved = machine.qemu().qmp().execute("pmemsave", arguments);
    saved.expect("QEMU saves memory");
    let saved = std::fs::read(&file).expect("the saved memory");
    assert_eq!(saved.len() as u64, bytes);
    saved
}

/// Reads memory of the machine as words of 64 bits.
///
/// # Panics
/// As for [`memory`].
#[must_use]
pub fn words(machine: &Sim, start: u64, bytes: u64) -> Vec<AtomicU64> {
    let bytes = memory(machine, start, bytes);
    let (words, _) = bytes.as_chunks();
    let words = words.iter();
    words
        .map(|word| AtomicU64::new(u64::from_le_bytes(*word)))
        .collect()
}

/// Parses the place of a region, `0xSTART+0xBYTES`.
///
/// # Panics
/// If the text is not that.
#[must_use]
pub fn region(text: &str) -> (u64, u64) {
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("hex");
    let (start, bytes) = text.split_once('+').expect("a place");
    (number(start), number(bytes))
}

/// Reads the complete lines that programs of a cell have printed, from the region that its agent writes.
///
/// # Panics
/// If the region has no stream of an agent.
#[must_use]
pub fn lines_of_cell(machine: &Sim, (start, bytes): (u64, u64)) -> Vec<Vec<u8>> {
    let words = words(machine, start, bytes);
    let mut written = Vec::new();
    rampart_ring::stream::leftover(&words, |byte| written.push(byte)).expect("a section");
    let outputs = rampart_agent::recover(&written);
    let lines = outputs.values().flat_map(|output| {
        // The last line may be incomplete.
        let end = output.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
        output[..end].split(|byte| *byte == b'\n')
    });
    lines.map(<[u8]>::to_vec).collect()
}
