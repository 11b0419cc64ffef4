// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine that programs can be started on.

use rampart_agent::{Agent, AgentError};
use rampart_model::Bench;

use crate::BenchError;
use crate::sim::Sim;

/// A machine that programs can be started on, for as long as this lives.
pub trait Machine: std::fmt::Debug {
    /// How messages call it: `ssh:HOST`, `sim`, `sim:aarch64`.
    fn name(&self) -> String;

    /// What starts programs there.
    fn agent(&self) -> &Agent;

    /// A directory there for programs that are carried; it goes when this does, whatever happens.
    fn directory(&self) -> &str;

    /// Where it is, for the evaluation document.
    fn bench(&self) -> Bench;

    /// What an error of the agent means here.
    fn explain(&self, error: AgentError) -> BenchError;
}

impl Machine for Sim {
    fn name(&self) -> String {
        self.architecture().bench_name()
    }

    fn agent(&self) -> &Agent {
        Self::agent(self)
    }

    // In memory, as the whole of the machine is.
    fn directory(&self) -> &'static str {
        "/tmp/rampart-bench"
    }

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

    fn explain(&self, error: AgentError) -> BenchError {
        Self::explain(self, error).into()
    }
}

/// The emulator and its version, as it says itself.
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
