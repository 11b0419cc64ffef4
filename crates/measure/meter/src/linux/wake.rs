// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A signal that breaks a thread's sleep and does nothing else, so that it sees a request to stop.

const SIGNAL: libc::c_int = libc::SIGUSR2;

/// Makes the signal do nothing: by default it would end the program.
pub(crate) fn prepare() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: all-zero is a valid value: no flags (so that the sleep is broken), empty mask.
    // The handler touches nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut());
    }
}

/// Breaks the sleep of a thread of this program. One that has not gone to sleep yet does not notice,
/// so who wants to be sure repeats it.
pub(crate) fn wake(thread: u32) {
    // SAFETY: no pointers. A thread that has just ended gives ESRCH, which is fine.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, SIGNAL) };
}
