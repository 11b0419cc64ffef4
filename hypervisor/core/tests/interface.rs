// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares `kernel/rampart/interface.h` with `interface.rs` and `format.rs`: every constant, every code, every
//! field's offset and size. A C compiler evaluates the header.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use rampart_hypervisor_core::format::{
    BlobHeader, Doorbell, InterruptGrant, Iommu, MemoryRegion, Platform, Refusal, RegisterGrant,
    SmcGrant, StreamGrant,
};
use rampart_hypervisor_core::interface::{
    CellStatus, CpuStatus, DmaFault, Failure, Header, Status,
};
use rampart_hypervisor_core::{format, interface};

const SOURCES: [&str; 2] = [include_str!("../src/interface.rs"), include_str!("../src/format.rs")];

/// (name in C, value)
type Expected = Vec<(String, i128)>;

/// `CellCreate` → `CELL_CREATE`
fn upper(name: &str) -> String {
    let mut result = String::new();
    let mut before_is_lower = false;
    for letter in name.chars() {
        if letter.is_uppercase() && before_is_lower {
            result.push('_');
        }
        before_is_lower = letter.is_lowercase();
        result.extend(letter.to_uppercase());
    }
    result
}

fn number(text: &str) -> i128 {
    let text = text.replace('_', "");
    if let Some(shift) = text.strip_prefix("1 << ") {
        return 1 << shift.parse::<u32>().expect("a shift");
    }
    match text.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16).expect("hexadecimal"),
        None => text.parse().expect("a number"),
    }
}

/// Returns the codes of all enumerations and the bits of all flags, parsed from the sources.
fn codes() -> Expected {
    let prefixes = [
        ("pub enum Hypercall ", "CALL_"),
        ("pub enum Outcome ", ""),
        ("pub enum CellState ", "CELL_"),
        ("pub enum StopReason ", "STOP_"),
        ("pub enum CpuPower ", "CPU_"),
        ("pub enum Exit ", "EXIT_"),
        ("pub enum Refusal ", "REFUSAL_"),
        ("pub struct MemoryFlags: ", "MEMORY_"),
        ("pub struct InterruptFlags: ", "INTERRUPT_"),
        ("pub struct RegisterFlags: ", "REGISTER_"),
    ];
    let mut found = Vec::new();
    for source in SOURCES {
        let mut prefix = None;
        for line in source.lines().map(str::trim) {
            if line.starts_with("pub enum") || line.starts_with("pub struct") {
                prefix = prefixes.iter().find(|(start, _)| line.starts_with(start)).map(|of| of.1);
                assert!(
                    prefix.is_some() || !line.starts_with("pub enum"),
                    "{line}: no prefix in C"
                );
            } else if let Some(prefix) = prefix
                && !line.starts_with("//")
                && let Some((name, value)) = line.split_once(" = ")
            {
                let name = upper(name.trim_start_matches("const "));
                found.push((
                    format!("RAMPART_{prefix}{name}"),
                    number(value.trim_end_matches([',', ';'])),
                ));
            }
        }
    }
    found
}

/// Returns the constants, and checks that none is missing here.
fn constants() -> Expected {
    macro_rules! values {
        ($($module:ident :: $name:ident),* $(,)?) => {
            vec![$((format!("RAMPART_{}", stringify!($name)), $module::$name as i128)),*]
        };
    }
    let found: Expected = values![
        interface::REVISION,
        interface::MAGIC,
        interface::STATUS_MAGIC,
        interface::MEMORY_ALIGNMENT,
        interface::PAGE_BYTES,
        interface::MAXIMUM_CPUS,
        interface::MAXIMUM_CELLS,
        interface::ROOT,
        interface::NO_CELL,
        interface::FAILURE_SLOTS,
        interface::DMA_FAULT_SLOTS,
        interface::EXIT_SLOTS,
        interface::LOG_BYTES,
        interface::CONFIGURATION_COPY,
        interface::STATUS_BYTES,
        interface::LAUNCH_ENTER,
        interface::LAUNCH_PREPARE,
        interface::DOORBELL_BY_SMC,
        format::SYSTEM_MAGIC,
        format::CELL_MAGIC,
        format::MAXIMUM_BLOB_BYTES,
        format::NAME_BYTES,
        format::MAXIMUM_MEMORY_REGIONS,
        format::COLOURS,
        format::COLOUR_BLOCK_BYTES,
        format::MAXIMUM_INTERRUPTS,
        format::MAXIMUM_REGISTERS,
        format::MAXIMUM_SMCS,
        format::MAXIMUM_DOORBELLS,
        format::MAXIMUM_STREAMS,
    ];
    let declared = SOURCES
        .iter()
        .flat_map(|source| source.lines())
        .filter(|line| line.starts_with("pub const"));
    assert_eq!(declared.count(), found.len(), "a constant that this test does not compare");
    found
}

/// (structure in C, its size, (field, offset, size))
type Structure = (&'static str, usize, Vec<(&'static str, usize, usize)>);

