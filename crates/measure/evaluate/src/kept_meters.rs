// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps meters and a load up from one run to the next, so that most of the time is measured.

use std::collections::BTreeMap;

use rampart_domain::{Domain, DomainError, Running, Start};
use rampart_host::Shield;
use rampart_load::Load;
use rampart_model::{
    Condition, CpuSet, EvaluatedDomain, Finding, MeterKind, MeterSettings, Nanos, Severity,
    ShieldReport,
};

use crate::outside_influence::OutsideInfluence;

/// Returns the warm-up at most of a meter that has measured before in the same process. Most meters look for the
/// shortest length in it, `wakeup` does ten of its usual cycles.
fn repeated_warm_up(meter: MeterKind) -> Nanos {
    match meter {
        MeterKind::Wakeup => Nanos::from_millis(10),
        _ => Nanos::from_millis(30),
    }
}

/// Returns whether the meters of an evaluation stay up between runs. With a guest, a cell or a detached
/// thread each run starts its own meter: the first two keep their CPUs busy and are isolated before the
/// others, the last two take their CPUs from Linux. So it does on an emulated machine, whose CPUs share
/// real ones.
pub(crate) fn meters_stay_up(domains: &[EvaluatedDomain], emulated: bool) -> bool {
    !emulated
        && domains
            .iter()
            .all(|domain| !domain.selection.kind.starts_first())
}

/// Returns whether no two domains measure on the same CPU.
pub(crate) fn have_own_cpus(domains: &[EvaluatedDomain]) -> bool {
    domains.iter().enumerate().all(|(index, one)| {
        domains[index + 1..]
            .iter()
            .all(|other| one.cpus.intersection(&other.cpus).is_empty())
    })
}

/// Meters that wait for their next measurement, and the load of the last run.
#[derive(Debug, Default)]
pub(crate) struct KeptMeters {
    /// By index of the domain, in the order in which they were started; `None` during a run.
    meters: Vec<(usize, Option<KeptMeter>)>,
    load: Option<KeptLoad>,
    /// Observer of the outside influences on each domain in the present isolation.
    observers: BTreeMap<usize, OutsideInfluence>,
    findings: Vec<Finding>,
}

#[derive(Debug)]
struct KeptMeter {
    running: Box<dyn Running>,
    /// The settings for which it is prepared, if it has not measured yet: then it expects the start and
    /// no other settings.
    prepared: Option<MeterSettings>,
}

#[derive(Debug)]
struct KeptLoad {
    condition: Condition,
    measured: CpuSet,
    load: Load,
}

impl KeptMeters {
    /// Returns the prepared meter of a domain: the one that waits, or a new one.
    ///
    /// # Errors
    /// Returns the error of [`Domain::start`].
    pub(crate) fn take(
        &mut self,
        index: usize,
        domain: &dyn Domain,
        start: &Start<'_>,
    ) -> Result<Box<dyn Running>, DomainError> {
        if let Some(slot) = self.slot(index)
            && let Some(mut meter) = slot.take()
        {
            let settings = MeterSettings {
                warm_up: (start.settings.warm_up).min(repeated_warm_up(start.settings.meter)),
                ..start.settings.clone()
            };
            let ready = match &meter.prepared {
                Some(prepared) => prepared == start.settings,
                None => matches!(meter.running.rearm(&settings), Ok(true)),
            };
            if ready {
                return Ok(meter.running);
            }
            *slot = Some(meter);
            self.end();
        }
        self.observers.clear();
        domain.start(start)
    }

    /// Returns the observer of outside influences on a domain, with its observations of the last run
    /// in the same isolation.
    pub(crate) fn take_observer(&mut self, index: usize) -> OutsideInfluence {
        self.observers.remove(&index).unwrap_or_default()
    }

    /// Keeps the observer of outside influences on a domain until its next run, or until the
    /// isolation changes.
    pub(crate) fn keep_observer(&mut self, index: usize, observer: OutsideInfluence) {
        self.observers.insert(index, observer);
    }

    /// Returns whether no meter waits or measures.
    pub(crate) const fn is_empty(&self) -> bool {
        self.meters.is_empty()
    }

    /// Starts the meter of a domain before its first run, so that all runs have the same isolation
    /// around them. If it fails, the first run starts it, and reports why it fails.
    pub(crate) fn start(&mut self, index: usize, domain: &dyn Domain, start: &Start<'_>) {
        if let Ok(running) = domain.start(start) {
            let prepared = Some(start.settings.clone());
            self.meters
                .push((index, Some(KeptMeter { running, prepared })));
        }
    }

    fn slot(&mut self, index: usize) -> Option<&mut Option<KeptMeter>> {
        let mut meters = self.meters.iter_mut();
        meters.find(|(of, _)| *of == index).map(|(_, slot)| slot)
    }

    /// Keeps the meter of a domain after its run.
    pub(crate) fn keep(&mut self, index: usize, running: Box<dyn Running>) {
        let meter = Some(KeptMeter {
            running,
            prepared: None,
        });
        match self.slot(index) {
            Some(slot) => *slot = meter,
            None => self.meters.push((index, meter)),
        }
    }

    /// Returns the shields around the meters that wait.
    pub(crate) fn shields(&self) -> impl Iterator<Item = &Shield> {
        let up = self.meters.iter().filter_map(|(_, meter)| meter.as_ref());
        up.filter_map(|meter| meter.running.shield())
    }

