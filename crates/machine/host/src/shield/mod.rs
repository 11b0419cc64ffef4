// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The isolation of a domain's CPUs.

mod affinity;
mod cpuset_v1;
mod interrupts;
#[cfg(test)]
pub(crate) mod live_tests;
mod partition;
mod shield_in_use;
mod shield_of_active_plan;
#[cfg(test)]
mod tests;
mod threads;

pub use crate::groups::ControlGroupVersion;
pub use shield_in_use::{ShieldInUse, shield_in_use};
pub use shield_of_active_plan::{active_domain, refuse_if_a_plan_is_active};

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rampart_model::{CpuSet, Finding, IsolationMechanism, Severity, ShieldReport};
use rampart_rules::{ISOLATION_NEEDS_ROOT, resume_latency_limit};

use crate::changes::{Changes, Setting};
use crate::facts::read_machine;
use crate::groups::{self, Hierarchies};
use crate::journal::Change;
use crate::kernel::{Kernel, RunningKernel};
use crate::lock::{Lock, SharedLock};
use crate::real_time;
use crate::release::release_first;
use crate::root::MachineRoot;
use crate::state_directory::is_root;
use crate::tasks::{self, Task};
use crate::undo::Undone;
use crate::{HostError, RealTimeBudget, StateDirectory};
pub(crate) use interrupts::keep_away;

/// A control group under which a container's group inherits the shield's CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlGroup {
    /// The hierarchy.
    pub version: ControlGroupVersion,
    /// The path from the hierarchy's root, for example `/rampart-1234-0`.
    pub path: String,
}

/// Isolated CPUs. Dropping the shield restores what it can; [`Shield::lower`] also reports errors.
#[derive(Debug)]
pub struct Shield {
    changes: Mutex<Changes>,
    kernel: Arc<dyn Kernel>,
    hierarchies: Hierarchies,
    report: ShieldReport,
    group: Option<ControlGroup>,
    admit_to: Option<PathBuf>,
    /// Whether changes of processes are recorded. Without root only the user's own processes are
    /// changed, and they are not.
    recorded: bool,
    /// Whether it enters the isolation of the active plan.
    of_active_plan: bool,
    lowered: bool,
    _lock: Option<Arc<Lock>>,
}

/// Serialises raising and lowering of this process's shields.
static RAISE_OR_LOWER: Mutex<()> = Mutex::new(());

/// A request to isolate CPUs.
pub(crate) struct Request<'a> {
    pub(crate) cpus: &'a CpuSet,
    pub(crate) housekeeping: &'a CpuSet,
    /// Name of the shield's group.
    pub(crate) name: String,
}

/// What is kept off real-time CPUs besides tasks, and the exceptions.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeptAway {
    /// Do not move interrupts.
    pub(crate) leave_interrupts: bool,
    /// Do not change the CPUs of new interrupts.
    pub(crate) leave_default_interrupts: bool,
    /// Do not move unbound workqueues.
    pub(crate) leave_workqueues: bool,
    /// Do not move workqueues with their own mask.
    pub(crate) leave_workqueue_masks: bool,
    /// Let the kernel migrate timers of tickless CPUs.
    pub(crate) leave_timers: bool,
    /// Interrupts of domains, with the domain's CPUs.
    pub(crate) owned: BTreeMap<u32, CpuSet>,
}

/// Isolation in effect.
pub(crate) struct Raised {
    pub(crate) isolation: IsolationMechanism,
    pub(crate) partition: Option<String>,
    pub(crate) admit_to: Option<PathBuf>,
    pub(crate) group: Option<ControlGroup>,
    tasks_moved: u32,
    tasks_left: u32,
    pub(crate) findings: Vec<Finding>,
}

/// The result of an isolation mechanism.
enum Attempt {
    Raised(Raised),
    /// The kernel's reasons. The caller undoes the changes made so far.
    Refused(Vec<Finding>),
}

