// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handles shared memory that disappears while it is mapped: when a cell is destroyed, the driver
//! unmaps its regions from every process, and an access raises SIGBUS. A cell may be destroyed at
//! any time, so this is not an error of the reader: it reads zeros from then on, and can query the
//! loss.

use std::io;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Maximum number of mappings in one process.
const MOST: usize = 256;

/// One mapping. `start` is 0 if the entry is free and [`TAKEN`] while it is filled.
struct Watched {
    start: AtomicUsize,
    bytes: AtomicUsize,
    lost: AtomicBool,
}

/// Not the address of any page.
const TAKEN: usize = 1;

static ALL: [Watched; MOST] = [const {
    Watched {
        start: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; MOST];

/// The previous action for SIGBUS.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A mapping that may disappear, watched until this is dropped.
#[derive(Debug)]
pub(crate) struct Watch(usize);

impl Watch {
    /// Watches a mapping of whole pages.
    ///
    /// # Errors
    /// Returns an error if there are too many mappings, or the handler cannot be installed.
    pub(crate) fn begin(start: usize, bytes: usize) -> io::Result<Self> {
        install()?;
        let location = ALL.iter().position(|one| {
            let take = one
                .start
                .compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed);
            take.is_ok()
        });
        let location = location.ok_or_else(|| {
            io::Error::other(format!(
                "{MOST} shared regions are mapped; unmap some first"
            ))
        })?;
        ALL[location].lost.store(false, Ordering::Relaxed);
        ALL[location].bytes.store(bytes, Ordering::Relaxed);
        ALL[location].start.store(start, Ordering::Release);
        Ok(Self(location))
    }

    /// Returns whether an access has found that the memory is gone.
    pub(crate) fn is_lost(&self) -> bool {
        ALL[self.0].lost.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        ALL[self.0].start.store(0, Ordering::Release);
    }
}

fn install() -> io::Result<()> {
    if BEFORE.get().is_some() {
        return Ok(());
    }
    // SAFETY: plain data, for which all zeros are a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: reads the present action; the structure lives until the call returns.
    let read = unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) };
    if read != 0 {
        return Err(io::Error::last_os_error());
    }
    // Stored before the handler can need it. A second thread finds it set, and installs the same
    // handler.
    if BEFORE.set(before).is_err() {
        return Ok(());
    }
    // SAFETY: the handler only uses atomics, one system call and the previous action.
    match unsafe { libc::sigaction(libc::SIGBUS, &raw const action, null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Maps a page of zeros in place of a page that is gone, so that the access is repeated there.
/// Other causes of SIGBUS are passed to the previous action.
extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes it to a handler that was installed with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as usize;
    for one in &ALL {
        let start = one.start.load(Ordering::Acquire);
        if start <= TAKEN || address < start || address - start >= one.bytes.load(Ordering::Relaxed)
        {
            continue;
        }
        let page = crate::shared_memory::PAGE_BYTES;
        // SAFETY: a page of a watched mapping whose memory is gone.
        let put = unsafe {
            libc::mmap(
                (address & !(page - 1)) as *mut libc::c_void,
                page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if put != libc::MAP_FAILED {
            one.lost.store(true, Ordering::Release);
            return;
        }
    }
    forward(signal, info, context);
}

fn forward(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(before) = BEFORE.get() else {
        return;
    };
    let is_function = before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN;
    if is_function && before.sa_flags & libc::SA_SIGINFO != 0 {
        type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: with SA_SIGINFO the action is such a function.
        let handler: Handler = unsafe { std::mem::transmute(before.sa_sigaction) };
        handler(signal, info, context);
        return;
    }
    // The access is repeated, with the default effect. SAFETY: the action comes from the kernel.
    unsafe {
        libc::sigaction(signal, before, null_mut());
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn lost_memory_reads_as_zeros_and_is_reported() {
        let page = crate::shared_memory::PAGE_BYTES;
        let file: File = tempfile::tempfile().expect("a file");
        file.set_len(2 * page as u64).expect("its size");
        // SAFETY: a new mapping without references to it.
        let start = unsafe {
            libc::mmap(
                null_mut(),
                2 * page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        let watch = Watch::begin(start as usize, 2 * page).expect("watched");
        // SAFETY: within the mapping; volatile, because the memory changes behind the compiler.
        let word = |offset: usize| unsafe { start.cast::<u64>().add(offset / 8).read_volatile() };
        // SAFETY: as above.
        unsafe { start.cast::<u64>().write_volatile(7) };
        assert_eq!((word(0), watch.is_lost()), (7, false));
        // An access beyond the end of a file raises SIGBUS, like memory of a destroyed cell.
        file.set_len(0).expect("shorter");
        assert_eq!(word(page + 8), 0);
        assert!(watch.is_lost());
        assert_eq!(word(0), 0);
        // SAFETY: mapped above, and no reference to it remains.
        unsafe { libc::munmap(start, 2 * page) };
    }

    #[test]
    fn releases_its_entry() {
        for round in 1..=2 * MOST {
            let watch = Watch::begin(4096 * round, 4096).expect("a place");
            assert!(!watch.is_lost());
        }
    }
}
