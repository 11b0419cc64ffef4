// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Conversion of cache shares into ways, on all kinds of machines that resctrl describes.

use proptest::prelude::*;
use rampart_model::{
    Allocation, AllocationGroup, BandwidthResource, ByteSize, CacheResource, CacheShare, CpuId,
    CpuSet, ResourceInstance, Schemata, WayMask,
};
use rampart_rules::{CacheRequest, divide};

/// Two caches of 12 ways of 1 MiB for four CPUs each; devices write into the upper two ways.
fn two_sockets() -> Allocation {
    let instances: Vec<ResourceInstance> = (0..2)
        .map(|id| ResourceInstance {
            id,
            cpus: (4 * id..4 * id + 4).map(CpuId).collect(),
            size: 12 << 20,
        })
        .collect();
    Allocation {
        point: "/sys/fs/resctrl".to_owned(),
        caches: vec![CacheResource {
            name: "L3".to_owned(),
            level: 3,
            all: WayMask(0xfff),
            fewest: 1,
            shareable: WayMask(0xc00),
            sparse: false,
            instances: instances.clone(),
        }],
        bandwidth: Some(BandwidthResource {
            least: 10,
            step: 10,
            percent: true,
            instances,
        }),
        most_groups: 8,
        groups: vec![AllocationGroup {
            name: String::new(),
            cpus: "0-7".parse().expect("CPUs"),
            mode: "shareable".to_owned(),
            schemata: Schemata::parse("MB:0=100;1=100\nL3:0=fff;1=fff"),
        }],
    }
}

fn share(ways: u32, exclusive: bool) -> CacheShare {
    CacheShare {
        ways: Some(ways),
        exclusive,
        ..CacheShare::default()
    }
}

fn set(text: &str) -> CpuSet {
    text.parse().expect("CPUs")
}

fn one(allocation: &Allocation, cpus: &str, share: &CacheShare) -> Result<String, String> {
    let cpus = set(cpus);
    let request = CacheRequest {
        domain: "press",
        cpus: &cpus,
        share,
    };
    divide(allocation, &[request])
        .map(|division| {
            let group = &division.groups[0];
            format!("{} | {}", group.schemata, division.rest).replace('\n', " ")
        })
        .map_err(|refusal| refusal.finding.to_string())
}

#[test]
fn ways_are_adjacent_and_avoid_those_of_devices() {
    let machine = two_sockets();
    let divided = one(&machine, "6", &share(4, true));
    assert_eq!(divided.as_deref(), Ok("L3:0=fff;1=f | L3:1=ff0"));
    // A domain on both sockets has a share of each cache.
    let divided = one(&machine, "3-4", &share(2, true));
    assert_eq!(divided.as_deref(), Ok("L3:0=3;1=3 | L3:0=ffc;1=ffc"));
    // A shared request takes no ways from others.
    let divided = one(&machine, "6", &share(4, false));
    assert_eq!(divided.as_deref(), Ok("L3:0=fff;1=f | "));
    let bytes = CacheShare {
        bytes: Some(ByteSize(5 << 19)),
        exclusive: true,
        bandwidth_percent: Some(33),
        ..CacheShare::default()
    };
    let divided = one(&machine, "6", &bytes);
    assert_eq!(divided.as_deref(), Ok("L3:0=fff;1=7 MB:1=40 | L3:1=ff8"));
    // Bandwidth alone.
    let bandwidth = CacheShare {
        bandwidth_percent: Some(5),
        ..CacheShare::default()
    };
    let divided = one(&machine, "0", &bandwidth);
    assert_eq!(divided.as_deref(), Ok("L3:0=fff;1=fff MB:0=10 | "));
}

#[test]
fn ways_of_devices_are_used_last_and_reported() {
    let machine = two_sockets();
    let cpus = set("6");
    let share = share(11, true);
    let request = CacheRequest {
        domain: "press",
        cpus: &cpus,
        share: &share,
    };
    let division = divide(&machine, &[request]).expect("divided");
    let findings = &division.groups[0].findings;
    assert!(
        findings.len() == 1 && findings[0].what.contains("devices"),
        "{findings:?}"
    );
}

#[test]
fn respects_the_minimum_and_sparse_masks() {
    let mut machine = two_sockets();
    machine.caches[0].fewest = 2;
    let divided = one(&machine, "6", &share(1, true));
    assert_eq!(divided.as_deref(), Ok("L3:0=fff;1=3 | L3:1=ffc"));
    let refused = one(&machine, "6", &share(11, true)).expect_err("one would be left");
    assert!(refused.contains("at least 2 ways"), "{refused}");

    // Another group has ways in the middle.
    let mut machine = two_sockets();
    let other = AllocationGroup {
        name: "theirs".to_owned(),
        cpus: CpuSet::new(),
        mode: "exclusive".to_owned(),
        schemata: Schemata::parse("L3:0=0f0;1=0f0"),
    };
    machine.groups.push(other);
    machine.groups[0].schemata = Schemata::parse("L3:0=f0f;1=f0f\nMB:0=100;1=100");
    let divided = one(&machine, "6", &share(2, true));
    assert_eq!(divided.as_deref(), Ok("L3:0=f;1=3 | L3:1=f00"));
    machine.caches[0].sparse = true;
    let divided = one(&machine, "6", &share(2, true));
    assert_eq!(divided.as_deref(), Ok("L3:0=f0f;1=3 | L3:1=f0c"));
    let refused = one(&machine, "6", &share(5, false)).expect_err("4 side by side");
    assert!(
        refused.contains("rmdir /sys/fs/resctrl/theirs"),
        "{refused}"
    );
}