/// Returns the finding of a process that may not isolate CPUs.
#[must_use]
pub fn root_missing() -> Finding {
    ISOLATION_NEEDS_ROOT.finding(
        "privilege",
        "without root the CPUs cannot be isolated, and real-time policies may be refused; tasks, interrupts and workqueues stay on the CPUs",
    )
    .values(
        format!("user {}", rustix::process::geteuid().as_raw()),
        "root",
    )
    .fix("run the same command with sudo")
}

impl Shield {
    /// Isolates `cpus` with the strongest mechanism that this machine supports: an isolated partition
    /// of cgroup v2, else cpusets of cgroup v1, else affinity alone. Moves tasks, interrupts and
    /// unbound workqueues to `housekeeping`, and limits how deeply the CPUs sleep. First undoes the changes of
    /// ended processes. Without root changes nothing and isolates by affinity alone; see [`Shield::report`].
    ///
    /// A process may raise several shields for different CPUs. Lower them in reverse order, because
    /// each records the machine as the one before left it.
    ///
    /// # Errors
    /// If the CPUs are not usable, another process has a shield, a plan is active (enter its isolation
    /// with [`Shield::of_active_domain`]), or the journal cannot be written. Changes made until then
    /// are undone.
    pub fn raise(
        state: &StateDirectory,
        cpus: &CpuSet,
        housekeeping: &CpuSet,
    ) -> Result<Self, HostError> {
        check(&RunningKernel, cpus, housekeeping)?;
        if !is_root() {
            return Ok(Self::without_root(state, cpus));
        }
        let machine = read_machine(&MachineRoot::system());
        let lock = SharedLock::take(state, true)?;
        shield_of_active_plan::refuse_if_a_plan_is_active(state, cpus)?;
        Self::raise_on(
            Arc::new(RunningKernel),
            Some(lock),
            state,
            cpus,
            housekeeping,
        )?
        .limit_wakeup(resume_latency_limit(&machine.virtualisation))
    }

    fn without_root(state: &StateDirectory, cpus: &CpuSet) -> Self {
        let kernel: Arc<dyn Kernel> = Arc::new(RunningKernel);
        Self {
            changes: Mutex::new(Changes::new(Arc::clone(&kernel), state)),
            hierarchies: Hierarchies::of(&*kernel),
            kernel,
            report: ShieldReport {
                cpus: cpus.clone(),
                isolation: IsolationMechanism::AffinityOnly,
                partition: None,
                interrupts: Vec::new(),
                workqueues: None,
                resume_latency: None,
                tasks_moved: 0,
                tasks_left: 0,
                findings: vec![root_missing()],
            },
            group: None,
            admit_to: None,
            recorded: false,
            of_active_plan: false,
            lowered: false,
            _lock: None,
        }
    }

    fn raise_on(
        kernel: Arc<dyn Kernel>,
        lock: Option<SharedLock>,
        state: &StateDirectory,
        cpus: &CpuSet,
        housekeeping: &CpuSet,
    ) -> Result<Self, HostError> {
        check(&*kernel, cpus, housekeeping)?;
        let _serial = RAISE_OR_LOWER
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // The changes of this process's other shields are in use.
        let mut findings = if lock.as_ref().is_none_or(|lock| lock.first) {
            release_first(&*kernel, state)?
        } else {
            Vec::new()
        };
        let hierarchies = Hierarchies::of(&*kernel);
        let request = Request {
            cpus,
            housekeeping,
            name: free_name(&*kernel, &hierarchies),
        };
        let mut changes = Changes::new(Arc::clone(&kernel), state);
        match raise_all(&mut changes, &hierarchies, &request) {
            Ok((raised, kept)) => {
                findings.extend(raised.findings);
                findings.extend(kept.findings);
                Ok(Self {
                    changes: Mutex::new(changes),
                    kernel,
                    hierarchies,
                    report: ShieldReport {
                        cpus: cpus.clone(),
                        isolation: raised.isolation,
                        partition: raised.partition,
                        interrupts: kept.interrupts,
                        workqueues: kept.workqueues,
                        resume_latency: None,
                        tasks_moved: raised.tasks_moved,
                        tasks_left: raised.tasks_left,
                        findings,
                    },
                    group: raised.group,
                    admit_to: raised.admit_to,
                    recorded: true,
                    of_active_plan: false,
                    lowered: false,
                    _lock: lock.map(|shared| shared.lock),
                })
            }
            Err(error) => {
                // If this fails too, the journal still contains the changes.
                let _ = changes.undo();
                Err(error)
            }
        }
    }

