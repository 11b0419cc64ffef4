// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest agent, which starts programs on a machine or guest without a network, over one byte
//! stream; and its client.
//!
//! - [`serve`]: the agent, `rampart-meter agent`. One thread with one `poll` loop that wakes only for
//!   work, because the agent runs where latency is measured.
//! - [`Agent`]: the client. Starts programs on the agent's machine and returns their three streams.
//! - `frame`: the format of the byte stream; pure.
//!
//! **Flow control.** Each stream of each program has a window: a side sends no more bytes than the other
//! side has announced space for. Both sides always read the byte stream, so a slow reader stops only its
//! own program, and memory is limited to the windows of all programs.
//!
//! **Nothing outlives the connection.** When the byte stream ends, the agent sends SIGTERM to each program that was
//! started over it, then kills it; as process 1 it powers the machine off.

mod client;
mod enter_root;
mod error;
mod frame;
mod memory;
mod payloads;
mod recover;
mod server;

/// Path of the first program of an initramfs.
pub const INIT: &str = "/init";

/// Path of the list of modules that the agent loads as process 1, in order: each line has a path
/// and parameters.
pub const MODULE_LIST: &str = "/etc/rampart/modules";

/// Directory of an initramfs that [`enter_root()`] copies over the root file system.
pub const CARRIED: &str = "/carried";

pub use client::{Agent, AgentHandle, AgentInput, AgentOutput, AgentProcess, KEEP_ALIVE};
pub use enter_root::enter_root;
pub use error::AgentError;
pub use memory::{MemoryConnection, MemoryRange};
pub use payloads::{AGENT_PROTOCOL_VERSION, AgentCommand, AgentHello, TerminalSize};
pub use recover::recover;
pub use server::{ServeError, ServeOptions, serve};
