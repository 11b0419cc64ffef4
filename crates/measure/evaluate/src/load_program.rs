// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports when the meter's own loads replace those of `stress-ng`.

use rampart_load::LoadProgram;
use rampart_model::{EvaluationPart, Finding, Machine, NotMeasured, Severity};
use rampart_rules::{Package, install};

/// Returns the loads of `stress-ng` as not measured, with the reason and the fix, if the meter makes
/// the loads; `None` if `stress-ng` makes them.
pub(crate) fn replacement(machine: &Machine, program: &LoadProgram) -> Option<NotMeasured> {
    let LoadProgram::Meter { reason, .. } = program else {
        return None;
    };
    let what = format!("{reason}; the loads are those of {}", program.version());
    Some(NotMeasured {
        part: EvaluationPart::LoadsOfStressNg,
        findings: vec![
            Finding::new(Severity::Note, "stress-ng", what)
                .fix(install(&machine.operating_system, Package::StressNg)),
        ],
    })
}