#[test]
fn refuses_shares_that_the_processor_does_not_support() {
    let mut machine = two_sockets();
    machine.caches[0].instances[1].size = 0;
    let bytes = CacheShare {
        bytes: Some(ByteSize(1 << 20)),
        ..CacheShare::default()
    };
    let refused = one(&machine, "6", &bytes).expect_err("no size");
    assert!(refused.contains("write `ways`, of 12"), "{refused}");
    let part = CacheShare {
        bandwidth_percent: Some(50),
        ..CacheShare::default()
    };
    if let Some(bandwidth) = &mut machine.bandwidth {
        bandwidth.percent = false;
    }
    assert!(one(&machine, "6", &part).is_err_and(|error| error.contains("mba_MBps")));
    machine.bandwidth = None;
    assert!(one(&machine, "6", &part).is_err_and(|error| error.contains("/info/MB")));
    machine.caches.clear();
    assert!(one(&machine, "6", &share(1, false)).is_err_and(|error| error.contains("no cache")));
    // A lower cache is divided only if the last level cannot be divided.
    let mut machine = two_sockets();
    let mut below = machine.caches[0].clone();
    (below.name, below.level) = ("L2".to_owned(), 2);
    machine.groups[0].schemata = Schemata::parse("L2:0=fff;1=fff\nL3:0=fff;1=fff");
    machine.caches.push(below);
    assert!(one(&machine, "6", &share(1, true)).is_ok_and(|got| !got.contains("L2")));
    machine.caches.remove(0);
    assert!(one(&machine, "6", &share(1, true)).is_ok_and(|got| got.contains("L2:0=fff;1=1")));
}

proptest! {
    /// Checks for any requests that the kernel accepts the masks and that exclusive ways do not
    /// overlap.
    #[test]
    fn a_division_is_consistent(
        asked in proptest::collection::vec((1..7_u32, any::<bool>(), 0..8_u32), 1..6),
        theirs in proptest::option::of(1..0xfff_u64),
        sparse in any::<bool>(),
        fewest in 1..3_u32,
    ) {
        let mut machine = two_sockets();
        (machine.caches[0].sparse, machine.caches[0].fewest) = (sparse, fewest);
        if let Some(mask) = theirs {
            machine.groups.push(AllocationGroup {
                name: "theirs".to_owned(),
                cpus: CpuSet::new(),
                mode: "shareable".to_owned(),
                schemata: Schemata::parse(&format!("L3:0={mask:x};1={mask:x}")),
            });
        }
        let asked: Vec<(String, CpuSet, CacheShare)> = asked
            .into_iter()
            .enumerate()
            .map(|(number, (ways, exclusive, cpu))| {
                (format!("d{number}"), CpuSet::single(CpuId(cpu)), share(ways, exclusive))
            })
            .collect();
        let requests: Vec<CacheRequest<'_>> = asked
            .iter()
            .map(|(domain, cpus, share)| CacheRequest { domain, cpus, share })
            .collect();
        let Ok(division) = divide(&machine, &requests) else {
            return Ok(());
        };
        let all = WayMask(0xfff);
        for id in 0..2_u32 {
            let mut masks: Vec<(String, WayMask)> = Vec::new();
            let of = |schemata: &Schemata| {
                let text = schemata.0.get("L3").and_then(|values| values.get(&id)).cloned();
                text.and_then(|text| WayMask::parse(&text))
            };
            for group in &division.groups {
                let mask = of(&group.schemata).expect("each cache has a mask");
                masks.push((group.domain.clone(), mask));
            }
            masks.push((String::new(), of(&division.rest).unwrap_or(all)));
            for (name, mask) in &masks {
                prop_assert!(mask.without(all) == WayMask(0) && mask.count() >= fewest);
                prop_assert!(sparse || mask.is_contiguous(), "{name}: {mask}");
            }
            for group in &division.groups {
                for got in group.ways.iter().filter(|got| got.id == id && got.exclusive) {
                    for (name, mask) in masks.iter().filter(|(name, _)| *name != group.domain) {
                        prop_assert!(!mask.overlaps(got.ways), "{name} has {mask} of {got}");
                    }
                    let theirs = WayMask(theirs.unwrap_or(0));
                    prop_assert!(!theirs.overlaps(got.ways));
                }
            }
        }
    }
}
