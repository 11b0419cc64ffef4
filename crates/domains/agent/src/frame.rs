// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The format of the byte stream. Pure.
//!
//! A connection begins with a greeting from the client: eight fixed bytes and eight bytes that
//! identify the connection. The agent answers with the same sixteen bytes; after that, both send
//! frames. This skips data that an earlier connection left in a virtio-serial port, and allows the
//! client to repeat the greeting until it is answered.
//!
//! A frame is its kind (one byte), the number of the program (four bytes), the length of the
//! payload (four bytes, all little-endian) and the payload.

use crate::payloads::SEED;

/// First bytes of a greeting. No frame begins with the first byte.
pub(crate) const MAGIC: [u8; 8] = *b"\0rampart";

/// Length of a greeting in bytes.
pub(crate) const GREETING: usize = 16;

/// Maximum length of a payload, in bytes.
pub(crate) const MAXIMUM_PAYLOAD: usize = 32 * 1024;

/// Window of a program's standard input: the maximum number of unacknowledged bytes.
pub(crate) const WINDOW: usize = 256 * 1024;

/// Window of a program's output: the maximum number of bytes that are unacknowledged, or that wait
/// while no client is connected. A meter writes about 17 KB per second, so two minutes of its
/// output are kept.
pub(crate) const OUTPUT_WINDOW: usize = 2 * 1024 * 1024;

const HEADER: usize = 9;

macro_rules! kinds {
    ($($(#[$comment:meta])* $name:ident = $number:literal,)*) => {
        /// The kind of a frame.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Kind { $($(#[$comment])* $name = $number,)* }

        impl Kind {
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];

            fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}

kinds! {
    // From the client.
    /// Starts a program: an `AgentCommand` as JSON.
    Spawn = 1,
    /// Bytes for its standard input; an empty payload closes it.
    Input = 2,
    /// Additional window of a stream: the stream (1 output, 2 errors), and the number of bytes.
    Window = 3,
    /// A signal for the program: its number.
    Signal = 4,
    /// A new size of its terminal: rows, columns.
    Resize = 5,
    /// A stream that is no longer read: its number.
    Unread = 6,
    /// Kills the program and removes it.
    Forget = 7,
    /// Requests the time: a number that identifies the answer.
    Clock = 8,
    /// Ends all programs and powers off, or ends the agent.
    PowerOff = 9,
    /// Shows that the client is alive.
    Alive = 10,
    /// A signal for the program's process group: its number.
    SignalGroup = 11,
    /// Ends the session: the agent ends its programs, answers `Resting`, and waits for the next client. The machine is
    /// saved in this state.
    Rest = 12,
    /// The machine continues from a saved state: the real time in nanoseconds, and a seed.
    Continued = 13,
    // From the agent.
    /// An `AgentHello` as JSON; always the first frame.
    Hello = 33,
    /// The program runs: its process id.
    Started = 34,
    /// The program could not be started: the reason as text.
    NotStarted = 35,
    /// Bytes of its standard output; an empty payload is the end.
    Output = 36,
    /// Bytes of its standard error; an empty payload is the end.
    Errors = 37,
    /// Additional window of its standard input in bytes.
    InputWindow = 38,
    /// The program ended: its wait status.
    Exited = 39,
    /// The identifying number, and `CLOCK_MONOTONIC` in nanoseconds.
    Time = 40,
    /// No program runs, and the agent waits for the next client.
    Resting = 41,
    /// The clock and the random numbers are of the present: empty, or what failed as text.
    Adjusted = 42,
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    /// Number of the program; 0 if the frame concerns none.
    pub(crate) process: u32,
    pub(crate) payload: Vec<u8>,
}

/// The reason why bytes are not a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("a frame of unknown kind {0}")]
    Kind(u8),
    #[error("a frame of {0} bytes, more than the maximum")]
    Length(u32),
    #[error("a frame whose payload does not fit its kind")]
    Payload,
}

impl Frame {
    pub(crate) fn new(kind: Kind, process: u32, payload: impl Into<Vec<u8>>) -> Self {
        Self {
            kind,
            process,
            payload: payload.into(),
        }
    }

    /// Creates a frame that extends the window of a stream by `bytes`.
    pub(crate) fn window(process: u32, stream: u8, bytes: u32) -> Self {
        let mut payload = vec![stream];
        payload.extend(bytes.to_le_bytes());
        Self::new(Kind::Window, process, payload)
    }

    /// Appends the bytes of the frame.
    pub(crate) fn write_to(&self, bytes: &mut impl Extend<u8>) {
        debug_assert!(self.payload.len() <= MAXIMUM_PAYLOAD);
        bytes.extend([self.kind as u8]);
        bytes.extend(self.process.to_le_bytes());
        // No payload is longer than `MAXIMUM_PAYLOAD`.
        bytes.extend((self.payload.len() as u32).to_le_bytes());
        bytes.extend(self.payload.iter().copied());
    }

    /// Parses the real time and the seed of a machine that continues.
    pub(crate) fn time_and_seed(&self) -> Result<(u64, [u8; SEED]), Malformed> {
        let parts = self.payload.split_first_chunk::<8>();
        let (time, seed) = parts.ok_or(Malformed::Payload)?;
        let seed = seed.try_into().map_err(|_| Malformed::Payload)?;
        Ok((u64::from_le_bytes(*time), seed))
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.payload.len());
        self.write_to(&mut bytes);
        bytes
    }

    /// Returns the payload as one number.
    pub(crate) fn number(&self) -> Result<u32, Malformed> {
        let bytes = self.payload.as_slice().try_into();
        bytes
            .map(u32::from_le_bytes)
            .map_err(|_| Malformed::Payload)
    }

    /// Returns the payload as a stream and a number.
    pub(crate) fn stream_and_number(&self) -> Result<(u8, u32), Malformed> {
        let (stream, number) = self.payload.split_first().ok_or(Malformed::Payload)?;
        let number = number.try_into().map_err(|_| Malformed::Payload)?;
        Ok((*stream, u32::from_le_bytes(number)))
    }
}

/// Returns a greeting with the connection's identifying bytes.
pub(crate) fn greeting(own: [u8; 8]) -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..].copy_from_slice(&own);
    bytes
}

