// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules of cores, caches and memory.

use super::*;

#[test]
fn reports_cores_that_are_shared() {
    let threads = threads();
    let rule = "sibling-threads";
    let split = format!("[machine]\nhousekeeping = \"0-2\"\n{}", task("\"3\""));
    let resolved = resolve(&threads, &split);
    let finding = one(&resolved, rule);
    assert_eq!(finding.finding.severity, Severity::Warning);
    assert!(
        finding
            .finding
            .to_string()
            .contains("CPU 2 of housekeeping, sibling of CPU 3")
    );
    assert!(
        broken(&resolve(&threads, &task("\"3\"")), rule).is_empty(),
        "the sibling is idle"
    );
    assert!(broken(&resolve(&threads, &task("\"2-3\"")), rule).is_empty());
    let off = format!("[machine]\nsmt = \"off\"\n{}", task("\"3\""));
    assert!(one(&resolve(&threads, &off), "cpu-taken-offline").impossible);
    let off = format!("[machine]\nsmt = \"off\"\n{}", task("\"2\""));
    assert!(broken(&resolve(&threads, &off), rule).is_empty());
    assert_eq!(resolve(&threads, &off).housekeeping, cpus("0,4,6"));
}

#[test]
fn reports_domains_on_several_nodes() {
    let threads = threads();
    let rule = "one-node";
    let far = resolve(&threads, &task("\"2,4\""));
    assert!(one(&far, rule).finding.to_string().contains("nodes 0, 1"));
    assert!(broken(&resolve(&threads, &task("\"4,6\"")), rule).is_empty());
    let memory =
        |node: u32| guest("\"4,6\"", "").replace("\"64MiB\"", &format!("\"64MiB\", node = {node}"));
    assert_eq!(
        one(&resolve(&threads, &memory(0)), rule).finding.severity,
        Severity::Error
    );
    assert!(one(&resolve(&threads, &memory(7)), rule).impossible);
    assert!(broken(&resolve(&threads, &memory(1)), rule).is_empty());
    let nodes = machine(&["0", "1", "2"], &[], &["0", "1", "2"]);
    let spread = resolve(&nodes, &memory(0).replace("4,6", "1-2"));
    let texts: Vec<String> = broken(&spread, rule)
        .iter()
        .map(|finding| finding.finding.to_string())
        .collect();
    assert!(texts[1].contains("CPUs on nodes 1, 2"), "{texts:?}");
    assert!(
        texts[1].ends_with("fix: choose CPUs of node 0 only"),
        "{texts:?}"
    );
    let device = guest("\"4,6\"", "devices = [\"0000:03:00.0\"]");
    let mut around = Environment::default();
    let unknown = resolve_in(&threads, &device, &around);
    assert_eq!(found(&unknown, rule).len(), 1, "a note");
    around.device_nodes.insert("0000:03:00.0".to_owned(), 0);
    assert!(
        one(&resolve_in(&threads, &device, &around), rule)
            .finding
            .to_string()
            .contains("0000:03:00.0")
    );
    around.device_nodes.insert("0000:03:00.0".to_owned(), 1);
    assert!(found(&resolve_in(&threads, &device, &around), rule).is_empty());
}

#[test]
fn reports_huge_pages_that_are_not_free() {
    let threads = threads();
    let rule = "guest-huge-pages";
    let with = |page: &str| {
        let memory = format!("\"64MiB\", hugepage = \"{page}\"");
        guest("\"4,6\"", "").replace("\"64MiB\"", &memory)
    };
    assert!(one(&resolve(&threads, &with("64KiB")), rule).impossible);
    assert!(
        one(&resolve(&threads, &with("1GiB")), rule).impossible,
        "not a multiple"
    );
    assert_eq!(
        found(&resolve(&threads, &with("2MiB")), rule)[0]
            .finding
            .severity,
        Severity::Note
    );
    let pages = |node, free| Environment {
        huge_pages: Some(vec![HugePages {
            node,
            size: 2 << 20,
            total: 40,
            free,
        }]),
        ..Environment::default()
    };
    // Rampart reserves pages unless the plan leaves them to other software.
    let few = resolve_in(&threads, &with("2MiB"), &pages(1, 20));
    assert!(broken(&few, rule).is_empty());
    assert_eq!(found(&few, "huge-pages-reserved-later").len(), 1);
    let note = found(&few, "huge-pages-reserved-later")[0]
        .finding
        .to_string();
    assert!(note.contains("`rampart apply` reserves them"), "{note}");
    let large = with("2MiB").replace("64MiB", "9GiB");
    assert!(one(&resolve_in(&threads, &large, &pages(1, 20)), rule).impossible);
    let with = |page: &str| format!("{}[host]\nhuge-pages = \"expect\"\n", with(page));
    let few = resolve_in(&threads, &with("2MiB"), &pages(1, 20));
    let text = one(&few, rule).finding.to_string();
    assert!(
        text.contains(
            "echo 52 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
        ),
        "{text}"
    );
    assert!(broken(&resolve_in(&threads, &with("2MiB"), &pages(1, 32)), rule).is_empty());
    assert_eq!(
        broken(&resolve_in(&threads, &with("2MiB"), &pages(0, 32)), rule).len(),
        1
    );
    let bare = with("2MiB").replace("[host]\nhuge-pages = \"expect\"\n", "");
    let two = format!(
        "{bare}{}",
        with("2MiB").replace("\"g\"", "\"h\"").replace("4,6", "5,7")
    );
    let both = resolve_in(&threads, &two, &pages(1, 40));
    assert_eq!(
        one(&both, rule).domain.as_deref(),
        Some("h"),
        "the first took 32 of 40"
    );
    // The second guest's fix includes the pages of the first.
    let none = resolve_in(
        &threads,
        &two,
        &Environment {
            huge_pages: Some(Vec::new()),
            ..Environment::default()
        },
    );
    let fixes: Vec<bool> = broken(&none, rule)
        .iter()
        .zip(["echo 32 >", "echo 64 >"])
        .map(|(finding, fix)| finding.finding.to_string().contains(fix))
        .collect();
    assert_eq!(fixes, [true, true]);
}

