// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links the monitor with its own linker script to a flat binary.

fn main() {
    println!("cargo:rerun-if-changed=monitor.ld");
    println!("cargo:rerun-if-env-changed=RAMPART_MONITOR_SYMBOLS");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    let directory = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    // Position independent, because the address is known only at the launch.
    println!("cargo:rustc-link-arg-bins=-pie");
    println!("cargo:rustc-link-arg-bins=--no-dynamic-linker");
    // Constants have relocations, which the entry applies before they become read-only.
    for option in ["norelro", "notext"] {
        println!("cargo:rustc-link-arg-bins=-z");
        println!("cargo:rustc-link-arg-bins={option}");
    }
    println!("cargo:rustc-link-arg-bins=-T{directory}/monitor.ld");
    // What the image for an SMMU has besides is larger.
    let text_limit = if std::env::var_os("CARGO_FEATURE_SMMU").is_some() { 57_344 } else { 49_152 };
    println!("cargo:rustc-link-arg-bins=--defsym=text_limit={text_limit}");
    // With RAMPART_MONITOR_SYMBOLS an ELF file for a debugger or disassembler, otherwise the flat binary.
    if std::env::var_os("RAMPART_MONITOR_SYMBOLS").is_none() {
        println!("cargo:rustc-link-arg-bins=--oformat=binary");
    }
}
