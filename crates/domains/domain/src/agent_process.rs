// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that the agent in a domain with a kernel of its own has started.

use std::thread;
use std::time::Duration;

use rampart_agent::AgentProcess;

use crate::InsideProcess;
use crate::session::{MeterProcess, Streams};

/// How long an agent may take to end a program that was killed.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// A program that was started, as a conversation needs it.
pub(crate) fn started(started: AgentProcess) -> (Streams, Box<dyn MeterProcess>) {
    let streams = Streams {
        input: Some(Box::new(started.stdin)),
        output: Some(Box::new(started.stdout)),
        errors: Some(Box::new(started.stderr)),
    };
    (streams, Box::new(ProgramInside(Some(started.handle))))
}

/// A program whose streams somebody else gets.
pub(crate) fn kept(streams: Streams, program: Box<dyn MeterProcess>) -> InsideProcess {
    InsideProcess {
        input: streams.input.unwrap_or_else(|| Box::new(std::io::sink())),
        output: streams.output.unwrap_or_else(|| Box::new(std::io::empty())),
        handle: Box::new(KeptAlive {
            program,
            _errors: streams.errors.map(drain),
        }),
    }
}

/// A program inside, as a conversation sees it.
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
        // A program, or a guest, that is gone already cannot be killed.
        let _ = handle.signal(libc::SIGKILL);
        match handle.wait(KILL_PATIENCE) {
            Ok(status) => status.map(|status| status.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }
}

/// A program inside whose streams somebody else has.
struct KeptAlive {
    program: Box<dyn MeterProcess>,
    _errors: Option<thread::JoinHandle<()>>,
}

impl Drop for KeptAlive {
    fn drop(&mut self) {
        let _ = self.program.kill();
    }
}

/// Reads what nobody wants, so that the program is not held up by it.
fn drain(mut errors: Box<dyn std::io::Read + Send>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        // It ends with the program.
        let _ = std::io::copy(&mut errors, &mut std::io::sink());
    })
}
