// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::fs;
use std::path::Path;
use std::process::Command;

use std::collections::BTreeSet;

use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::MemoryFlags;
use rampart_model::{Finding, Severity};

use crate::describe::{CacheSource, Description, Sources, describe};
use crate::names::RegionNames;
use crate::resolve::{
    CellInUse, CellRequest, CpuSelection, InUse, MemoryRegion, RegionWriter, Resolved,
    SharedRequest, resolve,
};
use crate::system_configuration::SystemParts;

pub(crate) fn property(tree: &Path, name: &str, words: &[u32]) {
    let path = tree.join(name);
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    fs::write(path, bytes).expect("written");
}

pub(crate) fn text(tree: &Path, name: &str, value: &str) {
    property(tree, name, &[]);
    fs::write(tree.join(name), format!("{value}\0")).expect("written");
}

/// Creates the relevant part of the device tree of QEMU's `virt` with 1 GiB and four CPUs.
fn virt(tree: &Path) {
    let text = |name: &str, value: &str| text(tree, name, value);
    for cells in ["#address-cells", "#size-cells"] {
        property(tree, cells, &[2]);
    }
    text("memory@40000000/device_type", "memory");
    property(
        tree,
        "memory@40000000/reg",
        &[0, 0x4000_0000, 0, 0x4000_0000],
    );
    for (path, compatible) in [
        ("pl031@9010800", "arm,pl031"),
        ("firmware/scmi", "arm,scmi-smc"),
        ("firmware/optee", "linaro,optee-tz"),
        ("intc@8000000", "arm,gic-v3"),
    ] {
        text(&format!("{path}/compatible"), compatible);
    }
    property(tree, "pl031@9010800/reg", &[0, 0x0901_0800, 0, 0x1000]);
    property(tree, "firmware/scmi/arm,smc-id", &[0x8200_0010]);
    text("firmware/optee/method", "hvc");
    // GICD, GICR, and GICC, GICH and GICV, which some processors with a GICv3 have too.
    let frames = [
        [0, 0x0800_0000, 0, 0x1_0000],
        [0, 0x080a_0000, 0, 0x00f6_0000],
        [0, 0x0803_0000, 0, 0x3_0000],
    ]
    .concat();
    property(tree, "intc@8000000/reg", &frames);
    property(tree, "cpus/#address-cells", &[1]);
    property(tree, "cpus/#size-cells", &[0]);
    for cpu in 0..4 {
        text(&format!("cpus/cpu@{cpu}/device_type"), "cpu");
        text(&format!("cpus/cpu@{cpu}/enable-method"), "psci");
        property(tree, &format!("cpus/cpu@{cpu}/reg"), &[cpu]);
    }
}

#[test]
fn root_has_what_the_tree_names_except_hypervisor_and_interrupt_controller() {
    let tree = tempfile::tempdir().expect("a directory");
    virt(tree.path());
    let machine = SystemParts::read(tree.path(), 40).expect("a machine");
    assert_eq!(machine.cpus, [0, 1, 2, 3]);
    let blob = machine.system((0x7000_0000, 0x80_0000));
    blob.checked().expect("the hypervisor would read it");
    let has = |address: u64| {
        let region = blob
            .memory
            .iter()
            .find(|region| (region.physical..region.physical + region.bytes).contains(&address));
        region.map(|region| MemoryFlags::from_bits_retain(region.flags))
    };
    let unassigned = [
        0x0800_0000,
        0x0800_ffff,
        0x080a_0000,
        0x08ff_ffff,
        0x0803_0000,
        0x0805_f000,
        0x7000_0000,
        0x707f_ffff,
        // Not named by the tree: it may be an alias of memory, or a device with DMA.
        0,
        0x0801_0000,
        0x0900_ffff,
        0x0901_2000,
        0x3fff_ffff,
        0x8000_0000,
        1 << 40,
    ];
    for address in unassigned {
        assert_eq!(has(address), None, "{address:#x}");
    }
    // Whole pages.
    for address in [0x0901_0000, 0x0901_0800, 0x0901_1fff] {
        let flags = has(address).unwrap_or_else(|| panic!("nothing at {address:#x}"));
        assert!(flags.contains(MemoryFlags::DEVICE), "{address:#x}");
        assert!(!flags.contains(MemoryFlags::EXECUTE), "{address:#x}");
    }
    for address in [0x4000_0000, 0x6fff_ffff, 0x7080_0000, 0x7fff_ffff] {
        let flags = has(address).unwrap_or_else(|| panic!("nothing at {address:#x}"));
        assert!(!flags.contains(MemoryFlags::DEVICE), "{address:#x}");
        assert!(flags.contains(MemoryFlags::EXECUTE), "{address:#x}");
    }
}

