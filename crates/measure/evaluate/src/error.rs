// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors that end an evaluation. The error of a single run is in its record instead.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rampart_load::BlocksError;
use rampart_model::{Condition, CpuSet, Finding, Nanos, ParseCpuSetError};

/// An error that ends an evaluation.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// The process may use no online CPU.
    #[error("no usable CPU: this process may run on none of the online CPUs")]
    NoCpu,
    /// The requested CPUs are not usable.
    #[error(
        "--cpus: cannot use CPUs {asked} (expected some of {usable}); fix: rampart evaluate --cpus {usable}; fix: start rampart without taskset and outside of a restricted cpuset"
    )]
    CpusUnusable {
        /// The requested one.
        asked: CpuSet,
        /// The usable CPUs.
        usable: CpuSet,
    },
    /// A named domain cannot be hosted.
    #[error("--domains: this machine cannot host `{domain}` now{}", list(findings))]
    DomainUnavailable {
        /// The domain.
        domain: String,
        /// The reasons with their fixes.
        findings: Vec<Finding>,
    },
    /// A load needs CPUs that are not measured, and there are none.
    #[error("--loads: `{condition}` needs a CPU that is not measured, and every CPU is measured; fix: --loads {}@same, or fewer CPUs with --cpus", condition.load.word())]
    NoOtherCpu {
        /// The condition.
        condition: Condition,
    },
    /// The time is too short for one short run of each entry of the matrix.
    #[error(
        "--for {total}: too short for {entries} entries of the matrix; fix: --for {}, or fewer --domains, --loads or --meters",
        needed.as_argument()
    )]
    TooShort {
        /// The requested time.
        total: Nanos,
        /// Number of entries of the matrix.
        entries: u64,
        /// The shortest sufficient time, including the requested disturbances.
        needed: Nanos,
    },
    /// The time is too short for a comparison with and without the plan.
    #[error(
        "--for {total}: too short to compare {variants} variants of the plan; fix: --for {}, or fewer --domains, --loads or --meters, or omit --for",
        needed.as_argument()
    )]
    TooShortToCompare {
        /// The requested time.
        total: Nanos,
        /// Number of compared variants, including the whole plan.
        variants: usize,
        /// The shortest sufficient time.
        needed: Nanos,
    },
    /// The plan has no domain of this name.
    #[error("--domains: the plan has no domain `{asked}` (expected {})", names.join(", "))]
    NotInPlan {
        /// The requested one.
        asked: String,
        /// The domains of the plan.
        names: Vec<String>,
    },
    /// No domain of the plan can be measured.
    #[error(
        "{file}: no domain of the plan can be measured on this machine{}",
        list(findings)
    )]
    NothingInPlan {
        /// The plan's file.
        file: String,
        /// The reasons with their fixes.
        findings: Vec<Finding>,
    },
    /// A plan is active, and a comparison has to begin without one.
    #[error(
        "{file}: is the active plan, and a comparison begins without one; fix: rampart release"
    )]
    PlanIsActive {
        /// The plan's file.
        file: String,
    },
    /// Another plan than the one to be measured is active.
    #[error("{file}: cannot be measured while the plan {active} is active; fix: rampart release")]
    AnotherPlanIsActive {
        /// The file of the plan to be measured.
        file: String,
        /// The file of the active plan.
        active: String,
    },
    /// A list of CPUs does not fit the machine.
    #[error(transparent)]
    InvalidCpus(ParseCpuSetError),
    /// The blocks of a test failed.
    #[error(transparent)]
    Blocks(#[from] BlocksError),
    /// The machine cannot be changed, or an active plan prevents it.
    #[error(transparent)]
    Host(#[from] rampart_host::HostError),
    /// The time is too short for the requested disturbances.
    #[error(
        "--disturb: {rounds} disturbances need at least {needed}, and their part of the time is {budget}; fix: --for {}, or fewer disturbances or domains",
        total.as_argument()
    )]
    TooShortForDisturbances {
        /// The part of the time for disturbances.
        budget: Nanos,
        /// Number of requested disturbances.
        rounds: u64,
        /// The shortest sufficient part.
        needed: Nanos,
        /// The shortest sufficient total, including the matrix.
        total: Nanos,
    },
    /// The domain of a disturbance is not measured, or no other domain runs at the same time.
    #[error("--disturb: this evaluation cannot include `{asked}` (expected {})", possible.join(", "))]
    NoSuchDisturbance {
        /// The requested one.
        asked: String,
        /// Possible disturbances of the same kind.
        possible: Vec<String>,
    },
    /// The settings of a meter are invalid.
    #[error("invalid settings of the meter{}", list(findings))]
    BadPlan {
        /// The invalid settings.
        findings: Vec<Finding>,
    },
    /// The result directory cannot be written.
    #[error("cannot write {}: {source}; fix: choose another directory with --out", path.display())]
    Output {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The result directory has an evaluation already.
    #[error("{}: has an evaluation, which is not overwritten; fix: choose another directory with --out", path.display())]
    OutputTaken {
        /// The directory.
        path: PathBuf,
    },
    /// The document cannot be read.
    #[error("cannot read {}: {source}; fix: give the directory that `rampart evaluate` printed", path.display())]
    Unreadable {
        /// The document.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is not an evaluation document.
    #[error("{}: not an evaluation document: {reason}", path.display())]
    NotAnEvaluation {
        /// The document.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The meter of a single measurement does not respond.
    #[error(
        "{domain}: the meter did not end within {} s after its time and was killed; fix: check with `ps` for other work on its CPUs and with `dmesg` for a kernel message",
        waited.as_secs()
    )]
    Silent {
        /// The domain.
        domain: String,
        /// The time waited for its end.
        waited: Duration,
    },
    /// The domain of a single measurement failed.
    #[error(transparent)]
    Domain(#[from] rampart_domain::DomainError),
}

fn list(findings: &[Finding]) -> String {
    findings
        .iter()
        .map(|finding| format!("\n  {finding}"))
        .collect()
}