    /// Keeps the shielded CPUs from idle states with a longer wakeup time than `limit`
    /// (`power/pm_qos_resume_latency_us`, [`resume_latency_limit`]), if an idle driver controls them. A lower limit
    /// stays.
    fn limit_wakeup(mut self, limit: Option<&'static str>) -> Result<Self, HostError> {
        let Some(limit) = limit else {
            return Ok(self);
        };
        let settings: Vec<Setting> = self
            .report
            .cpus
            .iter()
            .map(|cpu| PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}")))
            .filter(|cpu| self.kernel.is_directory(&cpu.join("cpuidle/state0")))
            .map(|cpu| cpu.join("power/pm_qos_resume_latency_us"))
            .filter(|file| {
                let present = self.kernel.read(file);
                present.is_ok_and(|text| microseconds(text.trim()) > microseconds(limit))
            })
            .map(|file| Setting::text(file, limit))
            .collect();
        if settings.is_empty() {
            return Ok(self);
        }
        let changes = self
            .changes
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let answers = changes.set(&settings)?;
        self.report.resume_latency = Some(limit.to_owned());
        for (setting, answer) in settings.iter().zip(answers) {
            if let Err(error) = answer {
                self.report.resume_latency = None;
                self.report.findings.push(
                    Finding::new(
                        Severity::Warning,
                        setting.path.display().to_string(),
                        format!("the kernel does not limit how deeply the CPU sleeps: {error}"),
                    )
                    .fix(format!("echo {limit} > {}", setting.path.display())),
                );
            }
        }
        Ok(self)
    }

    /// Moves a process with all its threads into the shield. With affinity alone, binds its threads to
    /// the CPUs; later threads inherit that.
    ///
    /// # Errors
    /// If the process has ended or the kernel refuses.
    pub fn admit(&self, process: u32) -> Result<(), HostError> {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        match &self.admit_to {
            Some(group) => self.admit_to_group(&mut changes, process, group),
            None => self.bind(&mut changes, process),
        }
    }

    fn admit_to_group(
        &self,
        changes: &mut Changes,
        process: u32,
        group: &Path,
    ) -> Result<(), HostError> {
        let kernel = &*self.kernel;
        let version = self
            .group
            .as_ref()
            .map_or(ControlGroupVersion::V1, |group| group.version);
        let cgroup = PathBuf::from(format!("/proc/{process}/cgroup"));
        kernel
            .read(&cgroup)
            .map_err(|cause| HostError::file("find the process", &cgroup, cause, ALIVE))?;
        // v1 lists threads, v2 processes.
        let members = match version {
            ControlGroupVersion::V1 => tasks::threads_of(kernel, process),
            ControlGroupVersion::V2 => vec![process],
        };
        let from = self.hierarchies.group_of(kernel, process, version);
        if let Some(from) = from.filter(|from| from != group && kernel.is_directory(from)) {
            changes.prepare(vec![Change::Tasks {
                from,
                to: group.to_owned(),
                sweep: false,
                tasks: members
                    .into_iter()
                    .filter_map(|thread| recorded(kernel, thread))
                    .collect(),
            }])?;
        }
        changes.step()?;
        let target = group.join("cgroup.procs");
        kernel
            .write(&target, &process.to_string())
            .map_err(|cause| HostError::file("move a process into", &target, cause, ALIVE))
    }

