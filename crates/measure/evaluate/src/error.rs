// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong with an evaluation as a whole. What goes wrong with one run stays in its
//! record instead.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rampart_model::{Condition, CpuSet, Finding, Nanos};

/// Why there is no evaluation.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// The process may use no online CPU.
    #[error("no usable CPU: this process is allowed none of the CPUs that are online")]
    NoCpu,
    /// The CPUs asked for are not there.
    #[error(
        "--cpus: `{asked}` is not usable (usable here: {usable}); choose among those, or widen the cpuset or `taskset` that rampart was started in"
    )]
    CpusUnusable {
        /// What was asked for.
        asked: CpuSet,
        /// What could be used.
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
    /// A load on other CPUs, where there are none.
    #[error("--loads: `{condition}` needs a CPU that is not measured, and there is none; write `{}@same`, or measure fewer CPUs with --cpus", condition.load.word())]
    NoOtherCpu {
        /// The condition.
        condition: Condition,
    },
    /// The time does not suffice for one short run of each cell.
    #[error(
        "--for {total}: too short for {entries} entries of the matrix; give at least --for {}, or fewer --domains, --loads or --meters",
        needed.as_argument()
    )]
    TooShort {
        /// The time asked for.
        total: Nanos,
        /// Cells of the matrix.
        entries: u64,
        /// The shortest total that would do, with the disturbances that were asked for.
        needed: Nanos,
    },
    /// The time does not suffice to compare with the plan and without.
    #[error(
        "--for {total}: too short to compare the machine in {variants} states, with the plan and without it or a part of it; give at least --for {}, or fewer --domains, --loads or --meters, or leave --for out",
        needed.as_argument()
    )]
    TooShortToCompare {
        /// The time asked for.
        total: Nanos,
        /// What is compared, the whole plan among it.
        variants: usize,
        /// The shortest time that would do.
        needed: Nanos,
    },
    /// A domain is named that the plan does not have.
    #[error("--domains: `{asked}` is not in the plan; it has {}", names.join(", "))]
    NotInPlan {
        /// What was asked for.
        asked: String,
        /// What could be.
        names: Vec<String>,
    },
    /// The plan leaves nothing to measure.
    #[error("{file}: no domain of the plan can be measured here{}", list(findings))]
    NothingInPlan {
        /// The plan's file.
        file: String,
        /// The reasons with their fixes.
        findings: Vec<Finding>,
    },
    /// A plan stands applied, and the comparison has to begin without.
    #[error(
        "{file}: stands applied, and the comparison begins without it; take it back with `rampart release`, and apply it again afterwards"
    )]
    PlanIsActive {
        /// The plan's file.
        file: String,
    },
    /// Another plan than the one that is to be measured stands applied.
    #[error(
        "{file}: cannot be measured while {standing} stands applied, whose settings or domains are others; take that back with `rampart release` first"
    )]
    AnotherPlanIsActive {
        /// The file of the plan to be measured.
        file: String,
        /// The file of the active plan.
        standing: String,
    },
    /// The machine cannot be changed, or a plan is in the way.
    #[error(transparent)]
    Host(#[from] rampart_host::HostError),
    /// The time does not suffice for the disturbances that were asked for.
    #[error(
        "--disturb: {budget} of the time is too short for {rounds} disturbances, which need {needed} at least; give more time with --for {}, or fewer disturbances or domains",
        total.as_argument()
    )]
    TooShortForDisturbances {
        /// The part of the time that disturbances get.
        budget: Nanos,
        /// Disturbances asked for.
        rounds: u64,
        /// The shortest part that would do.
        needed: Nanos,
        /// The shortest total that would do, of which the matrix gets its part.
        total: Nanos,
    },
    /// A disturbance of a domain that is not there, or that has no other to be watched.
    #[error("--disturb: `{asked}` cannot be done in this evaluation; possible are {}", possible.join(", "))]
    NoSuchDisturbance {
        /// What was asked for.
        asked: String,
        /// Disturbances of the same sort that can be.
        possible: Vec<String>,
    },
    /// A meter cannot be asked that.
    #[error("the meter cannot do what was asked{}", list(findings))]
    BadPlan {
        /// What is wrong.
        findings: Vec<Finding>,
    },
    /// The result directory cannot be written.
    #[error("{}: cannot be written: {source}; choose another place with --out", path.display())]
    Output {
        /// The file or directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is an evaluation already.
    #[error("{}: holds an evaluation already, which is not overwritten; choose another place with --out", path.display())]
    OutputTaken {
        /// The directory.
        path: PathBuf,
    },
    /// The document cannot be read.
    #[error("{}: cannot be read: {source}; name the directory that `rampart evaluate` printed", path.display())]
    Unreadable {
        /// The document.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The document is none.
    #[error("{}: is not an evaluation document: {reason}", path.display())]
    NotAnEvaluation {
        /// The document.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A load program is missing.
    #[error(transparent)]
    Load(#[from] rampart_load::LoadError),
    /// The meter of a single measurement is lost.
    #[error(
        "{domain}: the meter has said nothing for {} s after its time was over, and was ended; see with `ps` what else has its CPUs, or with `dmesg` what became of it",
        waited.as_secs()
    )]
    Silent {
        /// In which domain.
        domain: String,
        /// For how long it was waited for.
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
