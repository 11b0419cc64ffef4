// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves bytes between shared memory and a socket. Nobody is woken by a change of memory, so it is
//! looked at: every millisecond while something is said, ever less often while nothing is.

use std::io;
use std::net::Shutdown;
use std::num::NonZeroU64;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use rampart_ring::stream::{Lost, Side};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Between two looks while something is said.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// While nothing is. What is measured beside it feels each look as a timer's interrupt.
const LONGEST_PAUSE: Duration = Duration::from_millis(32);
/// At the end the other side may take for so long what was said last.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// What is moved at once, in bytes.
const CHUNK: usize = 16 * 1024;

/// A call over memory that two share. It ends when its socket is closed, and its socket is at its end
/// when the other side goes away.
#[derive(Debug)]
pub struct MemoryLine {
    thread: std::thread::JoinHandle<()>,
    socket: UnixStream,
}

impl MemoryLine {
    /// Calls over two sections (`rampart_ring::stream`): `own` is written here, `other` by the other
    /// side. What is said goes through the socket, at which [`crate::Agent::connect`] can speak.
    ///
    /// # Errors
    /// If there is no socket or thread.
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
                if let Some(mut side) = Side::call(own.as_ref(), other.as_ref(), new_number()) {
                    move_bytes(&mut side, &far);
                }
                // A clone of it is kept, which would keep it open.
                let _ = far.shutdown(Shutdown::Both);
            })?;
        Ok((near, Self { thread, socket }))
    }

    /// Ends the call, if it has not ended, and comes back when the memory is touched no more: within
    /// a second or two.
    pub fn close(self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        let _ = self.thread.join();
    }
}

/// Answers a call, if there is one.
pub(crate) fn answer(
    own: &'static [AtomicU64],
    other: &'static [AtomicU64],
) -> io::Result<Option<UnixStream>> {
    let Some(mut side) = Side::answer(own, other, new_number()) else {
        return Ok(None);
    };
    let (near, far) = UnixStream::pair()?;
    far.set_nonblocking(true)?;
    std::thread::Builder::new()
        .name("agent-memory".to_owned())
        .spawn(move || move_bytes(&mut side, &far))?;
    Ok(Some(near))
}

/// A number that no other conversation has.
fn new_number() -> NonZeroU64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    let number = std::hash::RandomState::new().build_hasher().finish();
    NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN)
}

/// Bytes on their way.
struct Passing {
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
}

impl Passing {
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

/// What became of one look at a socket.
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

/// Moves bytes both ways until the socket or the conversation ends.
fn move_bytes(side: &mut Side<'_>, socket: &UnixStream) {
    let (mut going, mut coming) = (Passing::new(), Passing::new());
    let mut pause = SHORTEST_PAUSE;
    loop {
        let step = match step(side, socket, &mut going, &mut coming) {
            Ok(step) => step,
            Err(Lost::Gone | Lost::Damaged) => return,
        };
        match step {
            Moved::Bytes(_) => pause = SHORTEST_PAUSE,
            Moved::Nothing => pause = (pause * 2).min(LONGEST_PAUSE),
            Moved::Ended => {
                say_last_words(side);
                return;
            }
        }
        if matches!(step, Moved::Nothing) {
            wait(socket, going.is_empty(), pause);
        }
    }
}

fn step(
    side: &mut Side<'_>,
    socket: &UnixStream,
    going: &mut Passing,
    coming: &mut Passing,
) -> Result<Moved, Lost> {
    let mut any = 0;
    let mut ended = false;
    if going.is_empty() {
        match moved(rustix::io::read(socket, &mut going.bytes[..])) {
            Moved::Bytes(count) => going.filled(count),
            Moved::Nothing => {}
            Moved::Ended => ended = true,
        }
    }
    if !going.is_empty() {
        let count = side.write(going.rest())?;
        going.begin += count;
        any += count;
    }
    if coming.is_empty() {
        let count = side.read(&mut coming.bytes)?;
        coming.filled(count);
    }
    if !coming.is_empty() {
        match moved(rustix::io::write(socket, coming.rest())) {
            Moved::Bytes(count) => {
                coming.begin += count;
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

/// Until the socket has something, where that can be taken, or the pause is over.
fn wait(socket: &UnixStream, takes: bool, pause: Duration) {
    let events = if takes {
        PollFlags::IN
    } else {
        PollFlags::empty()
    };
    let mut polled = [PollFd::new(socket, events)];
    let timeout = Timespec::try_from(pause).ok();
    if !matches!(poll(&mut polled, timeout.as_ref()), Ok(0)) && !takes {
        // It has ended, which is seen when it is read.
        std::thread::sleep(pause);
    }
}

/// What was said at the end should still be heard, as that the machine is to be turned off.
fn say_last_words(side: &mut Side<'_>) {
    let until = Instant::now() + LAST_WORDS;
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
    fn what_is_written_to_a_socket_comes_out_of_the_other() {
        struct Whole(&'static [AtomicU64]);
        impl AsRef<[AtomicU64]> for Whole {
            fn as_ref(&self) -> &[AtomicU64] {
                self.0
            }
        }
        let (here, there) = (section(8 + 64), section(8 + 64));
        let (mut near, line) = MemoryLine::call(Whole(here), Whole(there)).expect("called");
        let mut far = None;
        for _ in 0..1000 {
            far = answer(there, here).expect("looked");
            if far.is_some() {
                break;
            }
            std::thread::sleep(SHORTEST_PAUSE);
        }
        let mut far = far.expect("answered");
        let text: Vec<u8> = (0..100_000_u32).map(|index| index as u8).collect();
        let said = text.clone();
        let echo = std::thread::spawn(move || {
            let mut heard = vec![0; 100_000];
            far.read_exact(&mut heard).expect("heard");
            far.write_all(&heard).expect("said");
            let mut more = Vec::new();
            far.read_to_end(&mut more).expect("the end");
            more
        });
        let mut writer = near.try_clone().expect("again");
        let writing = std::thread::spawn(move || writer.write_all(&said));
        let mut heard = vec![0; text.len()];
        near.read_exact(&mut heard).expect("heard");
        writing.join().expect("well").expect("said");
        assert_eq!(heard, text);
        near.write_all(b"goodbye").expect("said");
        drop(near);
        assert_eq!(
            echo.join().expect("well"),
            b"goodbye",
            "the last words are heard"
        );
        line.close();
    }

    #[test]
    fn a_call_into_memory_without_room_ends_at_once() {
        let (mut near, line) = MemoryLine::call(Words(shared(4)), Words(shared(4))).expect("one");
        let mut nothing = Vec::new();
        assert_eq!(near.read_to_end(&mut nothing).expect("the end"), 0);
        line.close();
    }
}
