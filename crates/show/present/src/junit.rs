// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The verdicts as a JUnit report, for continuous integration.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestSuite};
use rampart_model::{Evaluation, NotMeasured, Question, Verdict, VerdictOutcome};

use crate::report::part_words;
use crate::{format, transfer_matrix};

/// Returns the evaluation as JUnit XML: a suite for each domain, a test case for each verdict.
///
/// `holds` passes; `fails` and `leaks` are failures with the verdict's statement; `inconclusive`
/// and parts that were not measured are skipped with the reason, so that a missing result never counts
/// as a success.
///
/// A domain's own disturbance is no verdict: a positive control passes if the block affected it, and is
/// skipped if not, because then the other domains' cases of that block prove nothing.
///
/// # Panics
/// Never: the writer writes to memory, and characters that XML lacks are left out.
#[must_use]
pub fn junit(evaluation: &Evaluation) -> String {
    let mut report = Report::new("rampart evaluate");
    report.set_time(
        evaluation
            .records
            .iter()
            .map(|record| Duration::from(record.exposure.duration))
            .sum(),
    );
    for domain in &evaluation.settings.domains {
        let mut suite = TestSuite::new(domain.name.as_str());
        suite.add_property(Property::new("machine", format::machine(evaluation)));
        suite.add_property(Property::new("bench", format::bench(&evaluation.bench)));
        suite.add_property(Property::new("state", format::state(evaluation)));
        suite.add_property(Property::new("tool", evaluation.tool_version.as_str()));
        let verdicts = evaluation
            .verdicts
            .iter()
            .filter(|verdict| verdict.domain == domain.name);
        suite.add_test_cases(verdicts.map(verdict_case));
        report.add_test_suite(suite);
    }
    if !evaluation.not_measured.is_empty() {
        let mut suite = TestSuite::new("not measured");
        suite.add_test_cases(evaluation.not_measured.iter().map(not_measured_case));
        report.add_test_suite(suite);
    }
    report
        .to_string()
        .expect("writing XML to memory cannot fail")
}

fn verdict_case(verdict: &Verdict) -> TestCase {
    let own = transfer_matrix::is_own(verdict);
    let passed = match verdict.outcome {
        _ if transfer_matrix::is_control(verdict) => transfer_matrix::is_affected(verdict),
        VerdictOutcome::Leaks => own,
        outcome => outcome == VerdictOutcome::Holds,
    };
    let mut status = match verdict.outcome {
        _ if passed => TestCaseStatus::success(),
        VerdictOutcome::Fails | VerdictOutcome::Leaks if !own => {
            TestCaseStatus::non_success(NonSuccessKind::Failure)
        }
        _ => TestCaseStatus::skipped(),
    };
    let exposure = format::exposure(&verdict.exposure);
    if !passed {
        status.set_message(verdict.statement.as_str());
        status.set_type(verdict.outcome.to_string());
        status.set_description(format!("{}\nexposure: {exposure}", verdict.statement));
    }
    let mut case = TestCase::new(verdict.id.as_str(), status);
    case.set_classname(format!("{}.{}", verdict.domain, question(verdict.question)));
    case.set_time(Duration::from(verdict.exposure.duration));
    case.set_system_out(format!("{}\nexposure: {exposure}", verdict.statement));
    case
}

fn not_measured_case(not_measured: &NotMeasured) -> TestCase {
    let reasons: Vec<String> = not_measured
        .findings
        .iter()
        .map(ToString::to_string)
        .collect();
    let mut status = TestCaseStatus::skipped();
    status.set_message(reasons.join("; "));
    status.set_type("not measured");
    let mut case = TestCase::new(part_words(&not_measured.part), status);
    case.set_classname("not measured");
    case
}

const fn question(question: Question) -> &'static str {
    match question {
        Question::Deadline => "deadline",
        Question::SameAsHost => "same-as-host",
        Question::Interference => "interference",
        Question::Transfer => "transfer",
        Question::Crash => "crash",
    }
}
