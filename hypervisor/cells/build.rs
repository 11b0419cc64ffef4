// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links the programs with their own linker script to flat binaries.

fn main() {
    println!("cargo:rerun-if-changed=cell.ld");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    let directory = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo:rustc-link-arg-bins=-T{directory}/cell.ld");
    // The load address of QEMU for a kernel that is not Linux.
    for program in ["launcher", "hostile-root"] {
        println!("cargo:rustc-link-arg-bin=rampart-cell-{program}=--defsym=cell_base=0x40080000");
    }
    println!("cargo:rustc-link-arg-bins=--oformat=binary");
}
