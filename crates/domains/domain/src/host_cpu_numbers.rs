// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a meter in a domain with a kernel of its own tells, with its CPUs numbered as the host numbers
//! them.

use rampart_model::{CpuId, CpuSet, MeterEvent, ThreadOutcome};

/// The event with the host's number for each of the domain's.
pub(crate) fn on_host(mut event: MeterEvent, host: &dyn Fn(CpuId) -> CpuId) -> MeterEvent {
    match &mut event {
        MeterEvent::Ready(ready) => {
            for thread in &mut ready.threads {
                thread.cpu = host(thread.cpu);
            }
        }
        MeterEvent::Batch(batch) => batch.cpu = host(batch.cpu),
        MeterEvent::Finished { threads, .. } => {
            for thread in threads {
                outcome_on_host(thread, host);
            }
        }
        MeterEvent::Started { .. } | MeterEvent::Refused(_) => {}
    }
    event
}

fn outcome_on_host(thread: &mut ThreadOutcome, host: &dyn Fn(CpuId) -> CpuId) {
    thread.cpu = host(thread.cpu);
    let placement = &mut thread.placement;
    for set in [
        &mut placement.affinity,
        &mut placement.cpus_seen,
        &mut placement.housekeeping,
    ] {
        *set = set.iter().map(host).collect::<CpuSet>();
    }
}
