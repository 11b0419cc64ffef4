// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves bytes between shared memory and a socket. A change of memory wakes no thread, so the
//! memory is polled: every millisecond while data arrives, less often otherwise.

use std::io;
use std::net::Shutdown;
use std::num::NonZeroU64;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use rampart_ring::stream::{Lost, StreamSide};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Interval between two polls while data arrives.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// Maximum interval while no data arrives. The timer interrupt of each poll disturbs measurements on
/// the same CPU.
const LONGEST_PAUSE: Duration = Duration::from_millis(32);
/// Timeout for the other side to read the last data at the end.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
/// Maximum number of bytes moved at once.
const CHUNK: usize = 16 * 1024;

/// A connection over shared memory. It ends when its socket is closed; its socket ends when the
/// other side disconnects.
#[derive(Debug)]
pub struct MemoryConnection {
    thread: std::thread::JoinHandle<()>,
    socket: UnixStream,
}

impl MemoryConnection {
    /// Connects over two sections (`rampart_ring::stream`): this side writes `own`, the other side
    /// writes `other`. Returns a socket for the data, for [`crate::Agent::connect`].
    ///
    /// # Errors
    /// Returns an error if no socket or thread can be created.
    pub fn call<Memory>(own: Memory, other: Memory) -> io::Result<(UnixStream, Self)>
    where
        Memory: AsRef<[AtomicU64]> + Send + 'static,
    {
        let (near, far) = UnixStream::pair()?;
        far.set_nonblocking(true)?;
        let socket = far.try_clone()?;
        let thread = std::thread::Builder::new()
            .name("agent-memory".to_owned())
            .spawn(move || {
                if let Some(mut side) = StreamSide::call(own.as_ref(), other.as_ref(), new_number())
                {
                    move_bytes(&mut side, &far);
                }
                // The other thread holds a clone, which would keep the socket open.
                let _ = far.shutdown(Shutdown::Both);
            })?;
        Ok((near, Self { thread, socket }))
    }

    /// Ends the connection and returns when the memory is no longer accessed: within two seconds.
    pub fn close(self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        let _ = self.thread.join();
    }
}

/// Answers a connection request, if there is one.
pub(crate) fn answer(
    own: &'static [AtomicU64],
    other: &'static [AtomicU64],
) -> io::Result<Option<UnixStream>> {
    let Some(mut side) = StreamSide::answer(own, other, new_number()) else {
        return Ok(None);
    };
    let (near, far) = UnixStream::pair()?;
    far.set_nonblocking(true)?;
    std::thread::Builder::new()
        .name("agent-memory".to_owned())
        .spawn(move || move_bytes(&mut side, &far))?;
    Ok(Some(near))
}

/// Returns a number that identifies a conversation.
fn new_number() -> NonZeroU64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    let number = std::hash::RandomState::new().build_hasher().finish();
    NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN)
}

/// Bytes between the socket and the memory.
struct Buffer {
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
}

impl Buffer {
    fn new() -> Self {
        Self {
            bytes: vec![0; CHUNK],
            begin: 0,
            end: 0,
        }
    }

    const fn is_empty(&self) -> bool {
        self.begin == self.end
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.begin..self.end]
    }

    fn filled(&mut self, count: usize) {
        (self.begin, self.end) = (0, count);
    }
}

/// The result of polling a socket.
enum Moved {
    Bytes(usize),
    Nothing,
    Ended,
}

fn moved(result: Result<usize, Errno>) -> Moved {
    match result {
        Ok(0) => Moved::Ended,
        Ok(count) => Moved::Bytes(count),
        Err(Errno::AGAIN | Errno::INTR) => Moved::Nothing,
        Err(_) => Moved::Ended,
    }
}

/// Moves bytes in both directions until the socket or the conversation ends.
fn move_bytes(side: &mut StreamSide<'_>, socket: &UnixStream) {
    let (mut outgoing, mut incoming) = (Buffer::new(), Buffer::new());
    let mut pause = SHORTEST_PAUSE;
    loop {
        let step = match step(side, socket, &mut outgoing, &mut incoming) {
            Ok(step) => step,
            Err(Lost::Gone | Lost::Damaged) => return,
        };
        match step {
            Moved::Bytes(_) => pause = SHORTEST_PAUSE,
            Moved::Nothing => pause = (pause * 2).min(LONGEST_PAUSE),
            Moved::Ended => {
                send_remaining(side);
                return;
            }
        }
        if matches!(step, Moved::Nothing) {
            wait(socket, outgoing.is_empty(), pause);
        }
    }
}

