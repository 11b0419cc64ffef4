// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clocks and sleeping.

use std::io;
use std::mem::MaybeUninit;

use rampart_model::Nanos;

use super::raw;
use super::vdso::{self, ClockGettime};

fn read(clock: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing. The clocks used here exist on every kernel.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Reads `CLOCK_MONOTONIC`, the clock of all moments. Never set back; slewed by NTP by at most 500
/// ppm.
#[inline]
pub(crate) fn monotonic() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

/// Reads `CLOCK_REALTIME`, for the time of day.
pub(crate) fn realtime() -> Nanos {
    read(libc::CLOCK_REALTIME)
}

/// Returns the CPU time of the calling thread.
pub(crate) fn thread_cpu() -> Nanos {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the CPU time of all threads of the program.
pub(crate) fn process_cpu() -> Nanos {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Returns the resolution of `CLOCK_MONOTONIC` timers: 1 ns with high-resolution timers, otherwise
/// a tick (clock_getres(2)).
pub(crate) fn resolution() -> io::Result<Nanos> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing.
    let result = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC, &raw mut time) };
    super::checked(result.into())?;
    Ok(Nanos(
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
    ))
}

/// Reads `CLOCK_MONOTONIC` in the fastest available way, which is determined once before measuring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FastClock(Option<ClockGettime>);

impl FastClock {
    /// Looks up the function of the vDSO.
    pub(crate) fn find() -> Self {
        Self(vdso::clock_gettime())
    }

    /// Returns the same as [`monotonic`].
    #[inline(always)]
    pub(crate) fn now(self) -> Nanos {
        let mut time = MaybeUninit::<libc::timespec>::uninit();
        let clock = libc::CLOCK_MONOTONIC;
        // SAFETY: `time` is valid for writing; neither call fails for this clock, so the time is
        // written.
        let time = unsafe {
            match self.0 {
                Some(function) => {
                    function(clock, time.as_mut_ptr());
                }
                None => {
                    let arguments = [clock as usize, time.as_mut_ptr() as usize];
                    raw::call(libc::SYS_clock_gettime, arguments);
                }
            }
            time.assume_init()
        };
        Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}

/// Sleeps until `CLOCK_MONOTONIC` shows `at`. Returns `false` if a signal ended the sleep.
#[inline(always)]
pub(crate) fn sleep_until(at: Nanos) -> bool {
    let time = libc::timespec {
        tv_sec: (at.0 / 1_000_000_000) as _,
        tv_nsec: (at.0 % 1_000_000_000) as _,
    };
    let arguments = [
        libc::CLOCK_MONOTONIC as usize,
        libc::TIMER_ABSTIME as usize,
        &raw const time as usize,
        0,
    ];
    // SAFETY: `time` is valid for reading; an absolute sleep writes no remaining time.
    unsafe { raw::call(libc::SYS_clock_nanosleep, arguments) == 0 }
}
