// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Launched and left again and again, under load.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rampart_cells::device::{Device, Error};
use rampart_hypervisor_core::format::{MemoryFlags, Refusal};
use rampart_hypervisor_core::interface::PAGE_BYTES;

use crate::support::{Done, HYPERVISOR, enable, region, say, system};

/// Threads that go from CPU to CPU, so that interrupts between CPUs are needed all the time.
fn under_load<T>(work: impl FnOnce() -> T) -> T {
    static ENDING: AtomicBool = AtomicBool::new(false);
    ENDING.store(false, Relaxed);
    std::thread::scope(|scope| {
        for first in 0..3_usize {
            scope.spawn(move || {
                let mut cpu = first;
                while !ENDING.load(Relaxed) {
                    cpu = (cpu + 1) % 4;
                    // SAFETY: a set of CPUs is plain data; a CPU that is away is an error, no more.
                    unsafe {
                        let mut set: libc::cpu_set_t = std::mem::zeroed();
                        libc::CPU_SET(cpu, &mut set);
                        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
                    }
                    std::thread::sleep(Duration::from_millis(2));
                    let begin = Instant::now();
                    while begin.elapsed() < Duration::from_millis(2) {
                        std::hint::spin_loop();
                    }
                }
            });
        }
        let result = work();
        ENDING.store(true, Relaxed);
        result
    })
}

/// Descriptions of the machine that are wrong in one thing: the hypervisor says which entry, and why, and
/// is not there afterwards.
pub(crate) fn refused(device: &Device) -> Done {
    let (mut twice, mut own) = (system()?, system()?);
    twice.cpus.push(twice.cpus[0]);
    let last = own.memory.len();
    own.memory.push(region(
        HYPERVISOR.0,
        HYPERVISOR.0,
        PAGE_BYTES,
        MemoryFlags::READ,
    ));
    let wrong = [
        (twice, Refusal::CpuTwice, 4),
        (own, Refusal::MemoryReserved, last),
    ];
    for (blob, wanted, entry) in wrong {
        let answer = device.enable(HYPERVISOR.0, HYPERVISOR.1, &blob.bytes());
        let told = matches!(
            &answer,
            Err(Error::Refused { refusal, index, .. }) if *refusal == wanted && *index == entry as u64
        );
        let gone = !device.state()?.is_enabled();
        say(
            told && gone,
            &format!("refused: {wanted:?} of entry {entry}: {answer:?}"),
        );
    }
    enable(device)?;
    Ok(device.disable()?)
}

pub(crate) fn leave(device: &Device, turns: usize) -> Done {
    under_load(|| {
        for turn in 0..turns {
            enable(device).map_err(|error| format!("turn {turn}: {error}"))?;
            device
                .disable()
                .map_err(|error| format!("turn {turn}: {error}"))?;
        }
        say(
            true,
            &format!("enabled and disabled {turns} times under load"),
        );
        Ok(())
    })
}
