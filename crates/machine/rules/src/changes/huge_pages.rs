// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Steps for the huge pages of a plan's guests: reserved on their node, and on the kernel command
//! line for sizes that are only available at boot (Documentation/admin-guide/mm/hugetlbpage.rst).

use std::collections::BTreeMap;

use rampart_model::{
    ByteSize, ChangeLocation, ChangeStep, ChangeTarget, KnobAction, Reboot, ResolvedPlan,
    StepAction, StepKind,
};

use crate::{KernelCommandLine, KernelVersion, Reading, Readings};

/// The knobs by which a plan leaves these steps to other software.
pub(crate) const PAGES: &str = "huge-pages";
pub(crate) const PAGES_AT_BOOT: &str = "huge-pages-at-boot";

const SOURCE: &str = "Documentation/admin-guide/mm/hugetlbpage.rst";
/// Pages of this size are rarely available once memory has been used.
const GIGANTIC: u64 = 1 << 30;
/// The first kernel whose `hugepages=` takes nodes.
const NODES_AT_BOOT: KernelVersion = KernelVersion {
    major: 5,
    minor: 16,
};

/// Huge pages of one size on one node.
#[derive(Debug)]
struct Pool {
    node: u32,
    size: ByteSize,
    needed: u64,
    /// The file with their number; `None` if the kernel has no pages of this size.
    path: Option<String>,
    total: u64,
    free: u64,
}

impl Pool {
    /// Returns the needed number, including pages in use.
    fn target(&self) -> u64 {
        self.total
            .saturating_add(self.needed.saturating_sub(self.free))
    }

    fn name(&self) -> String {
        format!("{} on node {}", self.size, self.node)
    }
}

/// Returns the steps; empty if no guest of the plan has huge pages.
pub(crate) fn steps(plan: &ResolvedPlan, readings: &Readings) -> Vec<ChangeStep> {
    let pools = pools(plan, readings);
    if pools.is_empty() {
        return Vec::new();
    }
    let at_boot = at_boot(plan, readings, &pools);
    let mut steps = vec![now(plan, &pools, at_boot.is_some())];
    steps.extend(at_boot);
    steps
}

fn pools(plan: &ResolvedPlan, readings: &Readings) -> Vec<Pool> {
    let mut needed: BTreeMap<(u32, ByteSize), u64> = BTreeMap::new();
    for pages in plan.domains.iter().filter_map(|domain| domain.huge_pages) {
        let count = needed.entry((pages.node, pages.size)).or_default();
        *count = count.saturating_add(pages.count);
    }
    needed
        .into_iter()
        .map(|((node, size), needed)| {
            let [(path, total), (_, free)] =
                ["nr_hugepages", "free_hugepages"].map(|file| number(readings, node, size, file));
            Pool {
                node,
                size,
                needed,
                path,
                total,
                free,
            }
        })
        .collect()
}

/// Returns the file and a number of a node's pages; of the machine if it has no nodes.
fn number(readings: &Readings, node: u32, size: ByteSize, file: &str) -> (Option<String>, u64) {
    let size = format!("{}kB", size.0 >> 10);
    let of_nodes = readings.of(&format!(
        "/sys/devices/system/node/node{{node}}/hugepages/hugepages-{{size}}/{file}"
    ));
    let whole = readings.of(&format!(
        "/sys/kernel/mm/hugepages/hugepages-{{size}}/{file}"
    ));
    let node = node.to_string();
    let found = if of_nodes.is_empty() {
        whole
            .iter()
            .find(|location| location.keys.first() == Some(&size))
    } else {
        of_nodes.iter().find(|location| {
            location.keys.first() == Some(&node) && location.keys.get(1) == Some(&size)
        })
    };
    let Some(location) = found else {
        return (None, 0);
    };
    match &location.reading {
        Reading::Value(text) => (Some(location.path.clone()), text.parse().unwrap_or(0)),
        Reading::Refused(_) => (None, 0),
    }
}

/// Returns the action of a plan for a knob that it names. The default applies to the catalogue
/// only.
fn planned_action(plan: &ResolvedPlan, knob: &str) -> Option<(StepAction, &'static str)> {
    match plan.host.get(knob)?.action {
        KnobAction::Skip => Some((StepAction::Skip, "the plan skips it")),
        KnobAction::Expect => Some((
            StepAction::Expect,
            "the plan expects other software to set it, and it is not set",
        )),
        KnobAction::Apply => None,
    }
}

