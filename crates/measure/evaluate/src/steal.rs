// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU time that the hypervisor under this machine gave to others.

use rampart_model::{Finding, Severity, ThreadOutcome};

/// Above this part of the time it is named beside the figures.
const WORTH_NAMING: f64 = 0.01;

/// That a part (0 to 1) of the time of a `place` was stolen; none where it is too little to matter.
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

/// The same of the CPU of a measuring thread.
pub(crate) fn of_thread(thread: &ThreadOutcome) -> Option<Finding> {
    let steal = thread.counters.steal?;
    let part = steal.as_secs_f64() / thread.duration.as_secs_f64().max(1e-9);
    finding(&format!("CPU {}", thread.cpu), part)
}