fn step(
    side: &mut StreamSide<'_>,
    socket: &UnixStream,
    outgoing: &mut Buffer,
    incoming: &mut Buffer,
) -> Result<Moved, Lost> {
    let mut any = 0;
    let mut ended = false;
    if outgoing.is_empty() {
        match moved(rustix::io::read(socket, &mut outgoing.bytes[..])) {
            Moved::Bytes(count) => outgoing.filled(count),
            Moved::Nothing => {}
            Moved::Ended => ended = true,
        }
    }
    if !outgoing.is_empty() {
        let count = side.write(outgoing.rest())?;
        outgoing.begin += count;
        any += count;
    }
    if incoming.is_empty() {
        let count = side.read(&mut incoming.bytes)?;
        incoming.filled(count);
    }
    if !incoming.is_empty() {
        match moved(rustix::io::write(socket, incoming.rest())) {
            Moved::Bytes(count) => {
                incoming.begin += count;
                any += count;
            }
            Moved::Nothing => {}
            Moved::Ended => ended = true,
        }
    }
    Ok(match any {
        _ if ended => Moved::Ended,
        0 => Moved::Nothing,
        _ => Moved::Bytes(any),
    })
}

/// Waits until the pause is over, or the socket has data and the last data was forwarded.
fn wait(socket: &UnixStream, outgoing_is_empty: bool, pause: Duration) {
    let events = if outgoing_is_empty {
        PollFlags::IN
    } else {
        PollFlags::empty()
    };
    let mut polled = [PollFd::new(socket, events)];
    let timeout = Timespec::try_from(pause).ok();
    if !matches!(poll(&mut polled, timeout.as_ref()), Ok(0)) && !outgoing_is_empty {
        // The socket has ended, which the next read detects.
        std::thread::sleep(pause);
    }
}

/// Sends the remaining data before the end, for example the request to power off.
fn send_remaining(side: &mut StreamSide<'_>) {
    let until = Instant::now() + DRAIN_LIMIT;
    while matches!(side.is_taken(), Ok(false)) && Instant::now() < until {
        std::thread::sleep(SHORTEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::sync::Arc;

    use super::*;

    struct Words(Arc<Vec<AtomicU64>>);

    impl AsRef<[AtomicU64]> for Words {
        fn as_ref(&self) -> &[AtomicU64] {
            &self.0
        }
    }

    fn section(words: usize) -> &'static [AtomicU64] {
        let words: Vec<_> = (0..words).map(|_| AtomicU64::new(0)).collect();
        Box::leak(words.into_boxed_slice())
    }

    fn shared(words: usize) -> Arc<Vec<AtomicU64>> {
        Arc::new((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    #[test]
    fn moves_bytes_between_two_sockets() {
        struct Whole(&'static [AtomicU64]);
        impl AsRef<[AtomicU64]> for Whole {
            fn as_ref(&self) -> &[AtomicU64] {
                self.0
            }
        }
        let (own, other) = (section(8 + 64), section(8 + 64));
        let (mut near, line) = MemoryConnection::call(Whole(own), Whole(other)).expect("called");
        let mut far = None;
        for _ in 0..1000 {
            far = answer(other, own).expect("a section");
            if far.is_some() {
                break;
            }
            std::thread::sleep(SHORTEST_PAUSE);
        }
        let mut far = far.expect("answered");
        let text: Vec<u8> = (0..100_000_u32).map(|index| index as u8).collect();
        let sent = text.clone();
        let echo = std::thread::spawn(move || {
            let mut received = vec![0; 100_000];
            far.read_exact(&mut received).expect("received");
            far.write_all(&received).expect("sent");
            let mut more = Vec::new();
            far.read_to_end(&mut more).expect("the end");
            more
        });
        let mut writer = near.try_clone().expect("a clone");
        let writing = std::thread::spawn(move || writer.write_all(&sent));
        let mut received = vec![0; text.len()];
        near.read_exact(&mut received).expect("received");
        writing.join().expect("no panic").expect("sent");
        assert_eq!(received, text);
        near.write_all(b"goodbye").expect("sent");
        drop(near);
        assert_eq!(
            echo.join().expect("no panic"),
            b"goodbye",
            "the last bytes arrive"
        );
        line.close();
    }

    #[test]
    fn connecting_over_too_small_memory_ends_at_once() {
        let (mut near, line) =
            MemoryConnection::call(Words(shared(4)), Words(shared(4))).expect("a socket");
        let mut received = Vec::new();
        assert_eq!(near.read_to_end(&mut received).expect("the end"), 0);
        line.close();
    }
}