/// As on Tegra, where it comes first and is enabled.
#[test]
fn the_controller_of_an_audio_processor_is_not_the_machines() {
    let tree = tempfile::tempdir().expect("a directory");
    virt(tree.path());
    let compatible = "nvidia,tegra234-agic\0nvidia,tegra210-agic";
    text(tree.path(), "agic@2a40000/compatible", compatible);
    let frames = [0, 0x02a4_1000, 0, 0x1000, 0, 0x02a4_2000, 0, 0x2000];
    property(tree.path(), "agic@2a40000/reg", &frames);
    let sources = Sources::recorded(tree.path(), None).expect("a tree");
    let controller = describe(&sources).interrupt_controller.expect("a GIC");
    assert_eq!(controller.path, "/intc@8000000");
}

#[test]
fn root_has_the_firmware_calls_that_the_tree_names() {
    let tree = tempfile::tempdir().expect("a directory");
    virt(tree.path());
    let machine = SystemParts::read(tree.path(), 40).expect("a machine");
    // Those of the architecture, and SCMI by SMC; OP-TEE is called by HVC here.
    let calls = |machine: &SystemParts| -> Vec<(u32, u32)> {
        let blob = machine.system((0x7000_0000, 0x80_0000));
        blob.checked().expect("the hypervisor would read it");
        blob.smcs
            .iter()
            .map(|grant| (grant.first, grant.last))
            .collect()
    };
    let of_architecture = (0x8000_0001, 0x8000_ffff);
    assert_eq!(
        calls(&machine),
        [of_architecture, (0x8200_0010, 0x8200_0010)]
    );
    fs::write(tree.path().join("firmware/optee/method"), "smc\0").expect("written");
    let machine = SystemParts::read(tree.path(), 40).expect("a machine");
    assert!(calls(&machine).contains(&(0x3200_0000, 0x3fff_ffff)));
}

/// Describes `virt` with half of its memory reserved from Linux, and with a cache of this number of sets, if any.
fn with_cache(sets: Option<u32>) -> Description {
    let tree = tempfile::tempdir().expect("a directory");
    virt(tree.path());
    for cpu in 0..4 {
        property(
            tree.path(),
            &format!("cpus/cpu@{cpu}/next-level-cache"),
            &[7],
        );
    }
    property(tree.path(), "cpus/l2-cache/phandle", &[7]);
    property(tree.path(), "cpus/l2-cache/cache-line-size", &[64]);
    if let Some(sets) = sets {
        property(tree.path(), "cpus/l2-cache/cache-sets", &[sets]);
        property(tree.path(), "cpus/l2-cache/cache-size", &[sets * 64 * 16]);
    }
    let iomem = tree.path().join("iomem");
    fs::write(&iomem, "40000000-5fffffff : System RAM\n").expect("written");
    describe(&Sources::recorded(tree.path(), Some(&iomem)).expect("a tree"))
}

fn request(name: &str, cpu: u32, percent: Option<u32>) -> CellRequest {
    CellRequest {
        cpus: CpuSelection::List(cpu.to_string().parse().expect("a CPU")),
        memory_bytes: 16 << 20,
        cache_percent: percent,
        shared: vec![SharedRequest::Own {
            name: Some("records".to_owned()),
            bytes: 1 << 20,
            writer: RegionWriter::Cell,
        }],
        ..CellRequest::new(name)
    }
}

/// Resolves a request and adds the cell to those that exist.
fn add(
    description: &Description,
    in_use: &mut InUse,
    request: &CellRequest,
) -> Result<Resolved, Vec<Finding>> {
    let resolved = resolve(description, in_use, request)?;
    in_use.cells.push(CellInUse {
        number: in_use.cells.len() as u32 + 1,
        name: request.name.clone(),
        configuration: resolved.configuration.clone(),
        names: RegionNames::default(),
    });
    Ok(resolved)
}

/// Returns the pages of a region.
fn pages(region: &MemoryRegion) -> BTreeSet<u64> {
    let parts = region.all_parts();
    parts
        .flat_map(|part| (part.physical..part.physical + part.bytes).step_by(4096))
        .collect()
}

