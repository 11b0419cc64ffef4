// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is said between the two sides, apart from the bytes of streams.

use rampart_model::CpuSet;
use serde::{Deserialize, Serialize};

/// Version of the conversation. Both sides must have the same.
pub const AGENT_PROTOCOL_VERSION: u32 = 1;

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// A program to be started over there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AgentCommand {
    /// The program, found in the far side's `PATH` unless it holds a slash, and its arguments.
    pub argv: Vec<String>,
    /// Variables that are added to the far side's environment or replace those there.
    pub env: Vec<(String, String)>,
    /// Where it starts; none: where the agent is.
    pub directory: Option<String>,
    /// The CPUs that it may run on; none: those that the agent may, which on a machine with
    /// `isolcpus=` are the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// With a terminal of this size as its three streams; its output then all comes on `stdout`.
    pub terminal: Option<TerminalSize>,
}

impl AgentCommand {
    /// A program with its arguments, and nothing else changed.
    pub fn new<Argument: Into<String>>(argv: impl IntoIterator<Item = Argument>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }
}

/// What the far side says of itself before anything else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHello {
    /// [`AGENT_PROTOCOL_VERSION`] of that side.
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
    /// The CPUs that are online.
    pub cpus: CpuSet,
    /// What did not work while the machine was made ready (a module, a mount); empty as a rule.
    pub problems: Vec<String>,
}