fn now(plan: &ResolvedPlan, pools: &[Pool], is_at_boot: bool) -> ChangeStep {
    let missing: Vec<&Pool> = pools
        .iter()
        .filter(|pool| pool.free < pool.needed)
        .collect();
    let counts = |number: fn(&Pool) -> u64| {
        let each = pools.iter();
        each.map(|pool| format!("{} of {}", number(pool), pool.name()))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let mut step = ChangeStep {
        kind: StepKind::Knob,
        name: PAGES.to_owned(),
        title: "huge pages reserved for guests".to_owned(),
        action: StepAction::AsWanted,
        why: String::new(),
        present: format!("{} free", counts(|pool| pool.free)),
        wanted: format!("{} free", counts(|pool| pool.needed)),
        locations: Vec::new(),
        disruptive: Some("compacts memory until enough contiguous pages are free".to_owned()),
        fix: None,
        source: SOURCE.to_owned(),
    };
    if let Some((action, why)) = planned_action(plan, PAGES) {
        if !missing.is_empty() {
            (step.action, step.why) = (action, why.to_owned());
        }
        return step;
    }
    let pages = if missing.is_empty() {
        pools.iter().collect()
    } else {
        missing
    };
    step.locations = pages
        .iter()
        .filter_map(|pool| {
            let path = pool.path.clone()?;
            Some(ChangeLocation {
                location: path.clone(),
                target: ChangeTarget::File(path),
                present: pool.total.to_string(),
                value: pool.target().to_string(),
            })
        })
        .collect();
    if pages.iter().all(|pool| pool.free >= pool.needed) {
        return step;
    }
    // Pages of a size without a file cannot be reserved at run time.
    let Some(hidden) = pages.iter().find(|pool| pool.path.is_none()) else {
        step.action = StepAction::Apply;
        return step;
    };
    step.locations = Vec::new();
    (step.action, step.why) = if is_at_boot && hidden.size.0 >= GIGANTIC {
        (StepAction::AtRestart, format!("with {PAGES_AT_BOOT}"))
    } else {
        step.fix = Some("choose a page size of a directory in /sys/kernel/mm/hugepages".to_owned());
        let why = format!("the kernel has no huge pages of {}", hidden.name());
        (StepAction::ByHand, why)
    };
    step
}

/// Returns the step with the kernel arguments in [`ChangeStep::why`]; arguments for other sizes
/// come first, because the order matters. `None` if the plan permits no restart, or needs no
/// argument.
fn at_boot(plan: &ResolvedPlan, readings: &Readings, pools: &[Pool]) -> Option<ChangeStep> {
    let first = pools.iter().find(|pool| pool.size.0 >= GIGANTIC)?;
    let pools: Vec<&Pool> = pools
        .iter()
        .filter(|pool| pool.size == first.size)
        .collect();
    let names_pages = |argument: &String| argument.starts_with("hugepages");
    if plan.boot.reboot != Reboot::Plan || plan.boot.arguments.iter().any(names_pages) {
        return None;
    }
    let (mut words, present) = words_of_others(&readings.kernel_command_line, first.size);
    let missing = pools.iter().any(|pool| pool.free < pool.needed);
    // The pages are already reserved by other means.
    if !missing && present.is_none() {
        return None;
    }
    let count = count_at_boot(readings, &pools);
    words.push(format!("hugepagesz={}G", first.size.0 >> 30));
    words.push(format!("hugepages={count}"));
    let is_so = present.as_deref() == Some(count.as_str());
    let mut step = ChangeStep {
        kind: StepKind::KernelCommandLine,
        name: PAGES_AT_BOOT.to_owned(),
        title: "huge pages reserved at boot".to_owned(),
        action: if is_so && !missing {
            StepAction::AsWanted
        } else {
            StepAction::AtRestart
        },
        why: words.join(" "),
        present: present.unwrap_or_else(|| "none".to_owned()),
        wanted: count,
        locations: Vec::new(),
        disruptive: None,
        fix: None,
        source: "Documentation/admin-guide/kernel-parameters.txt, hugepages=".to_owned(),
    };
    if let Some((action, why)) = planned_action(plan, PAGES_AT_BOOT) {
        (step.action, step.why) = (action, why.to_owned());
    }
    Some(step)
}

/// Returns the kernel arguments of other sizes, and of this size.
fn words_of_others(line: &KernelCommandLine, size: ByteSize) -> (Vec<String>, Option<String>) {
    let (mut words, mut present) = (Vec::new(), None);
    for (name, value) in line.huge_pages() {
        match name.as_deref() {
            Some(text) if bytes(text) == Some(size.0) => present = Some(value),
            Some(text) => {
                words.push(format!("hugepagesz={text}"));
                words.push(format!("hugepages={value}"));
            }
            None => words.push(format!("hugepages={value}")),
        }
    }
    (words, present)
}

/// Parses a size of the kernel command line (lib/cmdline.c, `memparse`).
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..)?.to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Returns the value of `hugepages=` for these pools: by node if the kernel supports that, else
/// enough for each node, since the kernel spreads them evenly.
fn count_at_boot(readings: &Readings, pools: &[&Pool]) -> String {
    let nodes = readings
        .of("/sys/devices/system/node/node{node}/hugepages/hugepages-{size}/nr_hugepages")
        .iter()
        .filter_map(|location| location.keys.first())
        .collect::<std::collections::BTreeSet<_>>()
        .len()
        .max(1);
    let most = pools.iter().map(|pool| pool.target()).max().unwrap_or(0);
    if nodes == 1 {
        return most.to_string();
    }
    if readings
        .kernel
        .is_some_and(|kernel| kernel >= NODES_AT_BOOT)
    {
        let each = pools.iter();
        let each: Vec<String> = each
            .map(|pool| format!("{}:{}", pool.node, pool.target()))
            .collect();
        return each.join(",");
    }
    most.saturating_mul(u64::try_from(nodes).unwrap_or(u64::MAX))
        .to_string()
}
