// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps all threads except the measuring ones off the measured CPUs.

use rampart_model::{CpuSet, Finding, MeterSettings, Refusal, Severity};

use crate::linux::{diagnosis, scheduling};

/// The effective housekeeping CPUs of the main thread, and a finding about them.
#[derive(Debug, Default)]
pub(super) struct Housekeeping {
    pub(super) cpus: CpuSet,
    pub(super) finding: Option<Finding>,
}

/// Moves the calling thread to the plan's housekeeping CPUs and reads the result back.
pub(super) fn settle(settings: &MeterSettings) -> Result<Housekeeping, Refusal> {
    const PLACE: &str = "housekeeping CPUs of the meter";
    let read = || {
        scheduling::affinity()
            .map_err(|cause| diagnosis::system(PLACE, "cannot read the affinity", &cause))
    };
    let allowed = read()?;
    let wanted = if settings.housekeeping.is_empty() {
        allowed.difference(&settings.cpus)
    } else {
        settings.housekeeping.clone()
    };
    if !wanted.is_empty()
        && wanted != allowed
        && let Err(cause) = scheduling::set_affinity(&wanted)
    {
        return Err(match (cause.raw_os_error(), wanted.first()) {
            (Some(libc::EINVAL), Some(cpu)) => diagnosis::unusable_cpu(&wanted, &allowed, true)
                .unwrap_or_else(|| diagnosis::outside(cpu, &allowed)),
            _ => diagnosis::system(PLACE, "cannot move the main thread there", &cause),
        });
    }
    let cpus = read()?;
    let shared = cpus.intersection(&settings.cpus);
    let finding = if !shared.is_empty() {
        Some(
            Finding::new(
                Severity::Warning,
                PLACE,
                "the rest of the program runs on a measured CPU and disturbs it about 20 times a second",
            )
            .values(cpus.to_string(), format!("CPUs other than {}", settings.cpus))
            .fix("give the program a CPU that is not measured"),
        )
    } else if cpus != wanted {
        Some(
            Finding::new(
                Severity::Warning,
                PLACE,
                "the cpuset excludes some of the requested CPUs",
            )
            .values(cpus.to_string(), wanted.to_string()),
        )
    } else {
        None
    };
    Ok(Housekeeping { cpus, finding })
}
