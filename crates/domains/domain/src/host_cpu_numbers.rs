// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Translates the CPU numbers of a domain's own kernel into those of the host.

use rampart_model::{CpuId, CpuSet, MeterEvent, ThreadOutcome};

/// Returns the event with each CPU numbered as on the host.
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
