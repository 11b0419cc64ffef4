// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that a guest agent started.

use std::thread;
use std::time::Duration;

use rampart_agent::AgentProcess;

use crate::InsideProcess;
use crate::session::{MeterProcess, MeterStreams};

/// Time limit for the agent to end a killed program.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Splits a started program into its streams and its process.
pub(crate) fn started(started: AgentProcess) -> (MeterStreams, Box<dyn MeterProcess>) {
    let streams = MeterStreams {
        input: Some(Box::new(started.stdin)),
        output: Some(Box::new(started.stdout)),
        errors: Some(Box::new(started.stderr)),
    };
    (streams, Box::new(ProgramInside(Some(started.handle))))
}

/// Returns a program for a caller that keeps its input and output; its standard error is discarded.
pub(crate) fn kept(streams: MeterStreams, program: Box<dyn MeterProcess>) -> InsideProcess {
    InsideProcess {
        input: streams.input.unwrap_or_else(|| Box::new(std::io::sink())),
        output: streams.output.unwrap_or_else(|| Box::new(std::io::empty())),
        handle: Box::new(KeptAlive {
            program,
            _errors: streams.errors.map(drain),
        }),
    }
}

/// A program inside the domain; `None` once it was closed.
struct ProgramInside(Option<rampart_agent::AgentHandle>);

impl MeterProcess for ProgramInside {
    fn id(&self) -> u32 {
        self.0
            .as_ref()
            .and_then(rampart_agent::AgentHandle::id)
            .unwrap_or(0)
    }

    fn exit_status(&mut self) -> Option<String> {
        let handle = self.0.as_ref()?;
        match handle.wait(Duration::ZERO) {
            Ok(status) => status.map(|status| status.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    fn kill(&mut self) -> Option<String> {
        let handle = self.0.take()?;
        // Fails if the program or the guest has already ended.
        let _ = handle.signal(libc::SIGKILL);
        match handle.wait(KILL_TIMEOUT) {
            Ok(status) => status.map(|status| status.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }
}

/// Keeps a program alive whose streams belong to a caller.
struct KeptAlive {
    program: Box<dyn MeterProcess>,
    _errors: Option<thread::JoinHandle<()>>,
}

impl Drop for KeptAlive {
    fn drop(&mut self) {
        let _ = self.program.kill();
    }
}

/// Discards an output, so that the program does not block on a full pipe.
fn drain(mut errors: Box<dyn std::io::Read + Send>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        // The copy ends with the program.
        let _ = std::io::copy(&mut errors, &mut std::io::sink());
    })
}
