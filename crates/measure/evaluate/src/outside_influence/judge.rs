// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides from snapshots what influenced measured domains from outside the experiment. Pure.
//!
//! Never outside: the programs of the experiment (this process, its descendants, the processes that
//! contain measuring threads), kernel threads, which are not in a snapshot, and interrupts that were
//! sent to a CPU from the beginning. The last two are part of the machine that is measured.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rampart_host::{
    ClockAdjustment, ClockReadings, InfluenceSnapshot, InterruptState, MeasuringThread,
    ProgramThread,
};
use rampart_model::{CpuId, CpuSet, Finding, Nanos, SchedulingPolicy, Severity, SignedNanos};

use super::Influence;
use super::idle::OthersTime;
use super::unexplained::UnexplainedTime;

/// Share of the time that other programs may use of an isolated CPU: 0.3 ms of 300 ms.
const PROGRAM_SHARE: f64 = 0.001;
/// Share of the time that all real-time threads of other programs together may use of a CPU that ordinary
/// programs share. Sound servers and the like use less.
const REAL_TIME_SHARE: f64 = 0.05;
/// Uncertainty of a CPU time in clock ticks: user and system time are each rounded down.
pub(super) const TICKS_UNCERTAINTY: Nanos = Nanos::from_millis(20);
/// Smallest change between clocks that counts as a jump.
const JUMP: Nanos = Nanos::from_micros(100);
/// Times that an interrupt may still come to a CPU that it was moved away from: on some controllers a
/// move takes effect with the next arrival (kernel/irq/migration.c).
const PENDING_MOVE: u64 = 2;
/// Length of an unchanged tick of `USER_HZ` in µs.
const TICK: i64 = 10_000;
/// Part by which the rate of the monotonic clock may differ from its settings. NTP adjusts it by at
/// most 500 ppm beyond them (adjtimex(2)).
const RATE_CHANGE: f64 = 0.001;
/// Part by which the monotonic clock may be fast or slow: 20 times the largest adjustment of NTP.
const RATE: f64 = 0.01;

/// A domain that measures.
#[derive(Debug, Clone, Default)]
pub(crate) struct MeasuredDomain {
    /// The measured CPUs.
    pub(crate) cpus: CpuSet,
    /// Whether isolation keeps ordinary programs off them.
    pub(crate) isolated: bool,
    /// The threads that measure.
    pub(crate) measuring: Vec<u32>,
    /// The interrupts that the isolation moved away.
    pub(crate) kept_away: BTreeSet<u32>,
    /// The control group of the active plan's domain, whose programs belong to the domain.
    pub(crate) group_of_plan: Option<GroupOfPlan>,
}

/// A control group of the active plan.
#[derive(Debug, Clone)]
pub(crate) struct GroupOfPlan {
    /// Whether it is of cgroup v2.
    pub(crate) unified: bool,
    /// Its path from the root of the hierarchy.
    pub(crate) path: String,
}

impl GroupOfPlan {
    /// Returns whether a thread is in the group or below it.
    fn contains(&self, thread: &ProgramThread) -> bool {
        thread.control_groups.iter().any(|group| {
            group.split_once(':').is_some_and(|(controllers, path)| {
                (controllers == "v2") == self.unified && Path::new(path).starts_with(&self.path)
            })
        })
    }
}

/// CPU time that a thread of another program used on the CPUs of a domain.
#[derive(Debug, Clone)]
struct Used {
    time: Nanos,
    thread: ProgramThread,
}

impl Used {
    fn is_real_time(&self) -> bool {
        let policy = self.thread.policy;
        policy.is_some_and(SchedulingPolicy::is_real_time)
    }
}

/// Collects what happened between snapshots.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    domains: Vec<MeasuredDomain>,
    /// Processes of the experiment, also those that have ended since the first snapshot.
    own: BTreeSet<u32>,
    /// Each interrupt when it was first seen.
    routes: BTreeMap<u32, InterruptState>,
    first: InfluenceSnapshot,
    last: InfluenceSnapshot,
    /// By domain, thread and start of the thread.
    used: BTreeMap<(usize, u32, u64), Used>,
    unexplained: UnexplainedTime,
    others: OthersTime,
    noticed: Vec<Influence>,
}

