// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Low-rate meters: on each CPU a thread in the domain of the CPU that wakes 100 times a second.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rampart_domain::Domain;
use rampart_evaluate::{EvaluateError, MeasureContext, measure};
use rampart_host::{MachineRoot, StateDirectory, read_machine};
use rampart_model::{
    ActivePlan, ActivePlanState, Batch, CpuSet, DomainKind, DomainSelection, MeterKind,
    MeterSettings, Nanos, SchedulingPolicy, Status,
};
use rampart_status::Latencies;

/// Period of the wakeups: cheap, and a thousand samples in ten seconds.
const PERIOD: Nanos = Nanos::from_millis(10);
/// Duration of a measurement that only `stop` ends.
const UNLIMITED: Nanos = Nanos::from_secs(100 * 24 * 3600);
/// Share of a CPU above which a real-time thread leaves no time for a meter.
const SPINNING: f64 = 0.5;
/// Time limit of the meters' end; the kernel ends them with this process in any case.
const END_LIMIT: Duration = Duration::from_secs(2);

/// The program of the meters.
#[derive(Debug, Clone)]
pub struct MeterProgram {
    /// Its path.
    pub path: PathBuf,
    /// Version of the tool that starts it.
    pub tool_version: &'static str,
}

/// Running meters. Dropping the value ends them.
#[derive(Debug, Default)]
pub(crate) struct LowRateMeters {
    latencies: Arc<Mutex<Latencies>>,
    remarks: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// `None` if nothing is measured.
    program: Option<MeterProgram>,
    placed_for: Option<AppliedPlan>,
}

/// Identity of an applied plan; meters are placed anew if it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AppliedPlan {
    boot: String,
    applied_at: Nanos,
}

impl AppliedPlan {
    /// Returns `None` if no plan is active.
    fn of(plan: Option<&ActivePlan>) -> Option<Self> {
        plan.map(|plan| Self {
            boot: plan.boot.clone(),
            applied_at: plan.applied_at,
        })
    }
}

/// CPUs that are measured together, and their domain; `None` for the host.
#[derive(Debug)]
struct MeterLocation {
    domain: Option<rampart_model::ActiveDomain>,
    cpus: CpuSet,
}

impl LowRateMeters {
    /// Returns no meters, with the reason as a remark.
    pub(crate) fn off(why: String) -> Self {
        let meters = Self::default();
        meters.remark(why);
        meters
    }

    /// Starts meters with this program on CPUs without a spinning real-time thread.
    pub(crate) fn start(program: MeterProgram, plan: Option<&ActivePlan>, status: &Status) -> Self {
        let mut meters = Self::default();
        meters.program = Some(program);
        meters.place(plan.filter(is_complete), status);
        meters
    }

    /// Places the meters anew if a plan was applied or released. While a plan is being applied they
    /// stay on their CPUs.
    pub(crate) fn follow(&mut self, plan: Option<&ActivePlan>, status: &Status) {
        let is_begun = plan.is_some_and(|plan| plan.state == ActivePlanState::Begun);
        let plan = plan.filter(is_complete);
        if self.program.is_none() || is_begun || AppliedPlan::of(plan) == self.placed_for {
            return;
        }
        self.stop.store(true, Ordering::Relaxed);
        self.stop = Arc::default();
        locked(&self.remarks).clear();
        self.place(plan, status);
    }

    fn place(&mut self, plan: Option<&ActivePlan>, status: &Status) {
        let Some(program) = self.program.clone() else {
            return;
        };
        self.placed_for = AppliedPlan::of(plan);
        let usable = read_machine(&MachineRoot::system()).topology.usable();
        let (locations, left_out) = meter_locations(plan, status, &usable);
        for remark in left_out {
            self.remark(remark);
        }
        // Threads that were stopped may not have ended yet.
        self.threads.retain(|thread| !thread.is_finished());
        for location in locations {
            let remarks = Arc::clone(&self.remarks);
            let stop = Arc::clone(&self.stop);
            let program = program.clone();
            let latencies = Arc::clone(&self.latencies);
            self.threads.push(thread::spawn(move || {
                if let Err(remark) = run(&location, &program, &latencies, &remarks, &stop)
                    && !stop.load(Ordering::Relaxed)
                {
                    locked(&remarks).push(remark);
                }
            }));
        }
    }

