// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links the monitor by its own script, as the bytes that the driver copies into memory.

fn main() {
    println!("cargo:rerun-if-changed=monitor.ld");
    println!("cargo:rerun-if-env-changed=RAMPART_MONITOR_SYMBOLS");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    let directory = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    // Position independent: where the hypervisor's memory lies is only known when it is launched.
    println!("cargo:rustc-link-arg-bins=-pie");
    println!("cargo:rustc-link-arg-bins=--no-dynamic-linker");
    // Constants hold addresses too, and the entry completes them before they become read-only.
    for option in ["norelro", "notext"] {
        println!("cargo:rustc-link-arg-bins=-z");
        println!("cargo:rustc-link-arg-bins={option}");
    }
    println!("cargo:rustc-link-arg-bins=-T{directory}/monitor.ld");
    // With symbols for a debugger or a disassembler; without, as it is loaded.
    if std::env::var_os("RAMPART_MONITOR_SYMBOLS").is_none() {
        println!("cargo:rustc-link-arg-bins=--oformat=binary");
    }
}
