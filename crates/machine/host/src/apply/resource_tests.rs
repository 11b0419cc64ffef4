// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of shares of caches and of huge pages: the result, refusals, and that release restores the
//! machine after an end at any step.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use rampart_model::{
    ActivePlan, ByteSize, CacheShare, ChangeList, ChangeTarget, ResolvedPlan, StepKind, WayMask,
};

use super::tests::{
    apply_plan, changes, file, machine, resolved, restorable, step, survives_every_end_of, text,
};
use crate::fake::resctrl::{POINT, Resctrl};
use crate::fake::{FakeKernel, Layout, Machine, cpus, directory};
use crate::release::release_locked;
use crate::{HostError, StateDirectory, active_plan, journal};

const PAGES: &str = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages";

fn exclusive(ways: u32) -> CacheShare {
    CacheShare {
        ways: Some(ways),
        exclusive: true,
        ..CacheShare::default()
    }
}

/// Returns a plan of two domains, `press` on CPU 2 and `vision` on CPU 3, with these shares.
fn shared(press: Option<CacheShare>, vision: Option<CacheShare>) -> (ResolvedPlan, ChangeList) {
    let (mut plan, mut list) = (resolved(), changes());
    for (domain, share) in plan.domains.iter_mut().zip([press, vision]) {
        domain.cache = share;
        if domain.cache.is_some() {
            list.steps
                .insert(2, step(StepKind::Cache, &domain.name, Vec::new()));
        }
    }
    (plan, list)
}

fn with_resctrl(mounted: bool, cpus_of_each: u32) -> Machine {
    let mut machine = machine(Layout::V2);
    machine.add_resctrl(mounted, cpus_of_each);
    machine
}

fn resctrl(kernel: &FakeKernel) -> Resctrl {
    kernel.machine().resctrl.clone().expect("resctrl")
}

fn ways(kernel: &FakeKernel, group: &str, id: u32) -> u64 {
    resctrl(kernel).groups[group].ways[&("L3", id)].0
}

/// Applies a plan, calls `check`, releases, and checks that the machine is as before.
fn apply_and_release(
    before: Machine,
    plan: &(ResolvedPlan, ChangeList),
    check: impl FnOnce(&FakeKernel, &ActivePlan),
) {
    let directory = directory();
    let state = StateDirectory::at(directory.path());
    let kernel = Arc::new(FakeKernel::new(before.clone()));
    let active = apply_plan(&kernel, &state, &plan.0, &plan.1).expect("apply");
    check(&kernel, &active);
    let report = release_locked(&*kernel, &state).expect("release");
    assert!(report.left.is_empty(), "{:?}", report.left);
    assert_eq!(restorable(&kernel.machine()), restorable(&before));
    assert_eq!(active_plan(&state).expect("read"), None);
}

/// Applies a plan that is refused, and checks that the machine is as before.
fn refusal(before: &Machine, plan: &(ResolvedPlan, ChangeList)) -> HostError {
    let directory = directory();
    let state = StateDirectory::at(directory.path());
    let kernel = Arc::new(FakeKernel::new(before.clone()));
    let refusal = apply_plan(&kernel, &state, &plan.0, &plan.1).expect_err("refused");
    assert_eq!(
        restorable(&kernel.machine()),
        restorable(before),
        "{refusal}"
    );
    assert!(journal::files(&state).is_empty());
    refusal
}

#[test]
fn a_share_is_a_group_and_the_default_group_has_the_rest() {
    let limited = CacheShare {
        bytes: Some(ByteSize(3 << 19)),
        bandwidth_percent: Some(45),
        ..CacheShare::default()
    };
    let plan = shared(Some(exclusive(4)), Some(limited));
    apply_and_release(with_resctrl(true, 4), &plan, |kernel, active| {
        assert_eq!(ways(kernel, "rampart-press", 0), 0x00f);
        // One and a half MiB are two ways, next to the others and not among those of devices.
        assert_eq!(ways(kernel, "rampart-vision", 0), 0x030);
        assert_eq!(ways(kernel, "", 0), 0x7f0);
        let resctrl = resctrl(kernel);
        let press = &resctrl.groups["rampart-press"];
        assert!(press.exclusive && press.cpus == cpus("2"));
        let vision = &resctrl.groups["rampart-vision"];
        assert!(!vision.exclusive && vision.cpus == cpus("3"));
        assert_eq!((press.bandwidth[&0], vision.bandwidth[&0]), (100, 50));
        let chosen = &active.resolved.domains[0].cache_ways;
        assert_eq!(chosen.len(), 1);
        assert_eq!((chosen[0].ways, chosen[0].size), (WayMask(0xf), 4 << 20));
        let step = active
            .changes
            .steps
            .iter()
            .find(|step| step.kind == StepKind::Cache && step.name == "vision");
        assert_eq!(
            step.map(|step| step.wanted.as_str()),
            Some("2 of 11 ways of L3 cache 0 (mask 30); 45 % of memory bandwidth")
        );
        // The plan contains the written values, for the status.
        let locations: Vec<(String, &str)> = active
            .changes
            .steps
            .iter()
            .filter(|step| step.kind == StepKind::Cache && step.name == "press")
            .flat_map(|step| &step.locations)
            .map(|location| {
                (
                    location.location.replace(POINT, ""),
                    location.value.as_str(),
                )
            })
            .collect();
        let expected = [
            ("/rampart-press/schemata", "L3:0=f"),
            ("/rampart-press/cpus_list", "2"),
            ("/schemata", "L3:0=7f0"),
        ];
        assert_eq!(
            locations,
            expected.map(|(path, value)| (path.to_owned(), value))
        );
    });
}

