// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a far side said, when there is no near side any more to hear it.

use std::collections::BTreeMap;

use crate::frame::{Decoder, Kind, LONGEST, may_be_frame};

/// The standard output of each program, by its number.
type Outputs = BTreeMap<u32, Vec<u8>>;

/// The standard output of each program, by its number, out of the bytes that a far side wrote last in
/// one conversation: as a machine's memory still has them when the root is gone
/// (`rampart_ring::stream::leftover`). Behind its greeting nothing is read that follows something that is no
/// frame. Where the greeting is no longer among them, it begins with the first frame behind which there
/// are frames alone, and an output may begin in the middle of a line.
#[must_use]
pub fn recover(bytes: &[u8]) -> Outputs {
    let mut decoder = Decoder::default();
    decoder.push(bytes);
    if decoder.find_greeting().is_some() {
        return read(decoder).outputs;
    }
    // The first whole frame begins behind a torn one at most.
    let locations = 0..bytes.len().min(2 * LONGEST);
    let tries = locations
        .filter(|location| may_be_frame(&bytes[*location..]))
        .map(|location| {
            let mut decoder = Decoder::default();
            decoder.push(&bytes[location..]);
            read(decoder)
        });
    let mut believed = tries.filter(|read| read.to_the_end && read.frames > 1);
    believed.next().unwrap_or_default().outputs
}

/// What a decoder had.
#[derive(Debug, Default)]
struct Recovered {
    outputs: Outputs,
    frames: usize,
    /// Nothing was there that is no frame; the last one may be torn.
    to_the_end: bool,
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
                recovered.to_the_end = true;
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
    fn outputs_are_put_together_and_a_torn_end_is_left() {
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
    fn without_the_greeting_it_begins_with_the_first_whole_frame() {
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
        // What is before something that is no frame is not believed.
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
