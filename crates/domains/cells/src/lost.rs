// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared memory that goes away while somebody looks at it: when a cell is destroyed, the driver takes
//! its regions out of every process, and an access there is SIGBUS. Anybody may destroy a cell at any
//! moment, so this is no fault of who looks: it finds zeros from then on, and is told.

use std::io;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Mappings at a time in one process.
const MOST: usize = 256;

/// One mapping; `start` is 0 where the place is free and [`TAKEN`] while it is filled.
struct Watched {
    start: AtomicUsize,
    bytes: AtomicUsize,
    lost: AtomicBool,
}

/// No page begins there.
const TAKEN: usize = 1;

static ALL: [Watched; MOST] = [const {
    Watched {
        start: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; MOST];

/// What SIGBUS did before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A mapping that may go away, watched while this lives.
#[derive(Debug)]
pub(crate) struct Watch(usize);

impl Watch {
    /// Watches a mapping; its pages must be whole ones of this process.
    ///
    /// # Errors
    /// If there are too many, or the handler cannot be set.
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

    /// Whether an access has found the memory gone.
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
    // SAFETY: reads what there is now; the structure lives.
    let read = unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) };
    if read != 0 {
        return Err(io::Error::last_os_error());
    }
    // Known before the handler can need it. Who comes second finds it set, and sets the same handler.
    if BEFORE.set(before).is_err() {
        return Ok(());
    }
    // SAFETY: the handler uses atomics, one system call and what was there before.
    match unsafe { libc::sigaction(libc::SIGBUS, &raw const action, null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Puts a page of zeros where a page went away, so that the access is made again there. SIGBUS of
/// anything else is for who had it before.
extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives it to a handler that was set with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as usize;
    for one in &ALL {
        let start = one.start.load(Ordering::Acquire);
        if start <= TAKEN || address < start || address - start >= one.bytes.load(Ordering::Relaxed)
        {
            continue;
        }
        let page = crate::shared_memory::PAGE_BYTES;
        // SAFETY: a page of a mapping that is watched because it may go away; what was there is gone.
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
    hand_on(signal, info, context);
}

fn hand_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(before) = BEFORE.get() else {
        return;
    };
    let is_function = before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN;
    if is_function && before.sa_flags & libc::SA_SIGINFO != 0 {
        type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: with SA_SIGINFO it is such a function.
        let handler: Handler = unsafe { std::mem::transmute(before.sa_sigaction) };
        handler(signal, info, context);
        return;
    }
    // The access is made again, and has its usual end.
    // SAFETY: what the kernel itself gave.
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
    fn memory_that_goes_away_reads_as_zeros_and_is_told() {
        let page = crate::shared_memory::PAGE_BYTES;
        let file: File = tempfile::tempfile().expect("a file");
        file.set_len(2 * page as u64).expect("its size");
        // SAFETY: a new mapping; nobody refers to it.
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
        // What lies beyond the end of a file is SIGBUS, as what a cell has no more.
        file.set_len(0).expect("shorter");
        assert_eq!(word(page + 8), 0);
        assert!(watch.is_lost());
        assert_eq!(word(0), 0);
        // SAFETY: mapped above, and nothing refers to it any more.
        unsafe { libc::munmap(start, 2 * page) };
    }

    #[test]
    fn a_place_is_free_again() {
        for round in 1..=2 * MOST {
            let watch = Watch::begin(4096 * round, 4096).expect("a place");
            assert!(!watch.is_lost());
        }
    }
}
