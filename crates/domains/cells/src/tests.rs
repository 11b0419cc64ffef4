// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::fs;
use std::path::Path;

use rampart_hypervisor_core::format::MemoryFlags;

use crate::system_configuration::SystemParts;

fn property(tree: &Path, name: &str, words: &[u32]) {
    let path = tree.join(name);
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    fs::write(path, bytes).expect("written");
}

/// Creates the relevant part of the device tree of QEMU's `virt` with 1 GiB and four CPUs.
fn virt(tree: &Path) {
    let text = |name: &str, value: &str| {
        property(tree, name, &[]);
        fs::write(tree.join(name), format!("{value}\0")).expect("written");
    };
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
    let frames = [0, 0x0800_0000, 0, 0x1_0000, 0, 0x080a_0000, 0, 0x00f6_0000];
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