    fn bind(&self, changes: &mut Changes, process: u32) -> Result<(), HostError> {
        let kernel = &*self.kernel;
        let location = PathBuf::from(format!("/proc/{process}/task"));
        let mut seen = BTreeSet::new();
        // A thread that is not bound yet may create another.
        loop {
            let new: Vec<Task> = tasks::threads_of(kernel, process)
                .into_iter()
                .filter(|thread| seen.insert(*thread))
                .filter_map(|thread| recorded(kernel, thread))
                .collect();
            if new.is_empty() {
                break;
            }
            let wanted: Vec<(Task, CpuSet)> = new
                .into_iter()
                .map(|task| (task, self.report.cpus.clone()))
                .collect();
            let answers = if self.recorded {
                changes.set_affinities(wanted)?
            } else {
                wanted
                    .iter()
                    .map(|(task, cpus)| kernel.set_affinity(task.thread, cpus))
                    .collect()
            };
            for answer in answers {
                match answer {
                    Err(cause) if !groups::is_gone(&cause) => {
                        return Err(HostError::file(
                            "bind the threads of",
                            &location,
                            cause,
                            "choose CPUs that are online and within the cpuset of the process",
                        ));
                    }
                    _ => {}
                }
            }
        }
        if seen.is_empty() {
            let cause = std::io::ErrorKind::NotFound.into();
            return Err(HostError::file("find the process", &location, cause, ALIVE));
        }
        Ok(())
    }

    /// Sets the real-time budget of the `cpu` group of `process`, its parents first, to at least
    /// `runtime` in each of its periods, if `CONFIG_RT_GROUP_SCHED` requires one. Lowering the shield
    /// restores it.
    ///
    /// Without a budget the kernel refuses real-time policies in that group (EPERM), also with
    /// capabilities (Documentation/scheduler/sched-rt-group.rst).
    ///
    /// # Errors
    /// If no budget is free.
    pub fn set_real_time_budget(
        &self,
        process: u32,
        runtime: rampart_model::Nanos,
    ) -> Result<RealTimeBudget, HostError> {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        real_time::set_budget(&mut changes, &self.hierarchies, process, runtime)
    }

    /// Returns the isolation in effect, as read back.
    #[must_use]
    pub fn report(&self) -> &ShieldReport {
        &self.report
    }

    /// Returns the group below which a container's group inherits the shield's CPUs, or `None` with
    /// affinity alone. Lowering the shield removes all groups below it.
    #[must_use]
    pub fn control_group(&self) -> Option<&ControlGroup> {
        self.group.as_ref()
    }

    /// Returns whether this is the isolation of the active plan, in which the plan's programs run too.
    #[must_use]
    pub fn is_of_active_plan(&self) -> bool {
        self.of_active_plan
    }

    /// Ends the isolation and undoes its changes. Keeps values that another process changed meanwhile,
    /// with a finding in the report.
    ///
    /// # Errors
    /// If a change could not be undone; it stays in the journal for [`crate::release`].
    pub fn lower(mut self) -> Result<ShieldReport, HostError> {
        let undone = self.undo()?;
        let mut report = self.report.clone();
        report.findings.extend(undone.left);
        Ok(report)
    }

    fn undo(&mut self) -> Result<Undone, HostError> {
        let _serial = RAISE_OR_LOWER
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.lowered = true;
        self.changes
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .undo()
    }
}

impl Drop for Shield {
    fn drop(&mut self) {
        if !self.lowered {
            // The journal keeps what fails.
            let _ = self.undo();
        }
    }
}

/// Returns the limit in a content of `power/pm_qos_resume_latency_us`
/// (Documentation/ABI/testing/sysfs-devices-power): 0 is none, and `n/a` permits no time at all.
fn microseconds(content: &str) -> u32 {
    match content {
        "n/a" => 0,
        "0" => u32::MAX,
        number => number.parse().unwrap_or(u32::MAX),
    }
}

const ALIVE: &str = "name a running process";

pub(crate) fn recorded(kernel: &dyn Kernel, thread: u32) -> Option<Task> {
    Some(Task {
        thread,
        start: tasks::stat_of(kernel, thread)?.start,
        affinity: kernel.affinity(thread).ok()?,
    })
}

/// Returns the online CPUs.
fn online(kernel: &dyn Kernel) -> CpuSet {
    kernel
        .read(Path::new("/sys/devices/system/cpu/online"))
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or_default()
}

