// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Children of programs whose parent is gone: they become ours, and end with us.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

/// Orphans below us become our children instead of process 1's, `PR_SET_CHILD_SUBREAPER` in
/// prctl(2).
pub(super) fn adopt() -> io::Result<()> {
    // SAFETY: this option takes one number and touches no memory.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Kills every child that is left, and theirs as they become ours. Gives up on what cannot be
/// killed, for example what waits for a device for ever.
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

/// Processes whose parent we are, but kernel threads.
fn children() -> Vec<Pid> {
    let us = std::process::id();
    let parent_is_us = |stat: &str| {
        // The name, in parentheses, may hold anything; state and parent come behind it.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        // One that has ended counts until it is taken in, which the kernel delays until the last
        // of its threads has ended: before, that thread's children are not ours yet.
        let (_, parent) = (fields.next()?, fields.next()?);
        (parent.parse() == Ok(us)).then_some(())
    };
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let number: i32 = entry.file_name().to_str()?.parse().ok()?;
            parent_is_us(&fs::read_to_string(entry.path().join("stat")).ok()?)?;
            Pid::from_raw(number)
        })
        .collect()
}
