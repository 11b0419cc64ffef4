// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a thread of this process on a CPU that Linux has given up, in the same address space: no tick, no
//! interrupt, no scheduler. Linux executes the thread's system calls on another CPU.
//!
//! The crate calls the C library in `c`, and needs the module `detach`. `docs/detached.md` has what detaching
//! means for a program; `examples/control_loop.rs` is one to copy.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! let mut cpu = rampart_detach::Cpu::take(2)?;
//! let turns = cpu.run(|thread| {
//!     let mut next = thread.now();
//!     let mut turns = 0;
//!     while turns < 1000 && (thread.is_detached() || thread.detach().is_ok()) {
//!         next = next + Duration::from_millis(1);
//!         thread.sleep_until(next);
//!         turns += 1;
//!     }
//!     turns
//! })?;
//! println!("{turns} turns, {:?}", cpu.counts()?);
//! # Ok::<(), rampart_detach::DetachError>(())
//! ```
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

mod error;
mod library;
mod time;

use std::ffi::c_int;
use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};
use std::ptr::NonNull;

pub use error::DetachError;
pub use library::IS_BUILT;
/// A mailbox between a detached thread and another one: neither side waits or makes a system call.
pub use rtrb as mailbox;
pub use time::Time;

/// What happens on a system call of a detached thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(i32)]
pub enum SystemCalls {
    /// Linux executes it for the thread, on another CPU.
    #[default]
    Proxied = 0,
    /// It fails with `ENOSYS`.
    Refused = 1,
    /// The thread is attached and executes it itself.
    Reattach = 2,
}

/// Events on a CPU since it was taken. The fields are those of `struct rampart_counts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Counts {
    /// System calls of threads on it.
    pub system_calls: u64,
    /// Page faults and other exceptions.
    pub faults: u64,
    /// Non-maskable interrupts by the driver: starts, stops, flushes.
    pub kicks: u64,
    /// Flushes of translations, because the process changed its memory.
    pub flushes: u64,
    /// Other interrupts. Expected: 0.
    pub interrupts: u64,
}

impl Counts {
    /// Returns the events after an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            system_calls: self.system_calls - earlier.system_calls,
            faults: self.faults - earlier.faults,
            kicks: self.kicks - earlier.kicks,
            flushes: self.flushes - earlier.flushes,
            interrupts: self.interrupts - earlier.interrupts,
        }
    }
}

/// A CPU that is taken from Linux. It is Linux's again when this is dropped, or when the process ends.
#[derive(Debug)]
pub struct Cpu {
    detached: NonNull<library::Detached>,
}

// SAFETY: the library's structure belongs to no thread while none is detached, and `run` borrows it for as long as
// one is.
unsafe impl Send for Cpu {}
// SAFETY: the functions with a shared reference only read what is constant, or call the driver.
unsafe impl Sync for Cpu {}

impl Cpu {
    /// Takes a CPU from Linux, which moves everything away from it; or uses it if `rampart` passed it to this
    /// program.
    ///
    /// # Errors
    /// If the module is not loaded, without `CAP_SYS_ADMIN` for a CPU of which this user is not the owner, if the CPU is offline or taken, or if Linux cannot
    /// do without it.
    pub fn take(number: u32) -> Result<Self, DetachError> {
        let cpu = c_int::try_from(number).unwrap_or(c_int::MAX);
        // SAFETY: any number may be passed.
        let detached = unsafe { library::rampart_detached_take(cpu) };
        Self::of(detached).ok_or_else(|| DetachError::Take {
            cpu: number,
            source: io::Error::last_os_error(),
        })
    }

    /// Uses the first CPU that `rampart` passed to this program.
    ///
    /// # Errors
    /// If none was passed.
    pub fn passed() -> Result<Self, DetachError> {
        // SAFETY: any number may be passed.
        let detached = unsafe { library::rampart_detached_take(-1) };
        Self::of(detached).ok_or(DetachError::NotPassed)
    }

    /// Uses an open file of `/dev/rampart-detach` that has a CPU, for example one that was inherited.
    ///
    /// # Errors
    /// If it is another file, or if the module has another version.
    pub fn from_descriptor(descriptor: OwnedFd) -> Result<Self, DetachError> {
        // SAFETY: any descriptor may be passed.
        let detached = unsafe { library::rampart_detached_from_descriptor(descriptor.as_raw_fd()) };
        let cpu = Self::of(detached).ok_or_else(|| DetachError::Descriptor {
            source: io::Error::last_os_error(),
        })?;
        // The library closes it.
        let _ = descriptor.into_raw_fd();
        Ok(cpu)
    }

