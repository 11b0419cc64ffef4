// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals as a descriptor to poll, see signalfd(2).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// The received signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Received {
    /// A child changed its state.
    pub(super) child: bool,
    /// The end of the agent was requested.
    pub(super) end: bool,
}

#[derive(Debug)]
pub(super) struct Signals(OwnedFd);

/// Sets every signal to its default action and unblocks it: a started program must not inherit the
/// ignored signals of the agent's parent, for example SIGINT in background jobs of a shell. Safe
/// between fork and exec.
pub(super) fn reset() -> io::Result<()> {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: no handler of this program is lost. The kernel refuses SIGKILL and SIGSTOP, and
        // the C library refuses its two internal signals.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset makes `set` valid; pthread_sigmask reads it.
    let failed = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut())
    };
    match failed {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

impl Signals {
    /// Blocks these signals and receives them through a descriptor. Started programs call
    /// [`reset`], because they would inherit the mask.
    pub(super) fn take() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset makes `set` valid; the other calls use it afterwards.
        let descriptor = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            let failed = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            if failed != 0 {
                return Err(io::Error::from_raw_os_error(failed));
            }
            libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: signalfd returned this descriptor, which has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Reads all signals since the last call.
    pub(super) fn read(&self) -> Received {
        const SIZE: usize = size_of::<libc::signalfd_siginfo>();
        let mut received = Received::default();
        let mut record = [0u8; SIZE];
        while let Ok(SIZE) = rustix::io::read(&self.0, &mut record) {
            // The first field, four bytes in native order, is the number of the signal.
            let number = i32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
            if number == libc::SIGCHLD {
                received.child = true;
            } else {
                received.end = true;
            }
        }
        received
    }
}
