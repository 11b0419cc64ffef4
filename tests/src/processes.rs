// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads processes from `/proc`, by proc_pid_stat(5) and proc_pid_status(5), and ends those of a test.

use std::fs;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

use crate::machine_state::read_trimmed;

/// Kills the child when dropped, also after a failed test.
#[derive(Debug)]
pub struct KillAtEnd(pub Child);

impl Drop for KillAtEnd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether a process exists and has not exited.
#[must_use]
pub fn is_alive(process: u32) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}

/// Returns the children of a process. `/proc/PID/task/TID/children` needs `CONFIG_PROC_CHILDREN`, so this
/// reads the parent of every process.
///
/// # Panics
/// If `/proc` cannot be read.
#[must_use]
pub fn children_of(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|process| parent_of(*process) == Some(parent))
        .collect()
}

fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the CPUs that a process (`PID` or `self`) or thread (`PID/task/TID`) may use, as the kernel prints
/// them.
///
/// # Panics
/// If the process or thread does not exist.
#[must_use]
pub fn allowed_cpus(process: impl std::fmt::Display) -> String {
    let status = read_trimmed(format!("/proc/{process}/status"));
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("Cpus_allowed_list").trim().to_owned()
}

/// Sends a signal.
///
/// # Panics
/// If the process does not exist.
pub fn send(process: u32, signal: Signal) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    kill_process(process.expect("a process number"), signal).expect("a process to signal");
}