    fn of(detached: *mut library::Detached) -> Option<Self> {
        NonNull::new(detached).map(|detached| Self { detached })
    }

    /// Sets what happens on system calls of a detached thread.
    pub fn on_system_calls(&mut self, what: SystemCalls) {
        // SAFETY: the structure is valid, and no thread is detached.
        unsafe { library::rampart_detached_on_system_calls(self.detached.as_ptr(), what as c_int) }
    }

    /// Calls a function on the CPU. The calling thread is attached again when it returns or panics.
    ///
    /// The thread is also attached by what needs Linux: a signal, an exception that is a signal, a system call
    /// that creates or ends threads or processes or changes signals. A loop tests
    /// [`DetachedThread::is_detached`] in each turn.
    ///
    /// # Errors
    /// If the driver refuses: another thread uses the CPU, or it was given back.
    pub fn run<R>(
        &mut self,
        function: impl FnOnce(&mut DetachedThread<'_>) -> R,
    ) -> Result<R, DetachError> {
        let mut thread = DetachedThread {
            cpu: self,
            not_send: PhantomData,
        };
        thread.detach()?;
        Ok(function(&mut thread))
    }

    /// Returns the events on the CPU. A system call.
    ///
    /// # Errors
    /// If the driver does not answer.
    pub fn counts(&self) -> Result<Counts, DetachError> {
        let mut counts = Counts::default();
        // SAFETY: the structure is valid, and `counts` has the layout that the function writes.
        let failed =
            unsafe { library::rampart_detached_counts(self.detached.as_ptr(), &raw mut counts) };
        if failed == 0 {
            return Ok(counts);
        }
        Err(DetachError::Counts {
            source: io::Error::last_os_error(),
        })
    }

    /// Returns the time of the CPUs' time stamp counters, without a system call.
    #[must_use]
    pub fn now(&self) -> Time {
        // SAFETY: the structure is valid, and what the function reads is constant.
        Time::from_nanoseconds(unsafe { library::rampart_clock(self.detached.as_ptr()) })
    }

    /// Returns the frequency of that counter in hertz.
    #[must_use]
    pub fn clock_frequency(&self) -> u64 {
        // SAFETY: as for `now`.
        unsafe { library::rampart_clock_frequency(self.detached.as_ptr()) }
    }

    /// Waits until a time by spinning, without a system call.
    pub fn sleep_until(&self, time: Time) {
        // SAFETY: as for `now`.
        unsafe { library::rampart_sleep_until(self.detached.as_ptr(), time.as_nanoseconds()) }
    }
}

impl Drop for Cpu {
    fn drop(&mut self) {
        // SAFETY: the structure is valid, no thread is detached, and nothing uses it afterwards.
        unsafe { library::rampart_detached_close(self.detached.as_ptr()) }
    }
}

/// The thread that [`Cpu::run`] detached.
#[derive(Debug)]
pub struct DetachedThread<'a> {
    cpu: &'a mut Cpu,
    /// It is the calling thread, and no other.
    not_send: PhantomData<*mut ()>,
}

impl DetachedThread<'_> {
    /// Detaches the thread again after something attached it. Does nothing if it is detached.
    ///
    /// # Errors
    /// If the driver refuses. The thread continues attached.
    pub fn detach(&mut self) -> Result<(), DetachError> {
        // SAFETY: the structure is valid, and this thread alone uses it.
        if unsafe { library::rampart_detach(self.cpu.detached.as_ptr()) } == 0 {
            return Ok(());
        }
        Err(DetachError::Detach {
            source: io::Error::last_os_error(),
        })
    }

    /// Attaches the thread. Does nothing if it is attached.
    pub fn reattach(&mut self) {
        // SAFETY: as for `detach`.
        unsafe { library::rampart_reattach(self.cpu.detached.as_ptr()) }
    }

    /// Returns whether the thread is detached. Costs a read of memory.
    #[must_use]
    pub fn is_detached(&self) -> bool {
        // SAFETY: the structure is valid.
        unsafe { library::rampart_is_detached(self.cpu.detached.as_ptr()) != 0 }
    }
}

impl Deref for DetachedThread<'_> {
    type Target = Cpu;

    fn deref(&self) -> &Cpu {
        self.cpu
    }
}

impl Drop for DetachedThread<'_> {
    fn drop(&mut self) {
        self.reattach();
    }
}
