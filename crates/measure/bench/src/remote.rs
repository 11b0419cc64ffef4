// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines that can run programs.

use std::time::{Duration, Instant};

use rampart_agent::{Agent, AgentError};
use rampart_model::Bench;

use crate::BenchError;
use crate::sim::{Joined, Loss, Sim};

/// A machine that can run programs until this value is dropped.
pub trait BenchMachine: std::fmt::Debug {
    /// Returns its name in messages: `ssh:HOST`, `sim`, `sim:aarch64`.
    fn name(&self) -> String;

    /// Returns the agent that starts programs there.
    fn agent(&self) -> &Agent;

    /// Returns the directory there for copied programs. It is removed when this value is dropped or
    /// this process ends.
    fn directory(&self) -> &str;

    /// Converts an error of the agent, and adds the reason if the machine was lost.
    fn explain(&self, error: AgentError) -> BenchError;
}

/// A machine that runs an evaluation, and whose kernel may panic at its end.
pub trait EvaluationBench: BenchMachine + Sync {
    /// Returns the description of the machine for the evaluation document.
    fn bench(&self) -> Bench;

    /// Requests parts of its memory, by physical address and length in bytes. They are read when its kernel has
    /// panicked, if its memory can be read from outside.
    fn read_at_end(&self, spans: Vec<(u64, u64)>);

    /// Waits for at most `limit` until the machine is lost. Its last output arrived at `last_output`.
    fn wait_for_crash(&self, last_output: Instant, limit: Duration) -> CrashEvidence;
}

/// What is known from outside of a machine whose kernel panicked.
#[derive(Debug)]
pub struct CrashEvidence {
    /// The time since the machine was lost, or since its last output if that moment is unknown.
    pub observed: Duration,
    /// The source that confirms the crash; `None` if it is not confirmed.
    pub confirmed: Option<String>,
    /// The requested memory, by address.
    pub memory: Vec<(u64, Vec<u8>)>,
}

impl BenchMachine for Sim {
    fn name(&self) -> String {
        self.architecture().bench_name()
    }

    fn agent(&self) -> &Agent {
        Self::agent(self)
    }

    // The root file system of a simulated machine is in memory.
    fn directory(&self) -> &'static str {
        "/tmp/rampart-bench"
    }

    fn explain(&self, error: AgentError) -> BenchError {
        Self::explain(self, error).into()
    }
}

impl BenchMachine for Joined {
    fn name(&self) -> String {
        self.architecture().bench_name()
    }

    fn agent(&self) -> &Agent {
        Self::agent(self)
    }

    fn directory(&self) -> &str {
        self.own_directory()
    }

    fn explain(&self, error: AgentError) -> BenchError {
        Self::explain(self, error).into()
    }
}

impl EvaluationBench for Sim {
    fn bench(&self) -> Bench {
        let record = self.booted_image().record();
        Bench::Sim {
            emulator: emulator(self),
            kernel: record.kernel_release.clone(),
            packages: record
                .packages
                .iter()
                .map(|package| (package.name.clone(), package.version.clone()))
                .collect(),
        }
    }

    fn read_at_end(&self, spans: Vec<(u64, u64)>) {
        Self::read_at_end(self, spans);
    }

    fn wait_for_crash(&self, last_output: Instant, limit: Duration) -> CrashEvidence {
        let (since, confirmed) = match self.wait_lost(limit) {
            Some((Loss::Panicked, at)) => (at, Some(self.panic_sign().to_owned())),
            Some((_, at)) => (at, None),
            None => (last_output, None),
        };
        CrashEvidence {
            observed: since.elapsed(),
            confirmed,
            memory: self.memory_at_end(),
        }
    }
}

/// Returns the emulator and the version that it reports.
fn emulator(sim: &Sim) -> String {
    let version = sim
        .qemu()
        .qmp()
        .execute("query-version", serde_json::json!({}))
        .unwrap_or_default();
    let number = |part: &str| version["qemu"][part].as_u64();
    match (number("major"), number("minor"), number("micro")) {
        (Some(major), Some(minor), Some(micro)) => format!("QEMU {major}.{minor}.{micro} (TCG)"),
        _ => "QEMU (TCG)".to_owned(),
    }
}