    fn remark(&self, remark: String) {
        locked(&self.remarks).push(remark);
    }

    /// Returns remarks about the meters: that they are off, or on which CPUs none runs and why.
    pub(crate) fn remarks(&self) -> Vec<String> {
        locked(&self.remarks).clone()
    }

    /// Returns the latencies measured so far.
    pub(crate) fn latencies(&self) -> Latencies {
        locked(&self.latencies).clone()
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for LowRateMeters {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let end = Instant::now() + END_LIMIT;
        while Instant::now() < end && self.threads.iter().any(|thread| !thread.is_finished()) {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Returns whether a plan is applied completely, so that its domains are isolated.
fn is_complete(plan: &&ActivePlan) -> bool {
    plan.state == ActivePlanState::Active
}

/// Returns the locations of meters, and remarks about CPUs without one.
fn meter_locations(
    plan: Option<&ActivePlan>,
    status: &Status,
    usable: &CpuSet,
) -> (Vec<MeterLocation>, Vec<String>) {
    let Some(plan) = plan else {
        let location = MeterLocation {
            domain: None,
            cpus: usable.clone(),
        };
        return (vec![location], Vec::new());
    };
    let mut locations = vec![MeterLocation {
        domain: None,
        cpus: plan.resolved.housekeeping.intersection(usable),
    }];
    let mut left_out = Vec::new();
    for domain in &plan.domains {
        // A meter there would get no CPU time, or take it from the spinning thread.
        let spins = status
            .cpus
            .iter()
            .flat_map(|cpu| &cpu.threads)
            .filter(|thread| thread.domain.as_deref() == Some(domain.name.as_str()))
            .any(|thread| {
                let share = thread.cpu_time.0 as f64 / status.interval.0.max(1) as f64;
                thread.policy.is_some_and(SchedulingPolicy::is_real_time) && share >= SPINNING
            });
        if spins {
            left_out.push(format!(
                "no meter on {}: a real-time thread of {} spins there",
                domain.cpus.named(),
                domain.name
            ));
            continue;
        }
        locations.push(MeterLocation {
            domain: Some(domain.clone()),
            cpus: domain.cpus.clone(),
        });
    }
    locations.retain(|location| !location.cpus.is_empty());
    (locations, left_out)
}

fn domain_of(location: &MeterLocation) -> Box<dyn Domain> {
    match &location.domain {
        Some(domain) => rampart_domain::active_domain(domain),
        None => rampart_domain::domain_in(
            DomainSelection::of(DomainKind::Host),
            &StateDirectory::standard(),
        ),
    }
}

/// Measures until `stop` is set. The error is a remark for the user.
fn run(
    location: &MeterLocation,
    program: &MeterProgram,
    latencies: &Mutex<Latencies>,
    remarks: &Mutex<Vec<String>>,
    stop: &AtomicBool,
) -> Result<(), String> {
    let domain = domain_of(location);
    let no_cpus = CpuSet::new();
    let context = MeasureContext {
        meter: &program.path,
        housekeeping: &no_cpus,
        histogram_log: None,
        explain: false,
        tool_version: program.tool_version,
    };
    let attempt = |policy| -> Result<(), EvaluateError> {
        let plan = MeterSettings {
            policy,
            interval: PERIOD,
            duration: UNLIMITED,
            warm_up: Nanos::from_millis(500),
            worst: 0,
            lock_memory: false,
            ..MeterSettings::new(MeterKind::Wakeup, location.cpus.clone())
        };
        let mut add = |batch: Option<&Batch>| {
            if let Some(batch) = batch {
                locked(latencies).add(batch);
            }
        };
        measure(domain.as_ref(), &plan, &context, &mut add, stop).map(|_| ())
    };
    let Err(first) = attempt(SchedulingPolicy::Fifo(1)) else {
        return Ok(());
    };
    if stop.load(Ordering::Relaxed) {
        return Ok(());
    }
    // Without the privilege for FIFO, measure under the time-sharing policy.
    locked(remarks).push(format!(
        "meter on {} with policy other instead of fifo:1",
        location.cpus.named()
    ));
    match attempt(SchedulingPolicy::Other) {
        Ok(()) => Ok(()),
        Err(_) if stop.load(Ordering::Relaxed) => Ok(()),
        Err(_) => Err(format!("no meter on {}: {first}", location.cpus.named())),
    }
}