fn structures() -> Vec<Structure> {
    fn size_of_field<T, F>(_: fn(&T) -> &F) -> usize {
        size_of::<F>()
    }
    macro_rules! structure {
        ($name:ident as $c:literal: $($field:ident)*) => {{
            // Does not compile if a field is missing.
            let _ = |all: $name| { let $name { $($field: _),* } = all; };
            ($c, size_of::<$name>(), vec![$((
                stringify!($field),
                core::mem::offset_of!($name, $field),
                size_of_field(|whole: &$name| &whole.$field),
            )),*])
        }};
    }
    vec![
        structure!(Header as "header": magic revision header_bytes image_bytes core_bytes per_cpu_bytes
            entry physical_base memory_bytes configuration configuration_bytes status cpu_count
            rendezvous_microseconds mpidrs),
        structure!(Status as "status": magic revision cpu_count changes failures logged refusal
            refused_entry reserved cells cpus failure log dma_faults dma_fault),
        structure!(DmaFault as "dma_fault": sequence time address stream cell event read),
        structure!(CellStatus as "cell_status": condition name cpus starts changed kicked
            watchdog_ticks reserved),
        structure!(CpuStatus as "cpu_status": mpidr state exits),
        structure!(Failure as "failure": sequence time cell cpu reason reserved syndrome
            virtual_address guest_address program_counter processor_state registers),
        structure!(BlobHeader as "blob_header": magic revision bytes name entry argument
            watchdog_milliseconds cpu_count memory_count interrupt_count register_count smc_count
            doorbell_count stream_count),
        structure!(Platform as "platform": distributor cpu_frames cpu_frame_bytes
            event_interrupt version),
        structure!(MemoryRegion as "memory_region": physical guest bytes flags colours),
        structure!(InterruptGrant as "interrupt_grant": number flags),
        structure!(RegisterGrant as "register_grant": address readable writable width flags),
        structure!(SmcGrant as "smc_grant": first last),
        structure!(Doorbell as "doorbell": interrupt reserved),
        structure!(Iommu as "iommu": registers configuration_space configuration_space_bytes),
        structure!(StreamGrant as "stream_grant": first count function),
    ]
}

#[test]
fn the_c_header_matches() {
    let mut program = String::from("#include <stddef.h>\n#include \"interface.h\"\n");
    let mut same = |what: &str, value: i128| {
        writeln!(program, "_Static_assert(({what}) == {value}LL, \"not {value}\");")
            .expect("a string");
    };
    for (name, value) in codes().into_iter().chain(constants()) {
        same(&name, value);
    }
    for (name, size, fields) in structures() {
        let structure = format!("struct rampart_{name}");
        same(&format!("sizeof({structure})"), size as i128);
        for (field, offset, size) in fields {
            same(&format!("offsetof({structure}, {field})"), offset as i128);
            same(&format!("sizeof((({structure} *)0)->{field})"), size as i128);
        }
    }
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/rampart/interface.h");
    let text = std::fs::read_to_string(&header).expect("interface.h");
    let defined = text.lines().filter(|line| line.starts_with("#define RAMPART_")).count();
    assert_eq!(
        defined,
        codes().len() + constants().len(),
        "a constant in C that Rust does not have"
    );

    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("interface.c");
    std::fs::write(&source, program).expect("writing the program");
    let compiler = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Werror", "-fsyntax-only", "-I"])
        .arg(header.parent().expect("its directory"))
        .arg(&source)
        .output()
        .expect("cc, which scripts/setup build installs");
    assert!(compiler.status.success(), "{}", String::from_utf8_lossy(&compiler.stderr));
}

/// docs/hypervisor.md lists each refusal with its text.
#[test]
fn the_documentation_lists_every_refusal() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hypervisor.md");
    let page = std::fs::read_to_string(page).expect("docs/hypervisor.md");
    let refusals = (1..).map_while(|code| Refusal::try_from(code).ok());
    let rows: Vec<String> = refusals.map(|it| format!("| `{it:?}` | {} |", it.text())).collect();
    assert!(rows.len() > 30);
    let listed = page.lines().filter(|line| rows.iter().any(|row| row == line));
    assert_eq!(listed.collect::<Vec<_>>(), rows, "in the order of their codes");
}

#[test]
fn the_driver_has_the_same_refusal_texts() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/rampart/refusals.h");
    let text = std::fs::read_to_string(&path).expect("refusals.h");
    // Long texts are on a line of their own.
    let text = text.replace("] =\n\t\t", "] = ");
    let mut all = 0;
    for refusal in (0..=u32::from(u8::MAX)).filter_map(|code| Refusal::try_from(code).ok()) {
        let suffix = format!("] = \"{}\",", refusal.text());
        let name = format!("{refusal:?}").to_lowercase();
        let line = text.lines().find(|line| line.ends_with(&suffix));
        let line = line.unwrap_or_else(|| panic!("{}: no line ends with {suffix}", path.display()));
        let normalised = line.replace('_', "").to_lowercase();
        assert!(normalised.contains(&format!("refusal{name}]")), "{line}");
        all += 1;
    }
    assert_eq!(text.lines().filter(|line| line.starts_with('\t')).count(), all);
}
