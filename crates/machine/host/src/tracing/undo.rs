// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Undoes changes of tracing.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::groups;
use crate::kernel::Kernel;
use crate::undo::Undone;

/// Longest wait for an ended reader's files to be closed.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// Replaces `off` with `on` in a file of flags.
pub(crate) fn switch(kernel: &dyn Kernel, path: &Path, on: &str, off: &str, undone: &mut Undone) {
    let is_off = |text: &str| text.split_whitespace().any(|word| word == off);
    let fix = format!("echo {on} > {}", path.display());
    match kernel.read(path) {
        Err(error) if groups::is_gone(&error) => {}
        Err(error) => {
            let fix = format!("cat {}", path.display());
            undone.failed(path, format!("cannot read: {error}"), &fix);
        }
        Ok(present) if !is_off(&present) => {}
        Ok(_) => match kernel.write(path, on).and_then(|()| kernel.read(path)) {
            Ok(present) if !is_off(&present) => undone.restored(path, format!("{on} again")),
            Ok(_) => undone.failed(path, format!("the kernel kept {off} instead of {on}"), &fix),
            Err(error) => undone.failed(path, format!("the kernel refuses {on}: {error}"), &fix),
        },
    }
}

/// Removes an instance, with its tracer, events and buffers.
pub(crate) fn instance(kernel: &dyn Kernel, path: &Path, undone: &mut Undone) -> io::Result<()> {
    if !kernel.is_directory(path) {
        return Ok(());
    }
    // Writing `nop` ends a tracer that works on all CPUs cleanly; removing the instance ends it too.
    let _ = kernel.write(&path.join("current_tracer"), "nop");
    let begin = Instant::now();
    loop {
        kernel.step()?;
        match kernel.remove_directory(path) {
            Ok(()) => undone.restored(path, "removed"),
            Err(error) if groups::is_gone(&error) => {}
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy && begin.elapsed() < CLOSE_LIMIT =>
            {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            Err(error) => undone.failed(
                path,
                format!("cannot remove the instance: {error}"),
                &format!("rmdir {}, after closing its files", path.display()),
            ),
        }
        return Ok(());
    }
}
