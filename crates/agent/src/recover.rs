// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a far side said, when there is no near side any more to hear it.

use std::collections::BTreeMap;

use crate::frame::{Decoder, Kind};

/// The standard output of each program, by its number, out of all bytes that a far side wrote in one
/// conversation: as a machine's memory still has them when the root is gone
/// (`rampart_ring::stream::leftover`). What follows something that is no frame is not read.
#[must_use]
pub fn recover(bytes: &[u8]) -> BTreeMap<u32, Vec<u8>> {
    let mut outputs: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let mut decoder = Decoder::default();
    decoder.push(bytes);
    if decoder.find_greeting().is_none() {
        return outputs;
    }
    while let Ok(Some(frame)) = decoder.next_frame() {
        if frame.kind == Kind::Output {
            outputs
                .entry(frame.process)
                .or_default()
                .extend(frame.payload);
        }
    }
    outputs
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
        assert!(recover(&bytes[1..]).is_empty(), "no greeting");
        assert!(recover(b"").is_empty());
    }
}
