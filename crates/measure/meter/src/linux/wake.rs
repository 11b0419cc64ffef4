// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A signal whose only effect is to interrupt a thread's sleep, so that the thread checks for a
//! stop request.

const SIGNAL: libc::c_int = libc::SIGUSR2;

/// Installs an empty handler: by default the signal would end the program.
pub(crate) fn prepare() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: all-zero is a valid value: no flags (so that the sleep is interrupted), empty mask.
    // The handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut());
    }
}

/// Interrupts the sleep of a thread of this program. Has no effect on a thread that does not sleep
/// yet; callers repeat it.
pub(crate) fn wake(thread: u32) {
    // SAFETY: no pointers. If the thread has just ended, the call fails with ESRCH, which is
    // harmless.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, SIGNAL) };
}
