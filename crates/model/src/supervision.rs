// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What runs in a domain of a active plan, as `domains/NAME.json` in the state directory tells.

use serde::{Deserialize, Serialize};

use crate::{ContainerEngine, DomainKind, Finding, Nanos};

/// Version of [`SupervisedDomain`] as a document. Within it fields are only added.
pub const SUPERVISION_SCHEMA_VERSION: u32 = 1;

/// How a domain's program stands, as its supervisor last wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SupervisedState {
    /// Its supervisor is starting it.
    Starting,
    /// It runs in its place.
    Running,
    /// It ended, and is started again after a pause.
    Waiting,
    /// It ended, and the plan does not have it started again.
    Ended,
    /// It could not be started or placed, or ended too often.
    Failed,
    /// It was ended by `rampart down`.
    Stopped,
}

impl SupervisedState {
    /// Whether a supervisor is at work in this state.
    #[must_use]
    pub const fn is_up(self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::Waiting)
    }

    /// The word for it.
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

/// A process, told from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ProcessIdentity {
    /// Its number.
    pub process: u32,
    /// When it started, in clock ticks since boot.
    pub start: u64,
}

/// How a program ended the last time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LastExit {
    /// When, since the epoch.
    pub at: Nanos,
    /// How, in words: an exit status or a signal.
    pub status: String,
    /// Whether that is a success.
    pub success: bool,
}

/// The container that a domain's program is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SupervisedContainer {
    /// What runs it.
    pub engine: ContainerEngine,
    /// The runtime's or engine's program.
    pub program: String,
    /// The directory of what the runtime needs.
    pub directory: String,
}

/// One domain and what runs in it.
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
    /// How it stands.
    pub state: SupervisedState,
    /// `/proc/sys/kernel/random/boot_id`: after a restart of the machine nothing of it runs.
    pub boot: String,
    /// The process that watches over it.
    pub supervisor: ProcessIdentity,
    /// Its program; for a container the first process inside, for a guest its emulator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<ProcessIdentity>,
    /// When the program was last started, since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Nanos>,
    /// How often it was started again.
    pub restarts: u32,
    /// How it ended the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<LastExit>,
    /// The file that its output goes to.
    pub log: String,
    /// The container that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<SupervisedContainer>,
    /// What was not granted as asked, or why it failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
}
