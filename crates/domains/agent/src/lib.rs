// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hand inside: a program that starts others on a machine or guest that has no network, over
//! one byte stream, and the side that speaks with it.
//!
//! - [`serve`]: what `rampart-meter agent` does. One thread, one `poll` loop: it wakes for work
//!   and for nothing else, because what it is carried into is measured.
//! - [`Agent`]: the near side. Starts programs over there and gives their three streams.
//! - `frame`: the form of what goes between them; pure.
//!
//! **Flow.** Each stream of each program has a window: nobody sends more than the other side said
//! it has room for. So both sides always read the byte stream, a slow reader stops its own
//! program and nobody else's, and memory is bounded by windows times programs.
//!
//! **Nothing outlives the connection.** When the byte stream ends, every program that was started
//! over it is asked to end and then made to; as process 1 the machine is powered off.

mod client;
mod enter_root;
mod error;
mod frame;
mod memory;
mod recover;
mod server;
mod words;

/// Where the first program of an initramfs is.
pub const INIT: &str = "/init";

/// The list of modules that the agent loads as process 1, in order: a path and parameters in each
/// line.
pub const MODULE_LIST: &str = "/etc/rampart/modules";

/// What of an initramfs is copied over the root file system by [`enter_root`].
pub const CARRIED: &str = "/carried";

pub use client::{Agent, AgentHandle, AgentInput, AgentOutput, AgentProcess, KEEP_ALIVE};
pub use enter_root::enter_root;
pub use error::AgentError;
pub use memory::{MemoryLine, MemoryPlace};
pub use recover::recover;
pub use server::{ServeError, ServeOptions, serve};
pub use words::{AGENT_PROTOCOL_VERSION, AgentCommand, AgentHello, TerminalSize};
