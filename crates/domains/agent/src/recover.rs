// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recovers the output of an agent whose client has ended.

use std::collections::BTreeMap;

use crate::frame::{Decoder, Kind, MAXIMUM_PAYLOAD, may_be_frame};

/// The standard output of each program, by number.
type Outputs = BTreeMap<u32, Vec<u8>>;

/// Returns the standard output of each program, by number, from the last bytes that an agent wrote
/// in one conversation. They remain in the machine's memory after a crash of the root
/// (`rampart_ring::stream::leftover`). After the greeting, it stops at the first invalid frame. If
/// the greeting was overwritten, it begins with the first frame that is followed only by valid
/// frames, and an output may begin in the middle of a line.
#[must_use]
pub fn recover(bytes: &[u8]) -> Outputs {
    let mut decoder = Decoder::default();
    decoder.push(bytes);
    if decoder.find_greeting().is_some() {
        return read(decoder).outputs;
    }
    // At most one incomplete frame precedes the first complete one.
    let positions = 0..bytes.len().min(2 * MAXIMUM_PAYLOAD);
    let attempts = positions
        .filter(|position| may_be_frame(&bytes[*position..]))
        .map(|position| {
            let mut decoder = Decoder::default();
            decoder.push(&bytes[position..]);
            read(decoder)
        });
    let mut valid = attempts.filter(|read| read.all_valid && read.frames > 1);
    valid.next().unwrap_or_default().outputs
}

/// The result of decoding.
#[derive(Debug, Default)]
struct Recovered {
    outputs: Outputs,
    frames: usize,
    /// Whether all frames are valid; the last one may be incomplete.
    all_valid: bool,
}

fn read(mut decoder: Decoder) -> Recovered {
    let mut recovered = Recovered::default();
    loop {
        match decoder.next_frame() {
            Ok(Some(frame)) => {
                recovered.frames += 1;
                if frame.kind == Kind::Output {
                    let output = recovered.outputs.entry(frame.process).or_default();
                    output.extend(frame.payload);
                }
            }
            Ok(None) => {
                recovered.all_valid = true;
                return recovered;
            }
            Err(_) => return recovered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, greeting};

    #[test]
    fn joins_outputs_and_ignores_an_incomplete_end() {
        let mut bytes = greeting([7; 8]).to_vec();
        for (kind, process, text) in [
            (Kind::Started, 1, "\u{1}\0\0\0"),
            (Kind::Output, 1, "one "),
            (Kind::Errors, 1, "not this"),
            (Kind::Output, 2, "another"),
            (Kind::Output, 1, "two"),
        ] {
            Frame::new(kind, process, text).write_to(&mut bytes);
        }
        let whole = bytes.len();
        Frame::new(Kind::Output, 1, "torn").write_to(&mut bytes);
        bytes.truncate(whole + 11);
        let wanted = BTreeMap::from([(1, b"one two".to_vec()), (2, b"another".to_vec())]);
        assert_eq!(recover(&bytes), wanted);
        assert!(recover(b"").is_empty());
    }

    #[test]
    fn without_a_greeting_begins_with_the_first_complete_frame() {
        let line = |number: u32| format!("{{\"Batch\":\"!#$ {number}\"}}\n");
        let mut bytes = Vec::new();
        for number in 0..400 {
            Frame::new(Kind::Output, 1, line(number)).write_to(&mut bytes);
        }
        let all: String = (0..400).map(line).collect();
        for lost in [1, 5, 9, 10, 100, 1000] {
            let outputs = recover(&bytes[lost..]);
            let output = String::from_utf8(outputs[&1].clone()).expect("text");
            assert!(all.ends_with(&output), "{lost}: {output}");
            assert!(all.len() - output.len() <= lost + 40, "{lost}: {output}");
        }
        // Bytes before an invalid frame are not used.
        bytes.splice(5000..5000, *b"nonsense");
        let outputs = recover(&bytes[1..]);
        let output = String::from_utf8(outputs[&1].clone()).expect("text");
        assert!(
            all.ends_with(&output) && output.len() < all.len() - 3000,
            "{output}"
        );
        bytes.extend(*b"nonsense");
        assert!(recover(&bytes[1..]).is_empty());
        assert!(recover(&[b'"'; 100_000]).is_empty());
    }
}