#[test]
fn a_cache_that_the_domain_does_not_use_is_not_divided() {
    let plan = shared(None, Some(exclusive(3)));
    apply_and_release(with_resctrl(true, 2), &plan, |kernel, active| {
        assert_eq!(ways(kernel, "rampart-vision", 1), 0x007);
        assert_eq!(ways(kernel, "", 1), 0x7f8);
        assert_eq!(ways(kernel, "", 0), 0x7ff);
        // The kernel's exclusive mode would affect the other cache too.
        assert!(!resctrl(kernel).groups["rampart-vision"].exclusive);
        let mut findings = active.findings.iter();
        assert!(findings.all(|finding| !finding.location.contains("mode")));
    });
}

#[test]
fn code_and_data_are_divided_alike() {
    let mut before = with_resctrl(false, 4);
    if let Some(resctrl) = &mut before.resctrl {
        resctrl.resources = vec!["L3CODE", "L3DATA"];
        resctrl.mounted = true;
    }
    let kernel = FakeKernel::new(before.clone());
    // The state after a mount.
    let _ = kernel
        .machine()
        .resctrl
        .as_mut()
        .map(|resctrl| resctrl.mounted = false);
    crate::kernel::Kernel::mount(&kernel, "resctrl", Path::new(POINT)).expect("mount");
    let before = kernel.machine().clone();
    let plan = shared(Some(exclusive(4)), None);
    apply_and_release(before, &plan, |kernel, active| {
        let group = &resctrl(kernel).groups["rampart-press"];
        for resource in ["L3CODE", "L3DATA"] {
            assert_eq!(group.ways[&(resource, 0)], WayMask(0xf));
        }
        assert!(group.exclusive);
        assert_eq!(active.resolved.domains[0].cache_ways.len(), 1);
    });
}

#[test]
fn resctrl_is_mounted_and_unmounted_again_unless_others_use_it() {
    let plan = shared(Some(exclusive(4)), None);
    let before = with_resctrl(false, 4);
    apply_and_release(before.clone(), &plan, |kernel, _| {
        assert!(resctrl(kernel).mounted);
    });

    let directory = directory();
    let state = StateDirectory::at(directory.path());
    let kernel = Arc::new(FakeKernel::new(before));
    apply_plan(&kernel, &state, &plan.0, &plan.1).expect("apply");
    kernel.machine().add_cache_group("theirs", 0x700, Some(0));
    let report = release_locked(&*kernel, &state).expect("release");
    let left: Vec<String> = report.left.iter().map(ToString::to_string).collect();
    assert!(left.len() == 1 && left[0].contains("theirs"), "{left:?}");
    let after = resctrl(&kernel);
    assert!(after.mounted && after.groups.contains_key("theirs"));
    assert_eq!(ways(&kernel, "", 0), 0x7ff);
    assert!(!after.groups.contains_key("rampart-press"));
}

#[test]
fn an_impossible_share_is_refused_and_all_changes_are_undone() {
    // No resctrl.
    let plan = shared(Some(exclusive(4)), None);
    let text = refusal(&machine(Layout::V2), &plan).to_string();
    assert!(
        text.contains("press") && text.contains("/proc/filesystems"),
        "{text}"
    );

    for (ways, theirs, expected) in [
        // The default group would have no ways.
        (11, None, "too little"),
        (12, None, "side by side"),
        // Another group has ways in the middle, or the CPU.
        (6, Some((0x070, None)), "rmdir /sys/fs/resctrl/theirs"),
        (2, Some((0x070, Some(2))), "rmdir /sys/fs/resctrl/theirs"),
    ] {
        let mut before = with_resctrl(true, 4);
        if let Some((mask, cpu)) = theirs {
            before.add_cache_group("theirs", mask, cpu);
        }
        let plan = shared(Some(exclusive(ways)), None);
        let text = refusal(&before, &plan).to_string();
        assert!(text.contains(expected), "{ways} ways: {text}");
        assert!(text.contains("fix: "), "{text}");
    }

    // The kernel accepts the first share and refuses the second.
    let mut before = with_resctrl(false, 4);
    if let Some(resctrl) = &mut before.resctrl {
        resctrl.most_groups = 2;
    }
    let plan = shared(Some(exclusive(1)), Some(exclusive(1)));
    let text = refusal(&before, &plan).to_string();
    assert!(
        text.contains("vision") && text.contains("no further group"),
        "{text}"
    );
}

