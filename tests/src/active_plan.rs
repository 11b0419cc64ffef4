// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An active plan, as `rampart apply` leaves it: its record in a state directory, and control groups for its
//! domains, which the test creates and removes. Nothing else of the machine is changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rampart_model::{
    APPLICATION_SCHEMA_VERSION, ActiveDomain, ActivePlan, ActivePlanState, ChangeList, CpuSet,
    IsolationMechanism, Nanos, ResolvedPlan,
};

use crate::limited::Limited as _;
use crate::programs::{left_out, rampart};

/// The cpuset hierarchy of cgroup v1.
const CPUSETS: &str = "/sys/fs/cgroup/cpuset";
/// The hierarchy of cgroup v2, on machines without v1.
const UNIFIED: &str = "/sys/fs/cgroup";

/// A control group with its own CPUs. Dropping it removes it, and the groups of the same name in other
/// hierarchies, which a container engine creates.
#[derive(Debug)]
pub struct ControlGroup(PathBuf);

impl ControlGroup {
    /// Creates a group whose name contains `name`. Returns `None`, and reports the reason, if no group can have
    /// its own CPUs without a change of other groups.
    #[must_use]
    pub fn create(test: &str, name: &str, cpus: &CpuSet) -> Option<Self> {
        let name = format!("rampart-test-{name}-{}", std::process::id());
        let group = Self::try_create(&name, cpus);
        if group.is_none() {
            left_out(&format!(
                "{test}: no control group can have its own CPUs here"
            ));
        }
        group
    }

    fn try_create(name: &str, cpus: &CpuSet) -> Option<Self> {
        if let Ok(memory) = fs::read_to_string(Path::new(CPUSETS).join("cpuset.mems")) {
            let group = Self::at(Path::new(CPUSETS).join(name))?;
            fs::write(group.0.join("cpuset.mems"), memory.trim()).ok()?;
            fs::write(group.0.join("cpuset.cpus"), cpus.to_string()).ok()?;
            return Some(group);
        }
        let controllers = Path::new(UNIFIED).join("cgroup.subtree_control");
        let controllers = fs::read_to_string(controllers).ok()?;
        controllers
            .split_whitespace()
            .find(|controller| *controller == "cpuset")?;
        let group = Self::at(Path::new(UNIFIED).join(name))?;
        group.write("cpuset.cpus", &cpus.to_string());
        Some(group)
    }

    fn at(path: PathBuf) -> Option<Self> {
        fs::create_dir(&path).ok()?;
        Some(Self(path))
    }

    /// Returns the absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the end of its line in `/proc/PID/cgroup`: `cpuset:/NAME`, or `:/NAME` of version 2.
    ///
    /// # Panics
    /// Never: the path has a name.
    #[must_use]
    pub fn proc_line(&self) -> String {
        let name = self.0.file_name().expect("a name").display();
        match self.is_unified() {
            true => format!(":/{name}"),
            false => format!("cpuset:/{name}"),
        }
    }

    /// Returns whether it is a group of cgroup v2.
    #[must_use]
    pub fn is_unified(&self) -> bool {
        !self.0.starts_with(CPUSETS)
    }

    /// Writes to a file of the group.
    ///
    /// # Panics
    /// If the kernel refuses the value.
    pub fn write(&self, file: &str, value: &str) {
        fs::write(self.0.join(file), value).expect("a file of the group");
    }

    /// Returns whether a process is a member.
    #[must_use]
    pub fn contains(&self, process: u32) -> bool {
        let members = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        members.lines().any(|line| line == process.to_string())
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let Some(name) = self.0.file_name() else {
            return;
        };
        let end = Instant::now() + Duration::from_secs(5);
        let hierarchies = fs::read_dir(UNIFIED).into_iter().flatten().flatten();
        let others = hierarchies.map(|hierarchy| hierarchy.path().join(name));
        for group in std::iter::once(self.0.clone()).chain(others) {
            // The kernel removes a group only some time after its last member has ended.
            while group.is_dir() && fs::remove_dir(&group).is_err() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Writes an active plan to a state directory: resolved on this machine, each domain with the control group
/// that `groups` has for its name.
///
/// # Panics
/// If the text is no plan.
pub fn activate(state: &Path, text: &str, groups: &[(&str, &ControlGroup)]) -> ActivePlan {
    let file = state.join("plan.toml");
    fs::write(&file, text).expect("the plan's file");
    let file = file.to_str().expect("a path").to_owned();
    let output = rampart(state, &["plan", "show", &file, "--json"])
        .finish()
        .expect("rampart starts");
    let resolved: ResolvedPlan =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let domains = resolved
        .domains
        .iter()
        .map(|domain| {
            let group = groups.iter().find(|(name, _)| *name == domain.name);
            ActiveDomain {
                name: domain.name.clone(),
                kind: domain.kind,
                cpus: domain.cpus.clone(),
                isolation: match group {
                    Some((_, group)) if group.is_unified() => IsolationMechanism::IsolatedPartition,
                    Some(_) => IsolationMechanism::CpusetV1,
                    None => IsolationMechanism::AffinityOnly,
                },
                partition: None,
                group: group.map(|(_, group)| group.path().display().to_string()),
                members: None,
                unified: group.is_some_and(|(_, group)| group.is_unified()),
            }
        })
        .collect();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("boot id");
    let plan = ActivePlan {
        schema_version: APPLICATION_SCHEMA_VERSION,
        tool_version: "0.1.0".to_owned(),
        state: ActivePlanState::Active,
        applied_at: Nanos::ZERO,
        boot: boot.trim().to_owned(),
        file,
        text: text.to_owned(),
        resolved,
        domains,
        changes: ChangeList {
            schema_version: APPLICATION_SCHEMA_VERSION,
            tool_version: "0.1.0".to_owned(),
            steps: Vec::new(),
            boot_arguments: Vec::new(),
        },
        findings: Vec::new(),
        kept_interrupts: Vec::new(),
    };
    write(state, &plan);
    plan
}

/// Writes the record of an active plan.
///
/// # Panics
/// If the state directory cannot be written to.
pub fn write(state: &Path, plan: &ActivePlan) {
    let text = serde_json::to_vec_pretty(plan).expect("a document");
    fs::write(state.join("plan.json"), text).expect("plan.json");
}
