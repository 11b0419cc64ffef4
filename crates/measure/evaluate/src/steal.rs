// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports CPU time that the hypervisor under this machine gave to other machines.

use rampart_model::{Finding, Severity, ThreadOutcome};

/// Smallest part of the time that is reported.
const WORTH_NAMING: f64 = 0.01;

/// Returns a finding about the stolen part (0 to 1) of the time of `location`, or `None` if it is
/// negligible.
pub(crate) fn finding(location: &str, part: f64) -> Option<Finding> {
    (part > WORTH_NAMING).then(|| {
        Finding::new(
            Severity::Warning,
            location,
            "the hypervisor below this machine took CPU time from it, which is part of the figures",
        )
        .values(format!("{:.1} % steal", part * 100.0), "0 %")
    })
}

/// Returns the same for the CPU of a measuring thread.
pub(crate) fn of_thread(thread: &ThreadOutcome) -> Option<Finding> {
    let steal = thread.counters.steal?;
    let part = steal.as_secs_f64() / thread.duration.as_secs_f64().max(1e-9);
    finding(&format!("CPU {}", thread.cpu), part)
}