impl Judge {
    /// Begins with a snapshot; `own` is the process of the experiment. Where interrupts were sent to and
    /// which processes belong to the experiment is known from before.
    pub(crate) fn begin(
        &mut self,
        domains: Vec<MeasuredDomain>,
        own: u32,
        snapshot: InfluenceSnapshot,
    ) {
        self.domains = domains;
        // Another process may get the number of one that has ended.
        let exists: BTreeSet<u32> = (snapshot.programs.iter())
            .map(|thread| thread.process)
            .collect();
        self.own.retain(|process| exists.contains(process));
        self.own.insert(own);
        self.first = snapshot.clone();
        self.last = snapshot;
        self.used.clear();
        self.unexplained = UnexplainedTime::default();
        self.others = OthersTime::default();
        self.noticed.clear();
        self.learn();
    }

    /// Adds a later snapshot.
    pub(crate) fn add(&mut self, snapshot: InfluenceSnapshot) {
        let earlier = std::mem::replace(&mut self.last, snapshot);
        self.learn();
        self.add_programs(&earlier);
        self.add_times(&earlier);
        self.check_placement();
        self.check_files();
        self.check_clocks(&earlier);
    }

    /// Returns all influences since the first snapshot.
    pub(crate) fn end(&mut self) -> Vec<Influence> {
        let watched = (self.last.clocks.monotonic).saturating_sub(self.first.clocks.monotonic);
        // Real-time threads on CPUs without isolation that are no influence on their own.
        let mut small: BTreeMap<(usize, CpuId), Vec<Used>> = BTreeMap::new();
        for ((domain, ..), used) in std::mem::take(&mut self.used) {
            let isolated = self.domains[domain].isolated;
            let finding = program(&used, watched, isolated);
            if finding.is_none() && !isolated && used.is_real_time() {
                let of_cpu = small.entry((domain, used.thread.cpu));
                of_cpu.or_default().push(used);
            } else {
                self.notice(Some(domain), finding);
            }
        }
        for ((domain, cpu), used) in small {
            self.notice(Some(domain), together(cpu, &used, watched));
        }
        for (domain, finding) in self.unexplained.findings() {
            self.notice(Some(domain), [finding]);
        }
        self.check_interrupts();
        self.check_rate();
        std::mem::take(&mut self.noticed)
    }

    fn notice(&mut self, domain: Option<usize>, finding: impl IntoIterator<Item = Finding>) {
        for finding in finding {
            let known = self.noticed.iter().any(|one| {
                one.domain == domain
                    && one.finding.location == finding.location
                    && one.finding.what == finding.what
            });
            if !known {
                self.noticed.push(Influence { domain, finding });
            }
        }
    }

    /// Adds new processes of the experiment and new interrupts of the last snapshot.
    fn learn(&mut self) {
        let measuring = self.last.measuring.values().map(|thread| thread.process);
        self.own.extend(measuring);
        loop {
            let known = self.own.len();
            for thread in &self.last.programs {
                if self.own.contains(&thread.parent) {
                    self.own.insert(thread.process);
                }
            }
            if self.own.len() == known {
                break;
            }
        }
        for (number, state) in &self.last.interrupts {
            let route = self.routes.entry(*number);
            route.or_insert_with(|| state.clone());
        }
    }

    fn add_programs(&mut self, earlier: &InfluenceSnapshot) {
        let before: BTreeMap<(u32, u64), &ProgramThread> = earlier
            .programs
            .iter()
            .map(|thread| ((thread.thread, thread.start), thread))
            .collect();
        for (index, domain) in self.domains.iter().enumerate() {
            let others = self.last.programs.iter().filter(|thread| {
                domain.cpus.contains(thread.cpu)
                    && !self.own.contains(&thread.process)
                    && !domain
                        .group_of_plan
                        .as_ref()
                        .is_some_and(|group| group.contains(thread))
            });
            for thread in others {
                let identity = (thread.thread, thread.start);
                let time = time_used(before.get(&identity).copied(), thread);
                if time == Nanos::ZERO {
                    continue;
                }
                let used = self.used.entry((index, identity.0, identity.1));
                let used = used.or_insert_with(|| Used {
                    time: Nanos::ZERO,
                    thread: thread.clone(),
                });
                used.time += time;
                // Its policy may have been raised meanwhile.
                used.thread = thread.clone();
            }
        }
    }

    /// Adds the time of CPUs and of all programs.
    fn add_times(&mut self, earlier: &InfluenceSnapshot) {
        let mut measured = CpuSet::new();
        for (index, domain) in self.domains.iter().enumerate() {
            measured = measured.union(&domain.cpus);
            let domain = (index, domain);
            self.unexplained.add(domain, &self.own, earlier, &self.last);
        }
        let belongs = |thread: &ProgramThread| {
            let mut groups = self
                .domains
                .iter()
                .filter_map(|one| one.group_of_plan.as_ref());
            groups.any(|group| group.contains(thread))
        };
        self.others
            .add(&measured, &self.own, belongs, earlier, &self.last);
    }