#[test]
fn shares_of_other_groups_are_kept() {
    let mut before = with_resctrl(true, 4);
    before.add_cache_group("theirs", 0x003, Some(0));
    let plan = shared(Some(exclusive(4)), None);
    apply_and_release(before, &plan, |kernel, _| {
        assert_eq!(ways(kernel, "theirs", 0), 0x003);
        assert_eq!(ways(kernel, "rampart-press", 0), 0x03c);
        // The longer part of the free ways: the kernel accepts only adjacent ways.
        assert_eq!(ways(kernel, "", 0), 0x7c0);
    });
}

#[test]
fn huge_pages_are_requested_again_while_the_kernel_finds_more() {
    let mut before = machine(Layout::V2);
    before.files.insert(PAGES.into(), "3\n".into());
    let (plan, mut list) = (resolved(), changes());
    list.steps
        .push(step(StepKind::Knob, "huge-pages", file(PAGES, "40")));
    let plan = (plan, list);
    before.huge_pages = Some((100, 15));
    apply_and_release(before.clone(), &plan, |kernel, _| {
        assert_eq!(text(kernel, PAGES), "40");
    });
    before.huge_pages = Some((20, 100));
    let text = refusal(&before, &plan).to_string();
    for part in [
        PAGES,
        "found 20 pages",
        "expected 40",
        "--boot",
        "earlier changes were undone",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn restores_shares_after_an_end_at_any_step() {
    for mounted in [false, true] {
        let mut before = with_resctrl(mounted, 2);
        before.files.insert(PAGES.into(), "0\n".into());
        before.huge_pages = Some((100, 30));
        let limited = CacheShare {
            ways: Some(2),
            bandwidth_percent: Some(50),
            ..CacheShare::default()
        };
        let (plan, mut list) = shared(Some(exclusive(2)), Some(limited));
        list.steps
            .push(step(StepKind::Knob, "huge-pages", file(PAGES, "50")));
        // Steps of threads have tests of their own.
        list.steps.retain(|step| {
            let is_thread = |target: &ChangeTarget| {
                matches!(
                    target,
                    ChangeTarget::ThreadPolicy(_) | ChangeTarget::ThreadAffinity(_)
                )
            };
            !step
                .locations
                .iter()
                .any(|location| is_thread(&location.target))
        });
        survives_every_end_of(&before, &plan, &list);
    }
}

fn any_share() -> impl Strategy<Value = Option<CacheShare>> {
    let share = (1..7_u32, any::<bool>(), proptest::option::of(1..=100_u32)).prop_map(
        |(ways, exclusive, bandwidth_percent)| CacheShare {
            ways: Some(ways),
            exclusive,
            bandwidth_percent,
            ..CacheShare::default()
        },
    );
    proptest::option::of(share)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn release_undoes_any_shares(
        press in any_share(),
        vision in any_share(),
        mounted in any::<bool>(),
        cpus_of_each in 1..5_u32,
        theirs in proptest::option::of((0..9_u32, 1..3_u32)),
    ) {
        let mut before = with_resctrl(mounted, cpus_of_each);
        if let (true, Some((first, count))) = (mounted, theirs) {
            let ways = WayMask::run(first, count).unwrap_or_default();
            before.add_cache_group("theirs", ways.0, Some(1));
        }
        let (plan, list) = shared(press, vision);
        let directory = directory();
        let state = StateDirectory::at(directory.path());
        let kernel = Arc::new(FakeKernel::new(before.clone()));
        if let Ok(active) = apply_plan(&kernel, &state, &plan, &list) {
            let resctrl = resctrl(&kernel);
            for domain in active.resolved.domains.iter().filter(|domain| domain.cache.is_some()) {
                for share in domain.cache_ways.iter().filter(|share| share.exclusive) {
                    let own = format!("rampart-{}", domain.name);
                    let others = resctrl.groups.iter().filter(|(name, _)| **name != own);
                    for (name, group) in others {
                        let theirs = group.ways[&("L3", share.id)];
                        prop_assert!(!theirs.overlaps(share.ways), "{name}: {theirs} of {share}");
                    }
                }
            }
        }
        let report = release_locked(&*kernel, &state).expect("release");
        prop_assert!(report.left.is_empty(), "{:?}", report.left);
        prop_assert_eq!(restorable(&kernel.machine()), restorable(&before));
    }
}
