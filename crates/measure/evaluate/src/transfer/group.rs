// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs several domains at the same time, each with a meter inside.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use rampart_domain::{Domain, Running, Start};
use rampart_model::{
    Batch, CellExitReport, ClockRelation, CpuId, CpuSet, DetachedCounts, Distribution, Finding,
    GuestReport, MeterEvent, MeterSettings, Nanos, Phase, SchedulingPolicy, Severity,
    ThreadOutcome, Timeline,
};

use crate::collect::merge_part;
use crate::failures::Failures;
use crate::outside_influence::OutsideInfluence;
use crate::run::{GUEST_TIMEOUT, reason, thread_problems};
use crate::steal;

/// Interval between reads of the members' events.
const PAUSE: Duration = Duration::from_millis(10);

/// A domain to include in a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a> {
    /// Its name in the evaluation.
    pub(crate) name: &'a str,
    /// The starter of the domain.
    pub(crate) domain: &'a dyn Domain,
    /// The CPUs that it measures on; disjoint from those of the other members.
    pub(crate) cpus: &'a CpuSet,
    /// The policy of its meter's threads, if it has one of its own.
    pub(crate) policy: Option<SchedulingPolicy>,
    /// Whether it may stay up afterwards ([`Start::stay_up`]).
    pub(crate) stay_up: bool,
}

/// The collected results of the meter on one CPU.
#[derive(Debug, Default)]
pub(crate) struct CpuFigures {
    /// The worst latencies over time, from the first measured batch on.
    pub(crate) timeline: Option<Timeline>,
    /// All samples.
    pub(crate) seen: Distribution,
    /// All samples, corrected for missed periods; `None` if none was missed.
    pub(crate) corrected: Option<Distribution>,
    /// Periods without a sample.
    pub(crate) missed: u64,
}

/// A running domain, or the reasons why it does not run.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) cpus: CpuSet,
    policy: Option<SchedulingPolicy>,
    /// `None` if it did not start, or has failed since.
    pub(crate) running: Option<Box<dyn Running>>,
    /// Start of the warm-up on the meter's clock, and when this process received that event.
    pub(crate) started: Option<(Nanos, Instant)>,
    /// End of the newest batch, including warm-up, on the meter's clock: a sign of life.
    pub(crate) last_sign: Option<Nanos>,
    pub(crate) received: BTreeMap<CpuId, CpuFigures>,
    /// The outcomes of the threads; `None` before their end.
    pub(crate) finished: Option<Vec<ThreadOutcome>>,
    /// The relations of its clock to the host's clock, one per exchange; empty if it is the same
    /// clock.
    pub(crate) clock: Vec<ClockRelation>,
    pub(crate) guest: Option<GuestReport>,
    pub(crate) cell: Option<CellExitReport>,
    pub(crate) detached: Option<DetachedCounts>,
    /// Why it did not start, or was lost.
    failed: Option<Finding>,
    /// Why its results are not valid.
    pub(crate) invalid: Vec<Finding>,
    pub(crate) findings: Vec<Finding>,
}