    /// Returns a finding if programs of others used the CPUs since the first snapshot.
    pub(crate) fn others_finding(&self) -> Option<Finding> {
        self.others.finding()
    }

    fn check_placement(&mut self) {
        for index in 0..self.domains.len() {
            for thread in self.domains[index].measuring.clone() {
                let placed = (
                    self.first.measuring.get(&thread),
                    self.last.measuring.get(&thread),
                );
                if let (Some(before), Some(now)) = placed {
                    let mut found = placement(before, now);
                    found.extend(stopped(thread, now));
                    self.notice(Some(index), found);
                }
            }
        }
    }

    /// Compares the files of control groups and of frequencies.
    fn check_files(&mut self) {
        let mut found = Vec::new();
        for (index, domain) in self.domains.iter().enumerate() {
            let groups: BTreeSet<&str> = domain
                .measuring
                .iter()
                .filter_map(|thread| self.first.measuring.get(thread))
                .flat_map(|thread| &thread.control_groups)
                .filter_map(|group| group.split_once(':'))
                .map(|(_, path)| path.trim_start_matches('/'))
                // The CPUs of the root are those of the machine.
                .filter(|path| !path.is_empty())
                .collect();
            let of_groups = changed(&self.first.group_files, &self.last.group_files);
            for (file, finding) in of_groups {
                let directory = Path::new(file).parent().unwrap_or(Path::new(file));
                if groups.iter().any(|group| directory.ends_with(group)) {
                    let what = "the CPUs of the domain's control group were changed during the \
                                measurement";
                    found.push((index, finding(what)));
                }
            }
            let of_limits = changed(&self.first.frequency_limits, &self.last.frequency_limits);
            for (file, finding) in of_limits {
                if cpu_of_file(file).is_none_or(|cpu| domain.cpus.contains(cpu)) {
                    let what = "the limits of the CPU's frequency were changed during the \
                                measurement";
                    found.push((index, finding(what)));
                }
            }
        }
        for (index, finding) in found {
            self.notice(Some(index), [finding]);
        }
    }

    fn check_interrupts(&mut self) {
        let mut found = Vec::new();
        for (index, domain) in self.domains.iter().enumerate() {
            // Elsewhere interrupts go where the machine sends them.
            if !domain.isolated {
                continue;
            }
            for (number, now) in &self.last.interrupts {
                let route = self.routes.get(number);
                let before = self.first.interrupts.get(number);
                for cpu in domain.cpus.iter() {
                    let count = |state: &InterruptState| state.counts.get(&cpu).copied();
                    let came = count(now)
                        .unwrap_or(0)
                        .saturating_sub(before.and_then(count).unwrap_or(0));
                    let allowed = match route {
                        Some(route) if !route.effective.contains(cpu) => 0,
                        Some(route) if !route.affinity.contains(cpu) => PENDING_MOVE,
                        _ if domain.kept_away.contains(number) && now.affinity.contains(cpu) => 0,
                        _ => u64::MAX,
                    };
                    if came > allowed {
                        found.push((index, interrupt(*number, &now.action, cpu, came)));
                    }
                }
            }
        }
        for (index, finding) in found {
            self.notice(Some(index), [finding]);
        }
    }

    fn check_clocks(&mut self, earlier: &InfluenceSnapshot) {
        let (before, now) = (&earlier.clocks, &self.last.clocks);
        let uncertainty = before.uncertainty + now.uncertainty + JUMP;
        let mut found = Vec::new();
        let wall =
            difference(now.realtime, before.realtime) - difference(now.monotonic, before.monotonic);
        if wall.unsigned_abs() > u128::from(uncertainty.0) {
            found.push(
                clock("the wall clock was set during the measurement")
                    .values(
                        format!("moved by {}", signed(wall)),
                        "steady against CLOCK_MONOTONIC",
                    )
                    .fix("let the time service set the clock before the measurement"),
            );
        }
        let slept = difference(now.boot, before.boot) - difference(now.monotonic, before.monotonic);
        if slept > i128::from(uncertainty.0) {
            let slept = Nanos(u64::try_from(slept).unwrap_or(u64::MAX));
            found.push(
                clock("the machine was suspended during the measurement")
                    .values(format!("for {slept}"), "never")
                    .fix("systemctl mask sleep.target suspend.target"),
            );
        }
        let first = &self.first.clocks;
        let tick = |clocks: &ClockReadings| clocks.adjustment.map(|rate| rate.tick);
        if let (Some(before), Some(now)) = (tick(first), tick(now))
            && before != now
        {
            found.push(
                clock("the length of the tick was changed during the measurement (adjtimex)")
                    .values(format!("{now} µs"), format!("{before} µs"))
                    .fix("end the program that changes the clock's rate during the measurement"),
            );
        }
        if now.source != first.source {
            found.push(
                clock("the kernel changed its clock source during the measurement")
                    .values(now.source.as_str(), first.source.as_str())
                    .fix("see the kernel's log for the cause: journalctl -k --grep clocksource"),
            );
        }
        self.notice(None, found);
    }

