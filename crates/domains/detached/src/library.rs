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

/// Whether the C library is in this program: there was a C compiler for its architecture. Without it no CPU can be
/// taken.
pub const IS_BUILT: bool = cfg!(has_library);

macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        #[cfg(has_library)]
        unsafe extern "C" {
            $(pub(crate) fn $name($($argument: $kind),*) $(-> $result)?;)*
        }
        $(
            /// Returns a null pointer or 0.
            #[cfg(not(has_library))]
            pub(crate) unsafe fn $name($(_: $kind),*) $(-> $result)? {
                // SAFETY: the results are numbers and pointers.
                unsafe { std::mem::zeroed() }
            }
        )*
    };
}

functions! {
    fn rampart_detached_take(cpu: c_int) -> *mut Detached;
    fn rampart_detached_from_descriptor(descriptor: c_int) -> *mut Detached;
    fn rampart_detached_close(detached: *mut Detached);
    fn rampart_detached_on_system_calls(detached: *mut Detached, what: c_int);
    fn rampart_detach(detached: *mut Detached) -> c_int;
    fn rampart_reattach(detached: *mut Detached);
    fn rampart_is_detached(detached: *const Detached) -> c_int;
    fn rampart_detached_counts(detached: *const Detached, counts: *mut crate::Counts) -> c_int;
    fn rampart_clock(detached: *const Detached) -> u64;
    fn rampart_clock_frequency(detached: *const Detached) -> u64;
    fn rampart_sleep_until(detached: *const Detached, time: u64);
}