impl Member {
    fn new(name: &str, cpus: &CpuSet, policy: Option<SchedulingPolicy>) -> Self {
        Self {
            name: name.to_owned(),
            cpus: cpus.clone(),
            policy,
            running: None,
            started: None,
            last_sign: None,
            received: BTreeMap::new(),
            finished: None,
            clock: Vec::new(),
            guest: None,
            cell: None,
            detached: None,
            failed: None,
            invalid: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// Returns whether the last measurement succeeded.
    fn is_sound(&self) -> bool {
        self.running.is_some() && self.finished.is_some() && self.invalid.is_empty()
    }

    /// Prepares its meter for another plan in the same isolation. Returns whether that succeeded.
    fn again(&mut self, settings: &MeterSettings) -> bool {
        let settings = MeterSettings {
            cpus: self.cpus.clone(),
            policy: self.policy.unwrap_or(settings.policy),
            ..settings.clone()
        };
        let running = self.running.as_mut();
        if !running.is_some_and(|running| matches!(running.rearm(&settings), Ok(true))) {
            return false;
        }
        *self = Self {
            running: self.running.take(),
            ..Self::new(&self.name, &self.cpus, self.policy)
        };
        true
    }

    /// Records that the member is lost, with the reason.
    pub(crate) fn fail(&mut self, finding: Finding) {
        self.failed.get_or_insert_with(|| finding.clone());
        self.invalid.push(finding);
        self.end();
    }

    /// Returns whether no more events are expected from it.
    pub(crate) fn is_done(&self) -> bool {
        self.finished.is_some() || self.running.is_none()
    }

    fn handle(&mut self, event: MeterEvent, slots: Slots) {
        match event {
            MeterEvent::Started { at, .. } => {
                self.started.get_or_insert_with(|| (at, Instant::now()));
            }
            MeterEvent::Batch(batch) => self.add_batch(&batch, slots),
            MeterEvent::Finished { threads, findings } => {
                for thread in &threads {
                    self.invalid.extend(thread_problems(&self.name, thread));
                    self.findings.extend(steal::of_thread(thread));
                }
                self.findings.extend(findings);
                self.finished = Some(threads);
            }
            MeterEvent::Refused(refusal) => self.fail(refusal.finding),
            MeterEvent::Ready(_) => {}
        }
    }

    fn add_batch(&mut self, batch: &Batch, slots: Slots) {
        if let Err((what, needed)) = slots.check(batch, self.started, &self.cpus) {
            let location = self.name.as_str();
            let finding =
                Finding::new(Severity::Error, location, "its meter reported invalid data")
                    .values(what, needed)
                    .fix("take `rampart` and `rampart-meter` from the same build");
            self.fail(finding);
            return;
        }
        self.last_sign = self.last_sign.max(Some(batch.at + batch.length));
        if batch.phase == Phase::WarmUp {
            return;
        }
        let received = self.received.entry(batch.cpu).or_default();
        if let Some(series) = batch.series.first() {
            merge_part(
                (&mut received.seen, &mut received.corrected),
                &series.seen,
                series.corrected.as_ref(),
            );
        }
        received.missed = received.missed.saturating_add(batch.missed);
        let timeline = received.timeline.get_or_insert_with(|| Timeline {
            start: batch.at,
            slot: slots.length,
            worst: Vec::new(),
        });
        append(timeline, batch);
    }

    /// Ends the meter and removes its isolation. Adds only the findings of that step.
    fn end(&mut self) {
        let Some(running) = self.running.take() else {
            return;
        };
        match running.finish() {
            Ok(report) => {
                let found = report.map(|report| report.findings).unwrap_or_default();
                let new = found.into_iter().filter(|one| !self.findings.contains(one));
                self.findings.extend(new.collect::<Vec<_>>());
            }
            Err(error) => self.findings.push(
                Finding::new(Severity::Warning, self.name.as_str(), error.to_string())
                    .fix("rampart release"),
            ),
        }
    }
}

/// The slots of the timelines, and their largest number: a domain with a kernel of its own must not
/// be able to exhaust the memory of this process.
#[derive(Debug, Clone, Copy)]
struct Slots {
    length: Nanos,
    most: usize,
}

impl Slots {
    /// Derives the limits from a plan: its time, and the longest silence of a meter.
    fn of(settings: &MeterSettings) -> Self {
        let length = settings.timeline.unwrap_or(settings.batch).max(Nanos(1));
        let longest = settings.warm_up + settings.duration + Nanos::from(GUEST_TIMEOUT);
        Self {
            length,
            most: usize::try_from(longest.0.div_ceil(length.0)).unwrap_or(usize::MAX),
        }
    }

    /// Checks whether a batch can belong to the round that `started` then. If not, returns what was
    /// found and what was expected.
    fn check(
        self,
        batch: &Batch,
        started: Option<(Nanos, Instant)>,
        cpus: &CpuSet,
    ) -> Result<(), (String, String)> {
        if !cpus.contains(batch.cpu) {
            return Err((
                format!("samples of CPU {}", batch.cpu),
                format!("of {}, where it measures", cpus.named()),
            ));
        }
        let Some((begin, _)) = started else {
            return Err(("samples before it began".to_owned(), "after".to_owned()));
        };
        if batch.at < begin {
            return Err((
                format!("samples at {} of its clock", batch.at),
                format!("at {begin} or later, when it began"),
            ));
        }
        let end = batch.at.saturating_sub(begin).0 / self.length.0;
        let end = usize::try_from(end)
            .unwrap_or(usize::MAX)
            .saturating_add(batch.timeline.len());
        if end > self.most {
            return Err((
                format!("{end} slots of {}", self.length),
                format!("{} at the most, as the longest round has", self.most),
            ));
        }
        Ok(())
    }
}

/// Adds the slots of a batch to the timeline. The batches of a phase are contiguous. Slots after
/// the end of a batch hold samples that ended late, and may overlap those of the next batch.
pub(crate) fn append(timeline: &mut Timeline, batch: &Batch) {
    let slot = timeline.slot.0.max(1);
    let index = (batch
        .at
        .saturating_sub(timeline.start)
        .0
        .saturating_add(slot / 2)
        / slot) as usize;
    let end = index + batch.timeline.len();
    if timeline.worst.len() < end {
        timeline.worst.resize(end, None);
    }
    for (worst, new) in timeline.worst[index..end].iter_mut().zip(&batch.timeline) {
        *worst = (*worst).max(*new);
    }
}

/// Domains that run at the same time. Dropping it ends them all, the last first.
#[derive(Debug)]
pub(crate) struct Group {
    /// In the order of the candidates.
    pub(crate) members: Vec<Member>,
    /// Indices of the members in the order in which they were started.
    order: Vec<usize>,
    slots: Slots,
    /// Observes the members, in all rounds of their isolation.
    pub(crate) outside_influence: OutsideInfluence,
}

impl Group {
    /// Starts all members: isolation, domain, and in each a waiting meter. Every meter gets `plan`,
    /// on the CPUs of its own domain. If a domain does not start, the reason is in its
    /// [`Member::invalid`], and the others continue.
    ///
    /// Guests and cells start first, because they may stay up when the others end, and isolation is
    /// removed in the reverse order. Detached threads do too, because only CPUs of Linux can be
    /// shielded. The host is last, because it uses the remaining CPUs.
    pub(crate) fn raise(
        candidates: &[Candidate<'_>],
        meter: &Path,
        housekeeping: &CpuSet,
        settings: &MeterSettings,
    ) -> Self {
        let mut group = Self {
            members: candidates
                .iter()
                .map(|candidate| Member::new(candidate.name, candidate.cpus, candidate.policy))
                .collect(),
            order: (0..candidates.len()).collect(),
            slots: Slots::of(settings),
            outside_influence: OutsideInfluence::default(),
        };
        let rank = |index: &usize| {
            let kind = candidates[*index].domain.selection().kind;
            match (kind.starts_first(), kind.is_housekeeping()) {
                (true, _) => 0,
                (false, false) => 1,
                (false, true) => 2,
            }
        };
        group.order.sort_by_key(rank);
        for index in group.order.clone() {
            let candidate = &candidates[index];
            let settings = MeterSettings {
                cpus: candidate.cpus.clone(),
                policy: candidate.policy.unwrap_or(settings.policy),
                ..settings.clone()
            };
            let started = candidate.domain.start(&Start {
                meter,
                settings: &settings,
                housekeeping,
                name: candidate.name,
                stay_up: candidate.stay_up,
            });
            let member = &mut group.members[index];
            match started {
                Ok(running) => member.running = Some(running),
                Err(error) => member.fail(reason(candidate.name, &error)),
            }
        }
        group
    }

    /// Returns whether the candidates are its members.
    fn is_of(&self, candidates: &[Candidate<'_>]) -> bool {
        self.members.len() == candidates.len()
            && self
                .members
                .iter()
                .zip(candidates)
                .all(|(member, wanted)| member.name == wanted.name && member.cpus == *wanted.cpus)
    }

    /// Prepares all meters for another plan. Returns whether that succeeded.
    fn again(&mut self, settings: &MeterSettings) -> bool {
        self.slots = Slots::of(settings);
        self.members.iter().all(Member::is_sound)
            && self.members.iter_mut().all(|member| member.again(settings))
    }

    /// Returns the member with this name.
    pub(crate) fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }

    /// Starts all measurements.
    pub(crate) fn go(&mut self) {
        self.each(|member| {
            let gone = member
                .running
                .as_mut()
                .and_then(|running| running.go().err());
            if let Some(error) = gone {
                member.fail(reason(&member.name.clone(), &error));
            }
        });
    }

    /// Requests the end of all meters.
    pub(crate) fn stop(&mut self) {
        self.each(|member| {
            if let Some(running) = member.running.as_mut() {
                running.stop();
            }
        });
    }

    /// Measures the relation of the clocks of domains with their own kernel to the host's clock.
    pub(crate) fn read_clocks(&mut self) {
        self.each(|member| {
            let read = member
                .running
                .as_ref()
                .and_then(|running| running.inside())
                .map(|inside| inside.clock());
            match read {
                Some(Ok(relation)) => member.clock.push(relation),
                Some(Err(error)) => {
                    let finding = reason(&member.name, &error);
                    member.invalid.push(finding);
                }
                None => {}
            }
        });
    }

    /// Reads the reports of the guests and of the isolation.
    pub(crate) fn read_reports(&mut self) {
        self.each(|member| {
            let Some(running) = &member.running else {
                return;
            };
            member.guest = running.guest();
            member.cell = running.cell();
            member.detached = running.detached();
            let isolation = running.isolation().map(|isolation| isolation.findings);
            member.findings.extend(isolation.unwrap_or_default());
        });
    }

    /// Reads events of all members until `done` returns true; `done` is called after each pass.
    /// Calls `tick` about a hundred times a second.
    pub(crate) fn read_until(
        &mut self,
        mut done: impl FnMut(&mut Self) -> bool,
        tick: &mut dyn FnMut(),
    ) {
        loop {
            let news = self.read_events();
            if done(self) {
                return;
            }
            tick();
            if !news {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Reads the pending events. Returns whether there were any.
    pub(crate) fn read_events(&mut self) -> bool {
        let slots = self.slots;
        let mut news = false;
        self.each(|member| {
            // Limit the events per member, so that one member cannot starve the others.
            for _ in 0..64 {
                let Some(running) = member.running.as_mut() else {
                    break;
                };
                if member.finished.is_some() {
                    break;
                }
                match running.next_event(Duration::ZERO) {
                    Ok(Some(event)) => {
                        news = true;
                        member.handle(event, slots);
                    }
                    Ok(None) => break,
                    Err(error) => {
                        let finding = reason(&member.name, &error);
                        member.fail(finding);
                    }
                }
            }
        });
        news
    }

    /// Returns whether no member has more events.
    pub(crate) fn is_done(&self) -> bool {
        self.members.iter().all(Member::is_done)
    }

    /// Ends all members, the last started first.
    pub(crate) fn finish(&mut self) {
        for index in self.order.clone().into_iter().rev() {
            self.members[index].end();
        }
    }

    /// Ends the members that match, with `what` as the reason.
    pub(crate) fn give_up(&mut self, which: impl Fn(&Member) -> bool, what: &str) {
        self.each(|member| {
            if !member.is_done() && which(member) {
                let location = member.name.clone();
                member.fail(Finding::new(Severity::Error, location, what));
            }
        });
    }

    fn each(&mut self, mut with: impl FnMut(&mut Member)) {
        for member in &mut self.members {
            with(member);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The running group. The next round of the same group reuses it, since starting isolation,
/// containers and guests takes longer than many rounds. Dropping it ends the group.
#[derive(Debug, Default)]
pub(crate) struct RunningGroup {
    group: Option<Group>,
    findings: Vec<Finding>,
    /// Counts the failures of the domains.
    pub(crate) failures: Failures,
}

impl RunningGroup {
    /// Returns the group of these candidates, with meters that wait for [`Group::go`]: the running
    /// group if it is theirs and sound, otherwise a new one.
    pub(crate) fn group(
        &mut self,
        candidates: &[Candidate<'_>],
        meter: &Path,
        housekeeping: &CpuSet,
        settings: &MeterSettings,
    ) -> &mut Group {
        let reusable = self
            .group
            .as_mut()
            .is_some_and(|group| group.is_of(candidates) && group.again(settings));
        if !reusable {
            // End the old group first: two isolations of the same CPUs cannot be in effect at once.
            self.end();
        }
        self.group
            .get_or_insert_with(|| Group::raise(candidates, meter, housekeeping, settings))
    }

    /// Updates the failure counts after a round.
    pub(crate) fn count_failures(&mut self) {
        for member in self.group.iter().flat_map(|group| &group.members) {
            if let Some(why) = &member.failed {
                self.failures.failed(&member.name, why);
            } else if member.finished.is_some() {
                self.failures.succeeded(&member.name);
            }
        }
    }

    /// Ends the group.
    pub(crate) fn end(&mut self) {
        let Some(mut group) = self.group.take() else {
            return;
        };
        // Earlier findings are in the records of the rounds.
        let lengths: Vec<usize> = group
            .members
            .iter()
            .map(|member| member.findings.len())
            .collect();
        group.finish();
        for (member, found) in group.members.iter_mut().zip(lengths) {
            self.findings.extend(member.findings.drain(found..));
        }
    }

    /// Returns the findings of ended groups since the last call.
    pub(crate) fn findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_adjacent_batches_are_contiguous() {
        let batch = |at: u64, worst: &[Option<u64>]| Batch {
            cpu: CpuId(0),
            phase: Phase::Measured,
            at: Nanos(at),
            length: Nanos(30),
            series: Vec::new(),
            missed: 0,
            over_deadline: 0,
            lost: 0,
            timeline: worst.iter().map(|one| one.map(Nanos)).collect(),
        };
        let mut timeline = Timeline {
            start: Nanos(100),
            slot: Nanos(10),
            worst: Vec::new(),
        };
        append(
            &mut timeline,
            &batch(100, &[Some(1), None, Some(3), Some(9)]),
        );
        append(&mut timeline, &batch(130, &[Some(4)]));
        append(&mut timeline, &batch(160, &[Some(7)]));
        let worst: Vec<Option<u64>> = timeline
            .worst
            .iter()
            .map(|one| one.map(|one| one.0))
            .collect();
        assert_eq!(
            worst,
            [Some(1), None, Some(3), Some(9), None, None, Some(7)]
        );
    }

    /// Slot positions from a guest are untrusted.
    #[test]
    fn refuses_slots_outside_of_the_round() {
        let cpus: CpuSet = "3".parse().expect("a CPU");
        let plan = MeterSettings {
            duration: Nanos::from_secs(2),
            warm_up: Nanos::SECOND,
            timeline: Some(Nanos::from_millis(1)),
            ..MeterSettings::new(rampart_model::MeterKind::Wakeup, cpus.clone())
        };
        let slots = Slots::of(&plan);
        assert_eq!(slots.most, 63_000);
        let batch = |cpu: u32, at: Nanos, slots: usize| Batch {
            cpu: CpuId(cpu),
            phase: Phase::Measured,
            at,
            length: Nanos::SECOND,
            series: Vec::new(),
            missed: u64::MAX,
            over_deadline: 0,
            lost: 0,
            timeline: vec![Some(Nanos(1)); slots],
        };
        let started = Nanos::from_secs(100);
        let mut member = Member::new("vm", &cpus, None);
        member.handle(
            MeterEvent::Started {
                at: started,
                realtime_offset: Nanos::ZERO,
            },
            slots,
        );
        let sound = started + Nanos::SECOND;
        member.add_batch(&batch(3, sound, 5), slots);
        member.add_batch(&batch(3, sound + Nanos::SECOND, 5), slots);
        assert!(member.invalid.is_empty(), "{:?}", member.invalid);
        for bad in [
            batch(3, Nanos(u64::MAX), 1),
            batch(3, sound, 70_000),
            batch(3, Nanos(1), 1),
            batch(4, sound, 1),
        ] {
            let mut member = Member::new("vm", &cpus, None);
            member.started = Some((started, Instant::now()));
            member.add_batch(&bad, slots);
            assert_eq!(member.invalid.len(), 1);
            let found = member.invalid[0].to_string();
            assert!(found.contains("same build"), "{found}");
            assert!(member.received.is_empty());
        }
    }
}