    /// Compares the rate of the monotonic clock with its settings.
    fn check_rate(&mut self) {
        let (first, last) = (&self.first.clocks, &self.last.clocks);
        let raw = difference(last.raw, first.raw);
        let uncertainty = first.uncertainty + last.uncertainty;
        if raw <= i128::from(uncertainty.0) {
            return;
        }
        let gained = difference(last.monotonic, first.monotonic) - raw;
        let unsure = uncertainty.as_secs_f64() * 1e9 / raw as f64;
        let rate = gained as f64 / raw as f64;
        let words = |rate: f64| format!("{:+.2} %", rate * 100.0);
        let set = first.adjustment.map(set_rate);
        let finding = if let Some(set) = set
            && (rate - set).abs() > RATE_CHANGE + unsure
        {
            clock("the rate of CLOCK_MONOTONIC was changed during the measurement")
                .values(words(rate), words(set))
        } else if rate.abs() > RATE + unsure {
            clock("CLOCK_MONOTONIC, by which the meter counts its periods, runs at a wrong rate")
                .values(words(rate), "within 1 % of CLOCK_MONOTONIC_RAW")
        } else {
            return;
        };
        let fix = "end the program that changes the clock's rate; adjtimex --print shows it";
        self.notice(None, [finding.fix(fix)]);
    }
}

/// Returns the part by which CLOCK_MONOTONIC is set to run faster than CLOCK_MONOTONIC_RAW.
fn set_rate(adjustment: ClockAdjustment) -> f64 {
    (adjustment.tick - TICK) as f64 / TICK as f64 + adjustment.frequency as f64 / 65_536e6
}

/// Returns the CPU time that a thread used since an earlier snapshot, or a lower bound of it.
pub(super) fn time_used(before: Option<&ProgramThread>, now: &ProgramThread) -> Nanos {
    let Some(before) = before else {
        return now.exact.unwrap_or(now.ticks);
    };
    match (before.exact, now.exact) {
        (Some(before), Some(now)) => now.saturating_sub(before),
        (None, Some(now)) => now.saturating_sub(before.ticks + TICKS_UNCERTAINTY),
        _ => now.ticks.saturating_sub(before.ticks),
    }
}

/// Returns a finding if another program's thread used more than its share.
fn program(used: &Used, watched: Nanos, isolated: bool) -> Option<Finding> {
    let Used { time, thread } = used;
    let is_real_time = used.is_real_time();
    let (limit, expected) = if isolated {
        (PROGRAM_SHARE, "at most 0.1 % of the time")
    } else {
        (REAL_TIME_SHARE, "at most 5 % of the time")
    };
    let share = time.as_secs_f64() / watched.as_secs_f64().max(1e-9);
    if share <= limit || !(isolated || is_real_time) {
        return None;
    }
    let policy = thread
        .policy
        .map_or_else(String::new, |policy| format!(", policy {policy}"));
    let cpu = thread.cpu;
    Some(
        Finding::new(
            Severity::Error,
            format!("CPU {cpu}"),
            format!(
                "the program `{}` outside the experiment ran on this CPU during the measurement \
                 (process {}, thread {}{policy})",
                thread.name, thread.process, thread.thread
            ),
        )
        .values(
            format!("{time}, {:.1} % of the time", share.min(1.0) * 100.0),
            expected,
        )
        .fix(format!(
            "end process {}, or keep it off CPU {cpu}",
            thread.process
        )),
    )
}

