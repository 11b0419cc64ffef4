// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Adjusts a machine that continues from a saved state: without this its real time would be that of the save, and
//! every machine from the same state would draw the same random numbers.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

use rustix::time::{ClockId, Timespec, clock_settime};

use crate::payloads::SEED;

/// `RNDADDENTROPY` and `RNDRESEEDCRNG` of random(4): `_IOW('R', 3, int [2])` and `_IO('R', 7)`. The latter makes the
/// generator use the added seed at once (Linux 5.18 and newer).
const ADD_ENTROPY: libc::c_ulong = 0x4008_5203;
const RESEED: libc::c_ulong = 0x5207;

/// `struct rand_pool_info` of random(4).
#[repr(C)]
struct PoolInfo {
    entropy_bits: i32,
    bytes: i32,
    seed: [u8; SEED],
}

/// Sets the real time and mixes the seed into the random numbers. Returns what failed, or an empty text.
pub(super) fn adjust(real_time: u64, seed: [u8; SEED]) -> String {
    let steps = [
        ("set the clock", set_clock(real_time)),
        ("mix the random numbers", mix(seed)),
    ];
    let failed: Vec<String> = steps
        .into_iter()
        .filter_map(|(step, result)| Some(format!("cannot {step}: {}", result.err()?)))
        .collect();
    failed.join("; ")
}

fn set_clock(nanoseconds: u64) -> io::Result<()> {
    let time = Timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as i64,
        tv_nsec: (nanoseconds % 1_000_000_000) as _,
    };
    Ok(clock_settime(ClockId::Realtime, time)?)
}

fn mix(seed: [u8; SEED]) -> io::Result<()> {
    let device = File::open("/dev/urandom")?;
    let info = PoolInfo {
        entropy_bits: 8 * SEED as i32,
        bytes: SEED as i32,
        seed,
    };
    // SAFETY: the kernel reads the structure, whose field `bytes` is the length of what follows it, and keeps no
    // reference.
    let added = unsafe { libc::ioctl(device.as_raw_fd(), ADD_ENTROPY as _, &raw const info) };
    if added != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has no argument.
    let reseeded = unsafe { libc::ioctl(device.as_raw_fd(), RESEED as _) };
    match reseeded {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
