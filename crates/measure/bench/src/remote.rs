// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines that can run programs.

use rampart_agent::{Agent, AgentError};
use rampart_model::Bench;

use crate::BenchError;
use crate::sim::{Joined, Sim};

/// A machine that can run programs until this value is dropped.
pub trait Machine: std::fmt::Debug {
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

impl Machine for Sim {
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

impl Machine for Joined {
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

impl Sim {
    /// Returns the description of the machine for the evaluation document.
    #[must_use]
    pub fn bench(&self) -> Bench {
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