#[test]
fn cells_with_shares_divide_one_range_and_no_page_of_a_colour_is_given_twice() {
    let description = with_cache(Some(512));
    let cache = description.last_cache.expect("a cache");
    assert_eq!((cache.colours(), cache.bytes()), (8, Some(512 << 10)));
    assert_eq!(cache.source, CacheSource::DeviceTree);
    let mut in_use = InUse::default();
    let mut seen = BTreeSet::new();
    let mut masks = Vec::new();
    // 25 % are two of eight colours; 30 % are rounded up to three.
    for (name, cpu, percent) in [("one", 1, 25), ("two", 2, 30), ("three", 3, 12)] {
        let request = request(name, cpu, Some(percent));
        let resolved = add(&description, &mut in_use, &request).expect("fits");
        masks.push(resolved.memory.colours);
        assert!(resolved.memory.guest_bytes() >= 16 << 20);
        assert_eq!(resolved.memory.physical % (2 << 20), 0);
        for region in &resolved.configuration.memory {
            let own = pages(region);
            assert!(
                own.iter()
                    .all(|page| (0x6000_0000..0x8000_0000).contains(page))
            );
            assert!(own.is_disjoint(&seen), "{name}: a page of another cell");
            seen.extend(own);
        }
        // What is not of its colours takes no line.
        let shared = &resolved.configuration.memory[1..];
        assert!(
            shared
                .iter()
                .all(|region| region.flags().contains(MemoryFlags::UNCACHED))
        );
        assert_eq!(
            resolved.shared.len() + 2,
            resolved.configuration.memory.len()
        );
        let notes: Vec<_> = resolved
            .findings
            .iter()
            .map(|found| found.what.as_str())
            .collect();
        assert!(
            notes
                .iter()
                .any(|what| what.contains("pages of other colours")),
            "{notes:?}"
        );
        assert!(
            notes.iter().any(|what| what.contains("root takes lines")),
            "{notes:?}"
        );
        let severities = resolved.findings.iter().map(|found| found.severity);
        assert!(
            severities
                .into_iter()
                .all(|severity| severity == Severity::Note)
        );
    }
    assert_eq!(masks, [0x0303_0303, 0x1c1c_1c1c, 0x2020_2020]);
    // The first two divide one range.
    let start = |index: usize| in_use.cells[index].configuration.memory[0].physical;
    assert_eq!(start(0), start(1));
    let mut two_more = InUse {
        cells: in_use.cells[..1].to_vec(),
        ..InUse::default()
    };
    let refused = add(&description, &mut two_more, &request("late", 2, Some(80)));
    let refused = refused.expect_err("six colours are free");
    let text = refused.iter().map(ToString::to_string).collect::<String>();
    assert!(
        text.contains("share of the cache") && text.contains("6 of 8 free"),
        "{text}"
    );
    assert!(
        text.contains("7 for 80 %") && text.contains("--cache-percent 75"),
        "{text}"
    );
}

#[test]
fn a_share_that_does_not_exist_is_refused_and_a_cell_without_one_is_reported() {
    for (sets, found) in [
        (None, "nothing describes"),
        (Some(64), "64 sets"),
        (Some(768), "768"),
    ] {
        let description = with_cache(sets);
        let refused = resolve(
            &description,
            &InUse::default(),
            &request("one", 1, Some(50)),
        );
        let refused = refused.expect_err("no colours");
        let text = refused.iter().map(ToString::to_string).collect::<String>();
        assert!(
            text.contains(found) && text.contains("2 colours or more"),
            "{text}"
        );
    }
    let description = with_cache(Some(1024));
    let warnings = |resolved: &Resolved| -> Vec<String> {
        let warnings = resolved.findings.iter();
        let warnings = warnings.filter(|found| found.severity == Severity::Warning);
        warnings.map(|found| found.what.clone()).collect()
    };
    let mut in_use = InUse::default();
    let plain = add(&description, &mut in_use, &request("plain", 1, None)).expect("fits");
    assert_eq!((plain.memory.colours, warnings(&plain)), (0, Vec::new()));
    let own = add(&description, &mut in_use, &request("own", 2, Some(50))).expect("fits");
    assert_eq!(
        warnings(&own),
        ["cell plain takes lines of the cache from this cell"]
    );
    let later = add(&description, &mut in_use, &request("later", 3, None)).expect("fits");
    assert_eq!(
        warnings(&later),
        ["this cell takes lines of the cache from cell own"]
    );
}

