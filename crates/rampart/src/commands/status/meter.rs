// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The low-rate meter: a thread on each CPU that wakes 100 times a second, inside the domain that
//! owns the CPU.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rampart_domain::Domain;
use rampart_evaluate::{EvaluateError, MeasureContext, measure};
use rampart_host::{MachineRoot, StateDirectory, read_machine};
use rampart_model::{
    ActivePlan, ActivePlanState, CpuSet, DomainKind, DomainSelection, MeterKind, MeterSettings,
    Nanos, SchedulingPolicy, Status,
};
use rampart_status::Latencies;

use crate::commands::{VERSION, meter_program};
use crate::failure::Failure;

/// A hundred wakes a second: what they cost is not seen, and ten seconds have a thousand of them.
const PERIOD: Nanos = Nanos::from_millis(10);
/// Longer than anybody watches.
const FOR_EVER: Nanos = Nanos::from_secs(100 * 24 * 3600);
/// A real-time thread that uses this part of a CPU leaves no room for another one.
const SPINS: f64 = 0.5;
/// How long the meters are waited for at the end; the kernel ends them with us in any case.
const LAST_WORDS: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct Heard {
    latencies: Latencies,
    remarks: Vec<String>,
}

/// Meters that run. Dropping them ends them.
#[derive(Debug, Default)]
pub(super) struct Meters {
    heard: Arc<Mutex<Heard>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// None: there is no meter.
    program: Option<PathBuf>,
    placed_for: Option<Standing>,
}

/// One application of a plan: what meters are placed by.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Standing {
    boot: String,
    applied_at: Nanos,
}

impl Standing {
    /// None where none stands.
    fn of(plan: Option<&ActivePlan>) -> Option<Self> {
        plan.map(|plan| Self {
            boot: plan.boot.clone(),
            applied_at: plan.applied_at,
        })
    }
}

/// CPUs that are measured together, and what is started there.
#[derive(Debug)]
struct Place {
    domain: Option<rampart_model::ActiveDomain>,
    cpus: CpuSet,
}

impl Meters {
    /// No meter, and why.
    pub(super) fn off(why: &str) -> Self {
        let meters = Self::default();
        meters.remark(why.to_owned());
        meters
    }

    /// Starts them where nobody spins.
    pub(super) fn start(plan: Option<&ActivePlan>, status: &Status) -> Result<Self, Failure> {
        let mut meters = Self::default();
        meters.program = Some(meter_program()?);
        meters.place(plan.filter(is_whole), status);
        Ok(meters)
    }

    /// Places them anew where a plan was applied or released since. While one is being applied they
    /// stay where they are.
    pub(super) fn follow(&mut self, plan: Option<&ActivePlan>, status: &Status) {
        let is_begun = plan.is_some_and(|plan| plan.state == ActivePlanState::Begun);
        let plan = plan.filter(is_whole);
        if self.program.is_none() || is_begun || Standing::of(plan) == self.placed_for {
            return;
        }
        self.stop.store(true, Ordering::Relaxed);
        self.stop = Arc::default();
        {
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.remarks.clear();
        }
        self.place(plan, status);
    }

    fn place(&mut self, plan: Option<&ActivePlan>, status: &Status) {
        let Some(program) = self.program.clone() else {
            return;
        };
        self.placed_for = Standing::of(plan);
        let usable = read_machine(&MachineRoot::system()).topology.usable();
        let (locations, left_out) = places(plan, status, &usable);
        for remark in left_out {
            self.remark(remark);
        }
        // Those that were asked to end may not have ended yet.
        self.threads.retain(|thread| !thread.is_finished());
        for location in locations {
            let heard = Arc::clone(&self.heard);
            let stop = Arc::clone(&self.stop);
            let program = program.clone();
            self.threads.push(thread::spawn(move || {
                if let Err(remark) = run(&location, &program, &heard, &stop)
                    && !stop.load(Ordering::Relaxed)
                {
                    let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                    heard.remarks.push(remark);
                }
            }));
        }
    }

