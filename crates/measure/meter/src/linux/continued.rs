// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Notices that this program was stopped by a signal and continued: its threads did not run meanwhile,
//! and late samples of that time are no latencies of the domain. `SIGCONT` stays pending while all
//! threads block it (signal(7)), so no thread has to handle it.

/// Blocks `SIGCONT` for this thread, which is the main thread, and the threads that it starts, and forgets
/// the last one.
pub(crate) fn watch() {
    // SAFETY: an all-zero set is valid; the calls read or write only the set and the time, which live
    // through them.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCONT);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        let at_once: libc::timespec = std::mem::zeroed();
        // Fails if none is pending.
        libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const at_once);
    }
}

/// Returns whether this program was continued since [`watch`].
pub(crate) fn was_continued() -> bool {
    // SAFETY: an all-zero set is valid; sigpending writes only to it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigpending(&raw mut set) == 0 && libc::sigismember(&raw const set, libc::SIGCONT) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sent to this thread alone, since other threads of a test do not block it.
    #[test]
    fn a_signal_to_this_thread_stays_until_it_is_forgotten() {
        watch();
        assert!(!was_continued());
        // SAFETY: no pointers; the signal is blocked and stays pending for this thread.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGCONT) };
        assert!(was_continued());
        watch();
        assert!(!was_continued());
    }
}
