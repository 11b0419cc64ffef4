// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When an evaluation ends before its time: because it was asked to, or because it takes so long
//! that something must have gone wrong.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rampart_model::{DomainProgram, EvaluatedDomain, Finding, Nanos, Severity};

/// What was planned may take so many times as long.
const PATIENCE: u32 = 4;
/// How long a domain may take until it is up, by its kind: twice, and then it is left out. A guest
/// on an emulated machine, whose own processors are emulated, needs minutes.
const START: Duration = Duration::from_secs(60);
const GUEST_START: Duration = Duration::from_secs(120);
const EMULATED_GUEST_START: Duration = Duration::from_secs(480);
const ATTEMPTS: u32 = 2;

/// Whether to go on.
#[derive(Debug)]
pub(crate) struct StopCondition<'a> {
    asked: &'a AtomicBool,
    began: Instant,
    limit: Duration,
    now: AtomicBool,
    /// After how long the limit ended it.
    by_limit: OnceCell<Duration>,
}

impl<'a> StopCondition<'a> {
    /// Ends when `asked` to, and after `limit` in any case.
    pub(crate) fn new(asked: &'a AtomicBool, limit: Duration) -> Self {
        Self {
            asked,
            began: Instant::now(),
            limit,
            now: AtomicBool::new(false),
            by_limit: OnceCell::new(),
        }
    }

    /// Whether it is to end. To be asked often: [`Self::flag`] follows.
    pub(crate) fn look(&self) -> bool {
        if self.is_over() {
            return true;
        }
        let elapsed = self.began.elapsed();
        let asked = self.asked.load(Ordering::Relaxed);
        if !asked && elapsed > self.limit {
            let _ = self.by_limit.set(elapsed);
        }
        if asked || elapsed > self.limit {
            self.now.store(true, Ordering::Relaxed);
        }
        self.is_over()
    }

    /// Whether it was found that it is to end. After the last run that stays as it is: what was
    /// measured to the end was not ended early.
    pub(crate) fn is_over(&self) -> bool {
        self.now.load(Ordering::Relaxed)
    }

    /// Set when it is to end, for what knows nothing of limits.
    pub(crate) const fn flag(&self) -> &AtomicBool {
        &self.now
    }

    /// That the limit ended it; none where it did not.
    pub(crate) fn finding(&self) -> Option<Finding> {
        self.by_limit.get().map(|elapsed| {
            Finding::new(
                Severity::Error,
                "evaluation",
                "ended early because it took much longer than planned, and judged from the runs until then",
            )
            .values(
                Nanos::from(*elapsed).to_string(),
                format!("{} at the most", Nanos::from(self.limit)),
            )
            .fix("leave out with --domains what did not come up, or give more time with --for")
        })
    }
}

/// The longest that an evaluation of these domains may take which is planned for `planned`.
pub(crate) fn longest<'p>(
    planned: Duration,
    domains: impl IntoIterator<Item = &'p EvaluatedDomain>,
    emulated: bool,
) -> Duration {
    let start = |domain: &EvaluatedDomain| match domain.selection.kind.program() {
        DomainProgram::Guest if emulated => EMULATED_GUEST_START,
        DomainProgram::Guest => GUEST_START,
        _ => START,
    };
    let starts: Duration = domains.into_iter().map(start).sum();
    planned.saturating_mul(PATIENCE) + starts * ATTEMPTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::DomainKind;
    use rampart_model::{CpuSet, DomainSelection};

    #[test]
    fn it_ends_when_asked_and_after_its_limit_with_the_reason() {
        let asked = AtomicBool::new(false);
        let ending = StopCondition::new(&asked, Duration::from_secs(3600));
        assert!(!ending.look() && ending.finding().is_none());
        asked.store(true, Ordering::Relaxed);
        assert!(ending.look() && ending.flag().load(Ordering::Relaxed));
        assert!(ending.finding().is_none(), "who asked knows");

        let nobody = AtomicBool::new(false);
        let over = StopCondition::new(&nobody, Duration::ZERO);
        std::thread::sleep(Duration::from_millis(1));
        assert!(over.look() && over.flag().load(Ordering::Relaxed));
        let told = over.finding().expect("the limit").to_string();
        assert!(told.contains("--for"), "{told}");
        nobody.store(true, Ordering::Relaxed);
        assert!(over.finding().is_some(), "it was the limit that ended it");
    }

    #[test]
    fn what_comes_after_the_end_did_not_end_it() {
        let asked = AtomicBool::new(false);
        let ending = StopCondition::new(&asked, Duration::from_millis(1));
        std::thread::sleep(Duration::from_millis(2));
        // The last run was over before anybody looked again.
        assert!(ending.finding().is_none() && !ending.is_over());
        asked.store(true, Ordering::Relaxed);
        assert!(!ending.is_over() && !ending.flag().load(Ordering::Relaxed));
    }

    #[test]
    fn guests_have_the_time_that_they_need() {
        let domain = |kind| EvaluatedDomain {
            policy: None,
            deadline: None,
            name: String::new(),
            selection: DomainSelection::of(kind),
            cpus: CpuSet::new(),
            description: String::new(),
        };
        let domains = [domain(DomainKind::Host), domain(DomainKind::Vm)];
        let planned = Duration::from_secs(240);
        let limit = longest(planned, &domains, true);
        assert_eq!(limit, Duration::from_secs(4 * 240 + 2 * (60 + 480)));
        assert!(longest(planned, &domains, false) < limit);
    }
}