    /// Returns the load of the last run if it is this one, ready for another run.
    pub(crate) fn take_load(&mut self, condition: Condition, measured: &CpuSet) -> Option<Load> {
        let kept = self.load.take()?;
        if kept.condition != condition || kept.measured != *measured {
            return None;
        }
        let mut load = kept.load;
        load.begin_run();
        load.alive().is_ok().then_some(load)
    }

    /// Keeps the load of a run.
    pub(crate) fn keep_load(&mut self, condition: Condition, measured: &CpuSet, load: Load) {
        self.load = Some(KeptLoad {
            condition,
            measured: measured.clone(),
            load,
        });
    }

    /// Ends the load, the meter `last`, and all others, the last one first, and removes their
    /// isolation. Returns the isolation of `last`.
    ///
    /// # Errors
    /// Returns the error of [`Running::finish`] for `last`.
    pub(crate) fn end_with(
        &mut self,
        last: Box<dyn Running>,
    ) -> Result<Option<ShieldReport>, DomainError> {
        self.load = None;
        let report = last.finish();
        self.end();
        report
    }

    /// Ends the load and all meters, the last one first, and removes their isolation.
    pub(crate) fn end(&mut self) {
        self.load = None;
        self.observers.clear();
        while let Some((_, meter)) = self.meters.pop() {
            let Some(KeptMeter { running, .. }) = meter else {
                continue;
            };
            let known = running.isolation().map(|report| report.findings);
            let known = known.unwrap_or_default();
            match running.finish() {
                Ok(report) => {
                    let found = report.into_iter().flat_map(|report| report.findings);
                    self.findings
                        .extend(found.filter(|finding| !known.contains(finding)));
                }
                Err(error) => self.findings.push(
                    Finding::new(Severity::Warning, "isolation", error.to_string())
                        .fix("rampart release"),
                ),
            }
        }
    }

    /// Returns the findings about the ends so far.
    pub(crate) fn findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }
}

impl Drop for KeptMeters {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::path::Path;
    use std::rc::Rc;
    use std::time::Duration;

    use rampart_model::{
        Availability, CpuId, DomainKind, DomainSelection, EffectiveSettings, Machine, MeterEvent,
        MeterKind,
    };

    use super::*;

    /// What was done with a domain.
    type Steps = Rc<RefCell<Vec<&'static str>>>;

    #[derive(Debug, Default)]
    struct Recorded(Steps);

    impl Recorded {
        fn add(&self, step: &'static str) {
            self.0.borrow_mut().push(step);
        }

        fn take(&self) -> Vec<&'static str> {
            self.0.take()
        }
    }

    impl Domain for Recorded {
        fn selection(&self) -> DomainSelection {
            DomainSelection::of(DomainKind::Task)
        }

        fn availability(&self, _: &Machine) -> Availability {
            unreachable!("it is not asked")
        }

        fn start(&self, _: &Start<'_>) -> Result<Box<dyn Running>, DomainError> {
            self.add("start");
            Ok(Box::new(Self(Rc::clone(&self.0))))
        }
    }

    impl Running for Recorded {
        fn go(&mut self) -> Result<(), DomainError> {
            Ok(())
        }

        fn next_event(&mut self, _: Duration) -> Result<Option<MeterEvent>, DomainError> {
            Ok(None)
        }

        fn stop(&mut self) {}

        fn rearm(&mut self, settings: &MeterSettings) -> Result<bool, DomainError> {
            assert_eq!(settings.warm_up, repeated_warm_up(settings.meter));
            self.add("rearm");
            Ok(true)
        }

        fn shield(&self) -> Option<&Shield> {
            None
        }

        fn effective_settings(&self) -> EffectiveSettings {
            unreachable!("it is not asked")
        }

        fn isolation(&self) -> Option<ShieldReport> {
            None
        }

        fn finish(self: Box<Self>) -> Result<Option<ShieldReport>, DomainError> {
            self.add("finish");
            Ok(None)
        }
    }

    #[test]
    fn a_meter_is_prepared_once_for_each_run() {
        let domain = Recorded::default();
        let plan = MeterSettings {
            warm_up: Nanos::SECOND,
            ..MeterSettings::new(MeterKind::Wakeup, CpuSet::single(CpuId(1)))
        };
        let other = MeterSettings {
            duration: Nanos(1),
            ..plan.clone()
        };
        let housekeeping = CpuSet::new();
        let of = |settings| Start {
            meter: Path::new("/nowhere"),
            settings,
            housekeeping: &housekeeping,
            name: "task",
            stay_up: false,
        };
        let mut kept = KeptMeters::default();
        kept.start(0, &domain, &of(&plan));
        assert!(!kept.is_empty());
        // It waits for its start, and would refuse other settings.
        let running = kept.take(0, &domain, &of(&plan)).expect("a meter");
        assert_eq!(domain.take(), ["start"]);
        kept.keep(0, running);
        let running = kept.take(0, &domain, &of(&other)).expect("a meter");
        assert_eq!(domain.take(), ["rearm"]);
        kept.keep(0, running);
        kept.keep_observer(0, OutsideInfluence::default());
        kept.end();
        // The observers knew the isolation that has ended.
        assert!(kept.observers.is_empty());
        assert_eq!(domain.take(), ["finish"]);
        kept.start(0, &domain, &of(&plan));
        drop(kept.take(0, &domain, &of(&other)).expect("a meter"));
        assert!(kept.is_empty());
        assert_eq!(domain.take(), ["start", "finish", "start"]);
    }
}
