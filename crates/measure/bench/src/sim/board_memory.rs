// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of a board as a file of this process (memfd_create(2)), by which its agent is reached: a board has no
//! virtio devices, and memory loses no data.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rampart_agent::{MemoryConnection, MemoryRange};
use rampart_ring::mapping::SharedMapping;
use rustix::fs::{MemfdFlags, memfd_create};

use super::architecture::AgentMemory;
use super::error::SimError;

/// The memory of one board.
#[derive(Debug)]
pub(super) struct BoardMemory {
    file: File,
    agent: AgentMemory,
}

impl BoardMemory {
    /// Creates memory of this size.
    ///
    /// # Errors
    /// Returns the errors of memfd_create(2) and ftruncate(2).
    pub(super) fn new(mebibytes: u64, agent: AgentMemory) -> Result<Self, SimError> {
        let name = "rampart-board";
        let failed = |error| SimError::file("create memory", name.as_ref())(error);
        let file = memfd_create(name, MemfdFlags::CLOEXEC);
        let file = File::from(file.map_err(|error| failed(error.into()))?);
        file.set_len(mebibytes << 20).map_err(failed)?;
        Ok(Self { file, agent })
    }

    /// Returns a path by which another process of the same user opens it while this value lives.
    pub(super) fn path(&self) -> PathBuf {
        let (process, number) = (std::process::id(), self.file.as_raw_fd());
        PathBuf::from(format!("/proc/{process}/fd/{number}"))
    }

    /// Calls the agent. The stream waits for its answer.
    ///
    /// # Errors
    /// Returns an error if the memory cannot be mapped, or a thread cannot be started.
    pub(super) fn call(&self) -> Result<(UnixStream, MemoryConnection), SimError> {
        let path = self.path();
        let failed = || SimError::file("use as the memory of the board", &path);
        let map = |range: MemoryRange, writable| {
            let offset = range.start - self.agent.memory_start;
            SharedMapping::new(&self.file, offset, range.bytes as usize, writable)
        };
        let own = map(self.agent.of_client(), true).map_err(failed())?;
        let other = map(self.agent.of_agent(), false).map_err(failed())?;
        MemoryConnection::call(own, other).map_err(failed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::fs::FileExt as _;
    use std::time::{Duration, Instant};

    #[test]
    fn data_is_in_the_file_that_the_board_opens() {
        let agent = AgentMemory {
            memory_start: 0x4000_0000,
            start: 0x4010_0000,
        };
        let memory = BoardMemory::new(4, agent).expect("memory");
        let (mut stream, line) = memory.call().expect("called");
        stream.write_all(b"a greeting").expect("written");
        let file = File::open(memory.path()).expect("opened by its path");
        let until = Instant::now() + Duration::from_secs(60);
        let mut bytes = vec![0; 4096];
        while !bytes.windows(10).any(|found| found == b"a greeting") {
            assert!(Instant::now() < until, "no data in the client's half");
            std::thread::sleep(Duration::from_millis(1));
            file.read_exact_at(&mut bytes, 0x20_0000).expect("read");
        }
        line.close();
    }
}
