// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of `c/detached.h`.

use std::ffi::c_int;
use std::marker::{PhantomData, PhantomPinned};

/// `struct rampart_detached`.
#[repr(C)]
pub(crate) struct Detached {
    opaque: [u8; 0],
    pinned: PhantomData<(*mut u8, PhantomPinned)>,
}

unsafe extern "C" {
    pub(crate) fn rampart_detached_take(cpu: c_int) -> *mut Detached;
    pub(crate) fn rampart_detached_from_descriptor(descriptor: c_int) -> *mut Detached;
    pub(crate) fn rampart_detached_close(detached: *mut Detached);
    pub(crate) fn rampart_detached_on_system_calls(detached: *mut Detached, what: c_int);
    pub(crate) fn rampart_detach(detached: *mut Detached) -> c_int;
    pub(crate) fn rampart_reattach(detached: *mut Detached);
    pub(crate) fn rampart_is_detached(detached: *const Detached) -> c_int;
    pub(crate) fn rampart_detached_counts(
        detached: *const Detached,
        counts: *mut crate::Counts,
    ) -> c_int;
    pub(crate) fn rampart_clock(detached: *const Detached) -> u64;
    pub(crate) fn rampart_sleep_until(detached: *const Detached, time: u64);
}