#[test]
fn many_devices_fit_into_a_configuration() {
    let tree = tempfile::tempdir().expect("a directory");
    virt(tree.path());
    let machine = SystemParts::read(tree.path(), 40).expect("a machine");
    let devices = (0..1000)
        .map(|index| (0x1000_0000 + index * 0x1_0000, 0x100))
        .collect();
    let machine = SystemParts { devices, ..machine };
    let blob = machine.system((0x7000_0000, 0x80_0000));
    blob.checked().expect("the hypervisor would read it");
    let has = |address: u64| {
        let mut regions = blob.memory.iter();
        regions.any(|region| (region.physical..region.physical + region.bytes).contains(&address))
    };
    assert!((0..1000).all(|index| has(0x1000_0000 + index * 0x1_0000)));
}

#[test]
fn reports_missing_parts() {
    let tree = tempfile::tempdir().expect("a directory");
    let error_text = |tree: &Path| {
        let error = SystemParts::read(tree, 40).expect_err("not whole");
        error.to_string()
    };
    let text = error_text(tree.path());
    assert!(text.contains("arm,gic-v3"), "{text}");
    virt(tree.path());
    property(
        tree.path(),
        "intc@8000000/reg",
        &[0, 0x0800_0000, 0, 0x1_0000],
    );
    let text = error_text(tree.path());
    assert!(text.contains("0 regions"), "{text}");
    let text = error_text(&tree.path().join("none"));
    assert!(text.contains("--tree"), "{text}");
}

/// After a change run `RAMPART_UPDATE=1 cargo test -p rampart-cells --lib`.
#[test]
fn published_schema_of_a_description_matches_the_code() {
    let schema = schemars::schema_for!(crate::describe::Description);
    let wanted = serde_json::to_string_pretty(&schema).expect("json") + "\n";
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs");
    let file = docs.join("cell-description.schema.json");
    if std::env::var_os("RAMPART_UPDATE").is_some() {
        fs::write(&file, &wanted).expect("written");
    }
    assert!(
        fs::read_to_string(&file).is_ok_and(|text| text == wanted),
        "docs/cell-description.schema.json differs from the code; update it with RAMPART_UPDATE=1 cargo test -p rampart-cells --lib"
    );
}

/// The driver's decisions about messages of SCMI, compiled for a process.
#[test]
fn the_driver_answers_messages_and_no_message_reaches_more() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("scmi-test");
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../kernel/rampart/tests/scmi-test.c"
    );
    let compiler = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"])
        .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
        .args(["-o".as_ref(), program.as_os_str(), source.as_ref()])
        .output()
        .expect("cc, which scripts/setup build installs");
    let errors = String::from_utf8_lossy(&compiler.stderr);
    assert!(compiler.status.success(), "{errors}");
    for words in [&["answers"][..], &["hostile", "1000000"]] {
        let output = Command::new(&program).args(words).output().expect("runs");
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
}

/// Describes `virt` with an SMMU of this status, a PCI host bridge and a device behind it, a DMA controller that is
/// not, and a device behind an SMMU that does not exist.
fn with_smmu(status: &str) -> (tempfile::TempDir, Description) {
    let location = tempfile::tempdir().expect("a directory");
    let tree = location.path();
    virt(tree);
    let text = |name: &str, value: &str| text(tree, name, value);
    text("smmu@9050000/compatible", "arm,smmu-v3");
    text("smmu@9050000/status", status);
    property(tree, "smmu@9050000/reg", &[0, 0x0905_0000, 0, 0x2_0000]);
    property(tree, "smmu@9050000/phandle", &[9]);
    property(tree, "smmu@9050000/#iommu-cells", &[1]);
    text("pcie@10000000/compatible", "pci-host-ecam-generic");
    let space = [0x40, 0x1000_0000, 0, 0x1000_0000];
    property(tree, "pcie@10000000/reg", &space);
    property(tree, "pcie@10000000/iommu-map", &[0, 9, 0, 0x1_0000]);
    text("ethernet@a000000/compatible", "board,ethernet");
    property(tree, "ethernet@a000000/reg", &[0, 0x0a00_0000, 0, 0x1000]);
    property(tree, "ethernet@a000000/iommus", &[9, 0x1_0004]);
    text("can@c000000/compatible", "board,can");
    property(tree, "can@c000000/reg", &[0, 0x0c00_0000, 0, 0x1000]);
    property(tree, "can@c000000/iommus", &[99, 9]);
    text("dma@b000000/compatible", "board,dma");
    property(tree, "dma@b000000/reg", &[0, 0x0b00_0000, 0, 0x1000]);
    property(tree, "dma@b000000/#dma-cells", &[1]);
    let iomem = tree.join("iomem");
    fs::write(&iomem, "40000000-5fffffff : System RAM\n").expect("written");
    let sources = Sources::recorded(tree, Some(&iomem)).expect("a tree");
    let description = describe(&sources);
    (location, description)
}