/// Returns whether these bytes may begin with a frame of the agent: a valid kind and a valid
/// length.
pub(crate) fn may_be_frame(bytes: &[u8]) -> bool {
    let Some(header) = bytes.first_chunk::<HEADER>() else {
        return false;
    };
    let [kind, _, _, _, _, length @ ..] = *header;
    Kind::from_number(kind).is_some_and(|kind| kind as u8 >= Kind::Hello as u8)
        && u32::from_le_bytes(length) as usize <= MAXIMUM_PAYLOAD
}

/// Decodes a byte stream into frames.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
    /// Number of `bytes` that were decoded.
    taken: usize,
}

impl Decoder {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        } else if self.taken > MAXIMUM_PAYLOAD {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// Returns the next frame if it is complete.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, Malformed> {
        let rest = self.rest();
        let Some(&first) = rest.first() else {
            return Ok(None);
        };
        let kind = Kind::from_number(first).ok_or(Malformed::Kind(first))?;
        let Some((header, payload)) = rest.split_at_checked(HEADER) else {
            return Ok(None);
        };
        let number = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (process, length) = (number(1), number(5));
        if length as usize > MAXIMUM_PAYLOAD {
            return Err(Malformed::Length(length));
        }
        let Some(payload) = payload.get(..length as usize) else {
            return Ok(None);
        };
        let frame = Frame::new(kind, process, payload);
        self.taken += HEADER + length as usize;
        Ok(Some(frame))
    }

    /// Searches for a greeting, skips the bytes before it, and returns its identifying bytes.
    pub(crate) fn find_greeting(&mut self) -> Option<[u8; 8]> {
        let rest = self.rest();
        let found = rest.windows(MAGIC.len()).position(|bytes| bytes == MAGIC);
        match found {
            Some(at) => {
                let own = rest.get(at + MAGIC.len()..at + GREETING);
                let own: Option<[u8; 8]> = own.and_then(|own| own.try_into().ok());
                self.taken += at;
                if own.is_some() {
                    self.taken += GREETING;
                }
                own
            }
            None => {
                // The end may be the beginning of a greeting.
                let keep = rest.len().min(MAGIC.len() - 1);
                self.taken = self.bytes.len() - keep;
                None
            }
        }
    }

    /// Returns whether a greeting, or the beginning of one, is next.
    pub(crate) fn greeting_is_next(&self) -> bool {
        let rest = self.rest();
        let length = rest.len().min(MAGIC.len());
        length > 0 && rest[..length] == MAGIC[..length]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames() -> impl Strategy<Value = Vec<Frame>> {
        let one =
            (0..Kind::ALL.len(), any::<u32>(), 0..4usize).prop_flat_map(|(kind, process, size)| {
                let size = [0, 5, 300, MAXIMUM_PAYLOAD][size];
                prop::collection::vec(any::<u8>(), size..=size)
                    .prop_map(move |payload| Frame::new(Kind::ALL[kind], process, payload))
            });
        prop::collection::vec(one, 0..8)
    }

    fn all(decoder: &mut Decoder) -> Vec<Frame> {
        std::iter::from_fn(|| decoder.next_frame().expect("a valid frame")).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn decodes_frames_in_any_pieces(frames in frames(), piece in 1..70_000usize) {
            let mut bytes = Vec::new();
            for frame in &frames {
                frame.write_to(&mut bytes);
            }
            let (mut decoder, mut back) = (Decoder::default(), Vec::new());
            for piece in bytes.chunks(piece) {
                decoder.push(piece);
                back.extend(all(&mut decoder));
            }
            prop_assert_eq!(back, frames);
        }

        #[test]
        fn decodes_any_bytes_or_fails(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next_frame() {}
            while decoder.find_greeting().is_some() {}
        }

        #[test]
        fn finds_a_greeting_after_any_bytes(
            before in prop::collection::vec(1u8..=255, 0..300),
            own in any::<[u8; 8]>(),
            piece in 1..40usize,
        ) {
            let mut bytes = before;
            bytes.extend(greeting(own));
            Frame::new(Kind::Alive, 0, []).write_to(&mut bytes);
            let (mut decoder, mut found) = (Decoder::default(), None);
            for piece in bytes.chunks(piece) {
                decoder.push(piece);
                found = found.or_else(|| decoder.find_greeting());
            }
            prop_assert_eq!(found, Some(own));
            prop_assert_eq!(all(&mut decoder), vec![Frame::new(Kind::Alive, 0, [])]);
        }
    }

    #[test]
    fn no_frame_begins_like_a_greeting() {
        for kind in Kind::ALL {
            assert_ne!(*kind as u8, MAGIC[0]);
        }
        let mut decoder = Decoder::default();
        decoder.push(&greeting([1; 8]));
        assert!(decoder.greeting_is_next());
        assert_eq!(decoder.next_frame(), Err(Malformed::Kind(0)));
    }

    #[test]
    fn refuses_a_length_beyond_the_maximum() {
        let mut bytes = Frame::new(Kind::Input, 1, []).to_bytes();
        bytes[5..9].copy_from_slice(&(MAXIMUM_PAYLOAD as u32 + 1).to_le_bytes());
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        assert_eq!(
            decoder.next_frame(),
            Err(Malformed::Length(MAXIMUM_PAYLOAD as u32 + 1))
        );
    }
}
