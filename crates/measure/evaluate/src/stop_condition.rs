// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ends an evaluation early: on request, or after a time limit that only a fault exceeds.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rampart_model::{DomainProgram, EvaluatedDomain, Finding, Nanos, Severity};

/// The limit as a multiple of the planned time.
const LIMIT_FACTOR: u32 = 4;
/// Time for the start of a domain, which may fail twice before it is left out. A guest on an
/// emulated machine needs minutes.
const START: Duration = Duration::from_secs(60);
const GUEST_START: Duration = Duration::from_secs(120);
const EMULATED_GUEST_START: Duration = Duration::from_secs(480);
const ATTEMPTS: u32 = 2;

/// Decides whether to continue.
#[derive(Debug)]
pub(crate) struct StopCondition<'a> {
    asked: &'a AtomicBool,
    began: Instant,
    limit: Duration,
    now: AtomicBool,
    /// The time after which the limit ended the evaluation.
    by_limit: OnceCell<Duration>,
}

impl<'a> StopCondition<'a> {
    /// Creates a condition that ends the evaluation if `asked` is set, and after `limit` in any
    /// case.
    pub(crate) fn new(asked: &'a AtomicBool, limit: Duration) -> Self {
        Self {
            asked,
            began: Instant::now(),
            limit,
            now: AtomicBool::new(false),
            by_limit: OnceCell::new(),
        }
    }

    /// Returns the time since the beginning.
    pub(crate) fn elapsed(&self) -> Nanos {
        self.began.elapsed().into()
    }

    /// Checks whether the evaluation must end, and sets [`Self::flag`] if so. Call this often.
    pub(crate) fn check(&self) -> bool {
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

    /// Returns whether a check found that the evaluation must end. Not checked again after the last
    /// run: a complete evaluation was not ended early.
    pub(crate) fn is_over(&self) -> bool {
        self.now.load(Ordering::Relaxed)
    }

    /// Returns the flag that is set when the evaluation must end, for code without access to the
    /// limit.
    pub(crate) const fn flag(&self) -> &AtomicBool {
        &self.now
    }

    /// Returns a finding if the limit ended the evaluation, otherwise `None`.
    pub(crate) fn finding(&self) -> Option<Finding> {
        self.by_limit.get().map(|elapsed| {
            Finding::new(
                Severity::Error,
                "evaluation",
                "ended early because it took much longer than planned; judged from the runs until then",
            )
            .values(
                Nanos::from(*elapsed).to_string(),
                format!("{} at the most", Nanos::from(self.limit)),
            )
            .fix("leave out with --domains what did not come up, or give more time with --for")
        })
    }
}

/// Returns the limit for an evaluation of these domains that is planned for `planned`.
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
    planned.saturating_mul(LIMIT_FACTOR) + starts * ATTEMPTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::DomainKind;
    use rampart_model::{CpuSet, DomainSelection};

    #[test]
    fn ends_on_request_and_at_the_limit_with_a_reason() {
        let asked = AtomicBool::new(false);
        let stop_condition = StopCondition::new(&asked, Duration::from_secs(3600));
        assert!(!stop_condition.check() && stop_condition.finding().is_none());
        asked.store(true, Ordering::Relaxed);
        assert!(stop_condition.check() && stop_condition.flag().load(Ordering::Relaxed));
        assert!(
            stop_condition.finding().is_none(),
            "a requested stop needs no finding"
        );

        let asked = AtomicBool::new(false);
        let over = StopCondition::new(&asked, Duration::ZERO);
        std::thread::sleep(Duration::from_millis(1));
        assert!(over.check() && over.flag().load(Ordering::Relaxed));
        let text = over.finding().expect("the limit").to_string();
        assert!(text.contains("--for"), "{text}");
        asked.store(true, Ordering::Relaxed);
        assert!(over.finding().is_some(), "it was the limit that ended it");
    }

    #[test]
    fn a_request_after_the_last_run_has_no_effect() {
        let asked = AtomicBool::new(false);
        let stop_condition = StopCondition::new(&asked, Duration::from_millis(1));
        std::thread::sleep(Duration::from_millis(2));
        // The last run was over before the next check.
        assert!(stop_condition.finding().is_none() && !stop_condition.is_over());
        asked.store(true, Ordering::Relaxed);
        assert!(!stop_condition.is_over() && !stop_condition.flag().load(Ordering::Relaxed));
    }

    #[test]
    fn guests_get_more_time() {
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
