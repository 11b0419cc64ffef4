// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plan that stands, as `rampart apply` leaves it: its record in a state directory, and a control
//! group for a domain that the test makes and removes itself. Nothing of the machine is changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rampart_model::{
    APPLICATION_SCHEMA_VERSION, ChangeList, CpuSet, Nanos, ResolvedPlan, StandingDomain,
    StandingPlan, StandingState, Wall,
};

use crate::limited::Limited as _;
use crate::programs::rampart;

/// Where control groups of version 1 with CPUs are, on the machines that have them.
const CPUSETS: &str = "/sys/fs/cgroup/cpuset";

/// A control group of cgroup v1 with CPUs of its own. Dropping it removes it, and what a container
/// engine made below it or beside it.
#[derive(Debug)]
pub struct Group(pub PathBuf);

impl Group {
    /// Makes one with this name; none where the machine has no such groups.
    #[must_use]
    pub fn make(name: &str, cpus: &CpuSet) -> Option<Self> {
        let memory = fs::read_to_string(Path::new(CPUSETS).join("cpuset.mems")).ok()?;
        let path = Path::new(CPUSETS).join(name);
        fs::create_dir(&path).ok()?;
        let group = Self(path);
        fs::write(group.0.join("cpuset.mems"), memory.trim()).ok()?;
        fs::write(group.0.join("cpuset.cpus"), cpus.to_string()).ok()?;
        Some(group)
    }

    /// Whether a process is in it.
    #[must_use]
    pub fn has(&self, process: u32) -> bool {
        let members = fs::read_to_string(self.0.join("tasks")).unwrap_or_default();
        members.lines().any(|line| line == process.to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Some(name) = self.0.file_name() else {
            return;
        };
        let end = Instant::now() + Duration::from_secs(5);
        for hierarchy in fs::read_dir("/sys/fs/cgroup")
            .into_iter()
            .flatten()
            .flatten()
        {
            let group = hierarchy.path().join(name);
            // A group can be removed some time after its last member has ended.
            while group.is_dir() && fs::remove_dir(&group).is_err() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Makes a plan stand in a state directory: resolved on this machine, each domain with the control
/// group that `groups` gives to its name.
///
/// # Panics
/// If the text is no plan.
pub fn stand(state: &Path, text: &str, groups: &[(&str, &Group)]) -> StandingPlan {
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
            StandingDomain {
                name: domain.name.clone(),
                kind: domain.kind,
                cpus: domain.cpus.clone(),
                wall: match group {
                    Some(_) => Wall::CpusetV1,
                    None => Wall::AffinityOnly,
                },
                partition: None,
                group: group.map(|(_, group)| group.0.display().to_string()),
                members: None,
                unified: false,
            }
        })
        .collect();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("boot id");
    let plan = StandingPlan {
        schema_version: APPLICATION_SCHEMA_VERSION,
        tool_version: "0.1.0".to_owned(),
        state: StandingState::Stands,
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
    };
    write(state, &plan);
    plan
}

/// Writes a plan that stands.
///
/// # Panics
/// If the state directory cannot be written to.
pub fn write(state: &Path, plan: &StandingPlan) {
    let text = serde_json::to_vec_pretty(plan).expect("a document");
    fs::write(state.join("plan.json"), text).expect("plan.json");
}
        kept_interrupts: Vec::new(),