#[test]
fn the_hypervisor_has_only_an_smmu_that_the_tree_reserves() {
    for (status, has) in [("reserved", true), ("okay", false), ("disabled", false)] {
        let (_tree, description) = with_smmu(status);
        let machine = SystemParts::of(&description).expect("a machine");
        let blob = machine.system((0x7000_0000, 0x80_0000));
        blob.checked().expect("the hypervisor would read it");
        let iommu = blob.iommu.map(|iommu| {
            let space = (iommu.configuration_space, iommu.configuration_space_bytes);
            (iommu.registers, space)
        });
        let expected = (0x0905_0000, (0x40_1000_0000, 0x1000_0000));
        assert_eq!(iommu, has.then_some(expected), "{status}");
        let streams = blob.streams.iter();
        let streams: Vec<_> = streams.map(|grant| (grant.first, grant.count)).collect();
        // The bridge and the device.
        let expected = [(0, 0x1_0000), (0x1_0004, 1)];
        assert_eq!(streams, if has { &expected[..] } else { &[] }, "{status}");
        // The registers are the root's only if Linux drives it.
        let of_root = |region: &MemoryRegion| region.overlaps(0x0905_0000, 0x2_0000);
        assert_eq!(
            blob.memory.iter().any(of_root),
            status == "okay",
            "{status}"
        );
    }
}

#[test]
fn a_device_with_dma_is_confined_or_accepted_with_a_reason() {
    let resolved = |status: &str, device: &str, reasons: &[(&str, &str)]| {
        let (_tree, description) = with_smmu(status);
        let reasons = reasons.iter();
        let reasons = reasons.map(|(name, reason)| ((*name).to_owned(), (*reason).to_owned()));
        let request = CellRequest {
            devices: vec![device.to_owned()],
            unconfined_dma: reasons.collect(),
            ..request("press", 3, None)
        };
        let streams = |resolved: Resolved| resolved.configuration.streams;
        resolve(&description, &InUse::default(), &request).map(streams)
    };
    let streams = resolved("reserved", "ethernet@a000000", &[]).expect("confined");
    let streams: Vec<_> = streams
        .iter()
        .map(|grant| (grant.first, grant.count))
        .collect();
    assert_eq!(streams, [(0x1_0004, 1)]);
    for (status, device) in [
        ("okay", "ethernet@a000000"),
        ("disabled", "ethernet@a000000"),
        ("reserved", "dma@b000000"),
        ("reserved", "can@c000000"),
    ] {
        let reason = "trusted program";
        for without in [&[][..], &[(device, " ")], &[("pl031@9010800", reason)]] {
            let found = resolved(status, device, without).expect_err("refused");
            let fix = format!("--unconfined-dma '/{device}=REASON'");
            let is_it = |one: &Finding| one.to_string().contains(&fix);
            assert!(found.iter().any(is_it), "{found:#?}");
        }
        let streams = resolved(status, device, &[(device, reason)]).expect("accepted");
        assert!(streams.is_empty(), "{status}");
    }
    assert!(resolved("okay", "pl031@9010800", &[]).is_ok());
}

#[test]
fn a_device_of_a_cell_that_a_standby_does_not_know_is_a_warning() {
    let (_tree, description) = with_smmu("okay");
    let mut in_use = InUse::default();
    let with_device = CellRequest {
        devices: vec!["pl031@9010800".to_owned()],
        ..request("press", 3, None)
    };
    let about = |in_use: &InUse, request: &CellRequest| {
        let resolved = resolve(&description, in_use, request).expect("fits");
        let all = resolved.findings.iter().map(ToString::to_string);
        all.filter(|text| text.contains("standby"))
            .collect::<Vec<_>>()
    };
    assert!(about(&in_use, &with_device).is_empty());
    in_use.cells.push(CellInUse {
        number: 1,
        name: "spare".to_owned(),
        configuration: Blob::default(),
        names: RegionNames::default(),
    });
    let found = about(&in_use, &with_device);
    assert!(
        found.len() == 1 && found[0].contains("rampart cell standby spare"),
        "{found:?}"
    );
    assert!(about(&in_use, &request("plain", 3, None)).is_empty());
}