    fn remark(&self, remark: String) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.remarks.push(remark);
    }

    /// What was measured until now, and what is to be said of it.
    pub(super) fn heard(&self) -> (Latencies, Vec<String>) {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        (heard.latencies.clone(), heard.remarks.clone())
    }
}

impl Drop for Meters {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let end = Instant::now() + LAST_WORDS;
        while Instant::now() < end && self.threads.iter().any(|thread| !thread.is_finished()) {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A plan that is applied to its end; another one has no walls to measure behind.
fn is_whole(plan: &&ActivePlan) -> bool {
    plan.state == ActivePlanState::Active
}

/// Where meters go, and what is said of the CPUs that get none.
fn places(
    plan: Option<&ActivePlan>,
    status: &Status,
    usable: &CpuSet,
) -> (Vec<Place>, Vec<String>) {
    let Some(plan) = plan else {
        let location = Place {
            domain: None,
            cpus: usable.clone(),
        };
        return (vec![location], Vec::new());
    };
    let mut locations = vec![Place {
        domain: None,
        cpus: plan.resolved.housekeeping.intersection(usable),
    }];
    let mut left_out = Vec::new();
    for domain in &plan.domains {
        // What is spun on gives a thread of ours nothing, or is kept from spinning by it.
        let spins = status
            .cpus
            .iter()
            .flat_map(|cpu| &cpu.threads)
            .filter(|thread| thread.domain.as_deref() == Some(domain.name.as_str()))
            .any(|thread| {
                let share = thread.cpu_time.0 as f64 / status.interval.0.max(1) as f64;
                thread.policy.is_some_and(SchedulingPolicy::is_real_time) && share >= SPINS
            });
        if spins {
            left_out.push(format!(
                "no meter on {}: a real-time thread of {} spins there",
                domain.cpus.named(),
                domain.name
            ));
            continue;
        }
        locations.push(Place {
            domain: Some(domain.clone()),
            cpus: domain.cpus.clone(),
        });
    }
    locations.retain(|location| !location.cpus.is_empty());
    (locations, left_out)
}

fn domain_of(location: &Place) -> Box<dyn Domain> {
    match &location.domain {
        Some(domain) => rampart_domain::active_domain(domain),
        None => rampart_domain::domain_in(
            DomainSelection::of(DomainKind::Host),
            &StateDirectory::standard(),
        ),
    }
}

/// Measures until it is asked to end.
fn run(
    location: &Place,
    program: &std::path::Path,
    heard: &Mutex<Heard>,
    stop: &AtomicBool,
) -> Result<(), String> {
    let domain = domain_of(location);
    let nobody = CpuSet::new();
    let context = MeasureContext {
        meter: program,
        housekeeping: &nobody,
        histogram_log: None,
        explain: false,
        tool_version: VERSION,
    };
    let attempt = |policy| -> Result<(), EvaluateError> {
        let plan = MeterSettings {
            policy,
            interval: PERIOD,
            duration: FOR_EVER,
            warm_up: Nanos::from_millis(500),
            worst: 0,
            lock_memory: false,
            ..MeterSettings::new(MeterKind::Wakeup, location.cpus.clone())
        };
        let mut hear = |batch: Option<&rampart_model::Batch>| {
            if let Some(batch) = batch {
                let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                heard.latencies.add(batch);
            }
        };
        measure(domain.as_ref(), &plan, &context, &mut hear, stop).map(|_| ())
    };
    let Err(first) = attempt(SchedulingPolicy::Fifo(1)) else {
        return Ok(());
    };
    if stop.load(Ordering::Relaxed) {
        return Ok(());
    }
    // Without the privilege latencies under the time-sharing policy say something too.
    {
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.remarks.push(format!(
            "meter on {} under other, not fifo:1",
            location.cpus.named()
        ));
    }
    match attempt(SchedulingPolicy::Other) {
        Ok(()) => Ok(()),
        Err(_) if stop.load(Ordering::Relaxed) => Ok(()),
        Err(_) => Err(format!("no meter on {}: {first}", location.cpus.named())),
    }
}
