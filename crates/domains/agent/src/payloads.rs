// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The JSON payloads of frames.

use rampart_model::CpuSet;
use serde::{Deserialize, Serialize};

/// Version of the protocol. Both sides must have the same.
pub const AGENT_PROTOCOL_VERSION: u32 = 2;

/// Size of the seed of a machine that continues from a saved state, in bytes.
pub(crate) const SEED: usize = 32;

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Number of lines.
    pub rows: u16,
    /// Characters per line.
    pub columns: u16,
}

/// A program for the agent to start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AgentCommand {
    /// The program, found in the agent's `PATH` unless it contains a slash, and its arguments.
    pub argv: Vec<String>,
    /// Variables that are added to the agent's environment or replace existing ones.
    pub env: Vec<(String, String)>,
    /// Working directory; `None` is that of the agent.
    pub directory: Option<String>,
    /// The CPUs that the program may run on. `None` selects the CPUs of the agent, which exclude
    /// those of `isolcpus=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// Size of the terminal to use as its three streams, if any; all its output is then on
    /// `stdout`.
    pub terminal: Option<TerminalSize>,
}

impl AgentCommand {
    /// Creates a command from a program with its arguments and default settings.
    pub fn new<Argument: Into<String>>(argv: impl IntoIterator<Item = Argument>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }
}

/// The agent's description of itself and of its machine; the first message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHello {
    /// [`AGENT_PROTOCOL_VERSION`] of the agent.
    pub protocol: u32,
    /// Version of the program.
    pub program: String,
    /// `uname -r`.
    pub kernel_release: String,
    /// `uname -v`.
    pub kernel_version: String,
    /// `uname -m`.
    pub architecture: String,
    /// `/proc/cmdline`.
    pub kernel_command_line: String,
    /// The online CPUs.
    pub cpus: CpuSet,
    /// Failures during the preparation of the machine (a module, a mount); normally empty.
    pub problems: Vec<String>,
}
