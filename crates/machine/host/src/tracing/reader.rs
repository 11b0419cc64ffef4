// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the trace while it grows, on other CPUs than the traced ones.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rampart_model::{CpuId, CpuSet};
use rustix::fs::{Mode, OFlags, open};

use super::assemble::Assembler;
use crate::kernel::{Kernel as _, RunningKernel};

/// Interval of reading.
const PAUSE: Duration = Duration::from_millis(100);

/// A thread that reads the trace.
#[derive(Debug)]
pub(super) struct Reader {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<BTreeMap<CpuId, Assembler>>>,
}

struct Pipe {
    cpu: CpuId,
    file: File,
    /// The start of an incomplete line.
    rest: Vec<u8>,
    assembler: Assembler,
}

impl Reader {
    /// Starts to read the traces of `cpus` in an instance, on the CPUs of `housekeeping` if there are
    /// any.
    pub(super) fn start(instance: &Path, cpus: &CpuSet, housekeeping: &CpuSet) -> io::Result<Self> {
        let mut pipes = Vec::with_capacity(cpus.len());
        for cpu in cpus.iter() {
            let path = instance.join(format!("per_cpu/cpu{cpu}/trace_pipe"));
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            pipes.push(Pipe {
                cpu,
                file: open(path, flags, Mode::empty())?.into(),
                rest: Vec::new(),
                assembler: Assembler::default(),
            });
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (stopping, housekeeping) = (Arc::clone(&stop), housekeeping.clone());
        let thread = std::thread::Builder::new()
            .name("trace-reader".to_owned())
            .spawn(move || {
                if !housekeeping.is_empty()
                    && let Ok(thread) =
                        u32::try_from(rustix::thread::gettid().as_raw_nonzero().get())
                {
                    // On other CPUs it works too, with more disturbance.
                    let _ = RunningKernel.set_affinity(thread, &housekeeping);
                }
                loop {
                    // Read once more after the request to stop.
                    let last = stopping.load(Ordering::Acquire);
                    for pipe in &mut pipes {
                        pipe.drain();
                    }
                    if last {
                        break;
                    }
                    std::thread::park_timeout(PAUSE);
                }
                pipes
                    .into_iter()
                    .map(|pipe| (pipe.cpu, pipe.assembler))
                    .collect()
            })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Reads the rest and returns everything. Call it when tracing has stopped.
    pub(super) fn finish(&mut self) -> BTreeMap<CpuId, Assembler> {
        self.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else {
            return BTreeMap::new();
        };
        thread.thread().unpark();
        thread.join().unwrap_or_default()
    }
}

impl Pipe {
    /// Reads until no data is left. An error ends it too; missing events are reported as
    /// unexplained.
    fn drain(&mut self) {
        let mut bytes = vec![0; 1 << 16];
        loop {
            match self.file.read(&mut bytes) {
                Ok(0) => return,
                Ok(count) => {
                    self.rest
                        .extend_from_slice(bytes.get(..count).unwrap_or_default());
                    self.lines();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    fn lines(&mut self) {
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return;
        };
        let left = self.rest.split_off(end + 1);
        let whole = std::mem::replace(&mut self.rest, left);
        for line in String::from_utf8_lossy(&whole).lines() {
            self.assembler.take(line);
        }
    }
}