pub(crate) fn check(
    kernel: &dyn Kernel,
    cpus: &CpuSet,
    housekeeping: &CpuSet,
) -> Result<(), HostError> {
    let online = online(kernel);
    let request = |what: &str, present: String, needed: String, fix: &str| HostError::Request {
        location: format!("shield of CPUs `{cpus}` with housekeeping `{housekeeping}`"),
        what: what.to_owned(),
        found: present,
        expected: needed,
        fix: fix.to_owned(),
    };
    let named = cpus.union(housekeeping);
    let absent = named.difference(&online);
    if cpus.is_empty() {
        return Err(request(
            "the set of CPUs is empty",
            "none".to_owned(),
            format!("at least one of {online}"),
            "name a CPU",
        ));
    }
    if !absent.is_empty() {
        return Err(request(
            "not all CPUs are online",
            format!("{absent} offline or absent"),
            format!("CPUs of {online}"),
            "choose online CPUs, or bring them online in /sys/devices/system/cpu/cpu*/online",
        ));
    }
    let shared = cpus.intersection(housekeeping);
    if online.len() == 1 {
        return Err(request(
            "this machine has one CPU, so none would be left for housekeeping",
            "1 CPU online".to_owned(),
            "at least 2".to_owned(),
            "measure the `host` domain here, or give the machine a second CPU",
        ));
    }
    if housekeeping.is_empty() || !shared.is_empty() {
        let present = if housekeeping.is_empty() {
            "none".to_owned()
        } else {
            format!("{shared} in both sets")
        };
        return Err(request(
            "housekeeping has no CPU of its own",
            present,
            "at least one housekeeping CPU, and none in both sets".to_owned(),
            "keep a CPU for housekeeping, preferably the first one",
        ));
    }
    Ok(())
}

/// Returns a name that no group has. An ended process with the same number may have left one.
fn free_name(kernel: &dyn Kernel, hierarchies: &Hierarchies) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rampart-{}-{count}", std::process::id());
        let taken = hierarchies
            .legacy
            .iter()
            .map(|(mount, _)| mount)
            .chain(&hierarchies.unified)
            .any(|mount| kernel.exists(&mount.join(&name)));
        if !taken {
            return name;
        }
    }
}

fn raise_all(
    changes: &mut Changes,
    hierarchies: &Hierarchies,
    request: &Request<'_>,
) -> Result<(Raised, interrupts::Kept), HostError> {
    let raised = raise_isolation(changes, hierarchies, request)?;
    let kept = keep_away(
        changes,
        request.cpus,
        request.housekeeping,
        &KeptAway::default(),
    )?;
    Ok((raised, kept))
}

/// Isolates CPUs by control groups, or by affinity alone with the kernel's reasons as findings.
pub(crate) fn raise_isolation(
    changes: &mut Changes,
    hierarchies: &Hierarchies,
    request: &Request<'_>,
) -> Result<Raised, HostError> {
    let kernel = changes.kernel();
    let mut refusals = Vec::new();
    let before = changes.count();
    let unified = hierarchies.unified.as_deref().filter(|root| {
        kernel
            .read(&root.join("cgroup.controllers"))
            .is_ok_and(|text| text.split_whitespace().any(|name| name == "cpuset"))
    });
    let attempt = if let Some(root) = unified {
        partition::raise(changes, root, request)?
    } else if let Some(root) = hierarchies.legacy_with("cpuset") {
        cpuset_v1::raise(changes, hierarchies, root, request)?
    } else {
        Attempt::Refused(vec![
            Finding::new(
                Severity::Warning,
                "/sys/fs/cgroup",
                "no cpuset controller is mounted",
            )
            .values(hierarchies.word(), "cgroup v2 with the cpuset controller")
            .fix("mount -t cgroup2 none /sys/fs/cgroup, on a kernel with CONFIG_CPUSETS"),
        ])
    };
    let raised = match attempt {
        Attempt::Raised(raised) => raised,
        Attempt::Refused(reasons) => {
            refusals.extend(reasons);
            refusals.extend(changes.undo_since(before)?.failed);
            Raised {
                isolation: IsolationMechanism::AffinityOnly,
                partition: None,
                admit_to: None,
                group: None,
                tasks_moved: 0,
                tasks_left: 0,
                findings: refusals,
            }
        }
    };
    Ok(raised)
}
