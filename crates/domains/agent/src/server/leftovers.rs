// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Orphaned processes of ended programs: the agent adopts them and kills them when it ends.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

/// Makes orphaned descendants children of this process instead of process 1,
/// `PR_SET_CHILD_SUBREAPER` in prctl(2).
pub(super) fn adopt() -> io::Result<()> {
    // SAFETY: this option takes one number and touches no memory.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Kills every remaining child, including those that this process adopts meanwhile. Gives up on
/// processes that cannot be killed, for example in uninterruptible sleep.
pub(super) fn kill() {
    let until = Instant::now() + Duration::from_secs(2);
    loop {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        let children = children();
        if children.is_empty() || Instant::now() > until {
            return;
        }
        for child in children {
            let _ = kill_process(child, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the children of this process, except kernel threads.
fn children() -> Vec<Pid> {
    let own = std::process::id();
    let is_child = |stat: &str| {
        // The name, in parentheses, may contain any character; state and parent follow it.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        // An ended process counts until it is reaped, which the kernel delays until the last of its
        // threads has ended: before that, the children of that thread are not adopted.
        let (_, parent) = (fields.next()?, fields.next()?);
        (parent.parse() == Ok(own)).then_some(())
    };
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let number: i32 = entry.file_name().to_str()?.parse().ok()?;
            is_child(&fs::read_to_string(entry.path().join("stat")).ok()?)?;
            Pid::from_raw(number)
        })
        .collect()
}