/// Returns a finding if real-time threads of other programs together used more than their share of a CPU
/// without isolation.
fn together(cpu: CpuId, used: &[Used], watched: Nanos) -> Option<Finding> {
    let time: Nanos = used.iter().map(|used| used.time).sum();
    let share = time.as_secs_f64() / watched.as_secs_f64().max(1e-9);
    let most = used.iter().max_by_key(|used| used.time)?;
    if share <= REAL_TIME_SHARE {
        return None;
    }
    let count = used.len();
    let Used { thread, .. } = most;
    Some(
        Finding::new(
            Severity::Error,
            format!("CPU {cpu}"),
            format!(
                "{count} real-time threads of programs outside the experiment ran on this CPU during the \
                 measurement, `{}` most of the time (process {}, thread {})",
                thread.name, thread.process, thread.thread
            ),
        )
        .values(
            format!("together {time}, {:.1} % of the time", share.min(1.0) * 100.0),
            "at most 5 % of the time",
        )
        .fix(format!("end these programs, or keep them off CPU {cpu}")),
    )
}

/// Returns a finding if a measuring thread does not run, or a debugger may stop it at any time.
fn stopped(thread: u32, now: &MeasuringThread) -> Option<Finding> {
    let (found, fix) = if let Some(tracer) = now.tracer {
        let fix = format!("end process {tracer}");
        (format!("traced by process {tracer}"), fix)
    } else if now.frozen {
        let fix = "keep container engines and other programs from pausing its control group";
        ("frozen with its control group".to_owned(), fix.to_owned())
    } else if matches!(now.state, 'T' | 't') {
        let fix = format!("find the program that sent SIGSTOP to thread {thread}");
        ("stopped by a signal".to_owned(), fix)
    } else {
        return None;
    };
    let location = format!("measuring thread of {}", now.affinity.named());
    let what = "it was stopped or traced by another program during the measurement";
    Some(
        Finding::new(Severity::Error, location, what)
            .values(found, "running")
            .fix(fix),
    )
}

/// Returns the CPU to which a file of the frequency belongs; `None` if it belongs to all.
fn cpu_of_file(file: &str) -> Option<CpuId> {
    file.split('/').find_map(|part| {
        let number = part.strip_prefix("cpu")?;
        number.parse().ok().map(CpuId)
    })
}

/// Returns what differs in the placement of a measuring thread.
fn placement(before: &MeasuringThread, now: &MeasuringThread) -> Vec<Finding> {
    let location = format!("measuring thread of {}", before.affinity.named());
    let mut found = Vec::new();
    let mut differs = |what: &str, now: String, before: String| {
        if now != before {
            let what = format!("its {what} was changed during the measurement");
            found.push(
                Finding::new(Severity::Error, location.as_str(), what)
                    .values(now, before)
                    .fix("end the program that changes it, or exempt `rampart-meter` there"),
            );
        }
    };
    differs(
        "control group",
        now.control_groups.join(" "),
        before.control_groups.join(" "),
    );
    differs("policy", now.policy.to_string(), before.policy.to_string());
    differs(
        "affinity",
        now.affinity.named().to_string(),
        before.affinity.named().to_string(),
    );
    found
}

/// Returns the files whose contents differ, each with a function that makes a finding of it.
fn changed<'a>(
    before: &'a BTreeMap<String, String>,
    now: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = (&'a str, impl Fn(&str) -> Finding + 'a)> {
    before.iter().filter_map(move |(file, before)| {
        let now = now.get(file)?;
        (now != before).then_some((file.as_str(), move |what: &str| {
            Finding::new(Severity::Error, file.as_str(), what)
                .values(now.as_str(), before.as_str())
                .fix("end the program that changes it during the measurement")
        }))
    })
}

fn interrupt(number: u32, action: &str, cpu: CpuId, came: u64) -> Finding {
    Finding::new(
        Severity::Error,
        format!("interrupt {number} ({action})"),
        format!(
            "it was sent to CPU {cpu} during the measurement, which the isolation keeps it off"
        ),
    )
    .values(
        if came == 1 {
            "once".to_owned()
        } else {
            format!("{came} times")
        },
        "never",
    )
    .fix(format!(
        "keep irqbalance and other programs from changing /proc/irq/{number}/smp_affinity_list"
    ))
}

fn clock(what: &str) -> Finding {
    Finding::new(Severity::Error, "clocks", what)
}

pub(super) fn difference(later: Nanos, earlier: Nanos) -> i128 {
    i128::from(later.0) - i128::from(earlier.0)
}

fn signed(time: i128) -> SignedNanos {
    SignedNanos(i64::try_from(time).unwrap_or(if time < 0 { i64::MIN } else { i64::MAX }))
}
