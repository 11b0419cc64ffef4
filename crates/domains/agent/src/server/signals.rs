// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals as something to poll for, see signalfd(2).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// What came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Came {
    /// A child changed its state.
    pub(super) child: bool,
    /// We are asked to end.
    pub(super) end: bool,
}

#[derive(Debug)]
pub(super) struct Signals(OwnedFd);

/// Every signal does what it does by itself, and none is held back: a program that is started must
/// not inherit what whoever started us ignores, as a shell does SIGINT for what it puts into the
/// background. Safe between fork and exec.
pub(super) fn reset() -> io::Result<()> {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: no handler of ours is left behind by this. The kernel refuses SIGKILL and SIGSTOP,
        // and the C library its own two, which nobody can have changed.
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
    /// From here on these signals come only through this. Programs that are started call
    /// [`reset`], for they would inherit the mask.
    pub(super) fn take() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset makes `set` valid; the other calls get it after that.
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
        // SAFETY: signalfd gave us this descriptor, nobody else has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Everything that came since the last call.
    pub(super) fn read(&self) -> Came {
        const SIZE: usize = size_of::<libc::signalfd_siginfo>();
        let mut came = Came::default();
        let mut record = [0u8; SIZE];
        while let Ok(SIZE) = rustix::io::read(&self.0, &mut record) {
            // Its first field, four bytes in the machine's order, is the signal's number.
            let number = i32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
            if number == libc::SIGCHLD {
                came.child = true;
            } else {
                came.end = true;
            }
        }
        came
    }
}