#[test]
fn reports_cores_of_several_kinds() {
    let mut quad = quad();
    for cpu in &mut quad.topology.cpus {
        cpu.capacity = Some(if cpu.id.0 < 2 { 1024 } else { 500 });
    }
    let mixed = resolve(&quad, &task("\"1-2\""));
    assert!(
        one(&mixed, "one-kind-of-core")
            .finding
            .to_string()
            .contains("CPU 2 of capacity 500")
    );
    assert!(broken(&resolve(&quad, &task("\"2-3\"")), "one-kind-of-core").is_empty());
}

#[test]
fn reports_a_shared_cache() {
    let machine = machine(&["0", "1", "2", "3"], &["0-1", "2-3"], &["0-3"]);
    let rule = "shared-cache";
    let resolved = resolve(&machine, &task("\"3\""));
    assert!(
        one(&resolved, rule)
            .finding
            .to_string()
            .contains("L3 shared with CPU 2")
    );
    assert!(broken(&resolve(&machine, &task("\"2-3\"")), rule).is_empty());
    let own = format!(
        "{}cache = {{ ways = 2, exclusive = true }}\n",
        task("\"3\"")
    );
    assert!(broken(&resolve(&machine, &own), rule).is_empty());
}

#[test]
fn reports_shares_of_caches_that_are_not_available() {
    let rule = "cache-share";
    let quad = quad();
    let plan = |share: &str| format!("{}cache = {{ {share} }}\n", task("\"3\""));
    let with = |control: CacheControl| Environment {
        cache_control: Some(control),
        ..Environment::default()
    };
    let own = plan("ways = 4, exclusive = true");
    assert_eq!(found(&resolve(&quad, &own), rule).len(), 1, "not decided");
    assert!(broken(&resolve(&quad, &own), rule).is_empty());
    assert!(found(&resolve(&quad, &task("\"3\"")), rule).is_empty());
    let absent = with(CacheControl::Absent);
    assert!(one(&resolve_in(&quad, &own, &absent), rule).impossible);
    let left = format!("{own}[host]\ncache-schemata = \"expect\"\n");
    assert_eq!(
        severity(&quad, &left, &absent, "cache-share-left"),
        Some(Severity::Warning)
    );
    let unmounted = resolve_in(&quad, &own, &with(CacheControl::NotMounted));
    assert!(broken(&unmounted, rule).is_empty());
    assert!(unmounted.domains[0].cache_ways.is_empty());

    let instances = vec![ResourceInstance {
        id: 0,
        cpus: cpus("0-3"),
        size: 8 << 20,
    }];
    let mut allocation = Allocation {
        point: "/sys/fs/resctrl".to_owned(),
        caches: vec![CacheResource {
            name: "L3".to_owned(),
            level: 3,
            all: WayMask(0xff),
            fewest: 1,
            shareable: WayMask(0),
            sparse: false,
            instances,
        }],
        bandwidth: None,
        most_groups: 4,
        groups: vec![AllocationGroup {
            mode: "shareable".to_owned(),
            schemata: Schemata::parse("L3:0=ff"),
            ..AllocationGroup::default()
        }],
    };
    let mounted = with(CacheControl::Mounted(allocation.clone()));
    let resolved = resolve_in(&quad, &own, &mounted);
    assert!(found(&resolved, rule).is_empty());
    let text = rampart_present::terminal(
        &rampart_present::plan_picture(&resolved),
        rampart_present::TerminalOptions::default(),
    );
    assert!(text.contains("4 of 8 ways of L3 cache 0"), "{text}");
    let refused = resolve_in(&quad, &plan("ways = 8, exclusive = true"), &mounted);
    assert!(one(&refused, rule).impossible);
    assert!(one(&refused, rule).finding.fix.is_some());
    let bandwidth = resolve_in(&quad, &plan("bandwidth-percent = 50"), &mounted);
    assert_eq!(broken(&bandwidth, rule).len(), 1);
    let mut coarse = allocation.clone();
    coarse.caches[0].fewest = 2;
    coarse.caches[0].shareable = WayMask(0xff);
    let coarse = with(CacheControl::Mounted(coarse));
    let raised = resolve_in(&quad, &plan("ways = 1, exclusive = true"), &coarse);
    assert_eq!(found(&raised, "cache-share-raised").len(), 1);
    assert_eq!(broken(&raised, "cache-share-devices").len(), 1);
    // If the plan is already applied, its own group is not another group.
    allocation.groups.push(AllocationGroup {
        name: AllocationGroup::name_of("a"),
        cpus: cpus("3"),
        mode: "exclusive".to_owned(),
        schemata: Schemata::parse("L3:0=f"),
    });
    allocation.groups[0].schemata = Schemata::parse("L3:0=f0");
    let active = resolve_in(&quad, &own, &with(CacheControl::Mounted(allocation)));
    assert_eq!(active.domains[0].cache_ways, resolved.domains[0].cache_ways);
}
