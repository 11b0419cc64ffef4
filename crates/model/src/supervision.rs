// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program of a domain of the active plan: the contents of `domains/NAME.json` in the state
//! directory.

use serde::{Deserialize, Serialize};

use crate::{ContainerEngine, DomainKind, Finding, Nanos};

/// Version of [`SupervisedDomain`] as a document. Within it fields are only added.
pub const SUPERVISION_SCHEMA_VERSION: u32 = 1;

/// State of a domain's program, as its supervisor last recorded it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SupervisedState {
    /// Its supervisor is starting it.
    Starting,
    /// It runs in its domain.
    Running,
    /// It ended, and restarts after a pause.
    Waiting,
    /// It ended, and the plan does not restart it.
    Ended,
    /// It could not be started or placed, or ended too often.
    Failed,
    /// `rampart down` stopped it.
    Stopped,
}

impl SupervisedState {
    /// Returns whether a supervisor is active in this state.
    #[must_use]
    pub const fn is_up(self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::Waiting)
    }

    /// Returns the state's name in documents.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Ended => "ended",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }
}

/// Identity of a process, unique among processes with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ProcessIdentity {
    /// Its process id.
    pub process: u32,
    /// When it started, in clock ticks since boot.
    pub start: u64,
}

/// The last end of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LastExit {
    /// When it ended, as time since the epoch.
    pub at: Nanos,
    /// Description: an exit status or a signal.
    pub status: String,
    /// Whether it is a success.
    pub success: bool,
}

/// The container of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SupervisedContainer {
    /// Its engine.
    pub engine: ContainerEngine,
    /// The runtime's or engine's program.
    pub program: String,
    /// The runtime's directory.
    pub directory: String,
}

/// A domain and its program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SupervisedDomain {
    /// [`SUPERVISION_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// Name of the domain.
    pub name: String,
    /// Its kind.
    pub kind: DomainKind,
    /// Its state.
    pub state: SupervisedState,
    /// `/proc/sys/kernel/random/boot_id`: with another value none of it runs.
    pub boot: String,
    /// Its supervisor's process.
    pub supervisor: ProcessIdentity,
    /// Its program; for a container the first process inside, for a guest its emulator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<ProcessIdentity>,
    /// When the program was last started, as time since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Nanos>,
    /// Number of restarts.
    pub restarts: u32,
    /// Its last end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<LastExit>,
    /// The file with its output.
    pub log: String,
    /// Its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<SupervisedContainer>,
    /// Settings that differ from the plan, or the reason of a failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
}
