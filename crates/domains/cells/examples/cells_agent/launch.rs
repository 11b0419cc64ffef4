// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Enables and disables the hypervisor repeatedly under load.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rampart_cells::device::{Device, DeviceError};
use rampart_hypervisor_core::format::{MemoryFlags, Refusal};
use rampart_hypervisor_core::interface::PAGE_BYTES;

use crate::support::{Done, HYPERVISOR, disable, enable, region, report, system};

/// Runs `work` while threads migrate between CPUs, which causes constant interrupts between CPUs.
fn under_load<T>(work: impl FnOnce() -> T) -> T {
    static ENDING: AtomicBool = AtomicBool::new(false);
    ENDING.store(false, Relaxed);
    std::thread::scope(|scope| {
        for first in 0..3_usize {
            scope.spawn(move || {
                let mut cpu = first;
                while !ENDING.load(Relaxed) {
                    cpu = (cpu + 1) % 4;
                    // SAFETY: a CPU set is plain data; an offline CPU only causes an error.
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

/// Tries configurations with one error each: the hypervisor reports entry and reason, and is not
/// enabled afterwards.
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
        let reached = matches!(
            &answer,
            Err(DeviceError::Refused { refusal, index, .. }) if *refusal == wanted && *index == entry as u64
        );
        let gone = !device.state()?.is_enabled();
        report(
            reached && gone,
            &format!("refused: {wanted:?} of entry {entry}: {answer:?}"),
        );
    }
    enable(device)?;
    disable(device)
}

pub(crate) fn leave(device: &Device, turns: usize) -> Done {
    under_load(|| {
        for turn in 0..turns {
            enable(device).map_err(|error| format!("turn {turn}: {error}"))?;
            disable(device).map_err(|error| format!("turn {turn}: {error}"))?;
        }
        report(
            true,
            &format!("enabled and disabled {turns} times under load"),
        );
        Ok(())
    })
}
