// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the C library, which the crate calls.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let here = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let here = Path::new(&here);
    // A package has all sources in one directory.
    let (library, driver) = if here.join("c").exists() {
        (here.join("c"), here.join("../../../kernel/detach"))
    } else {
        (here.join(".."), here.join(".."))
    };
    for file in [
        "detached.c",
        "detached.h",
        "detached-x86_64.h",
        "detached-aarch64.h",
    ] {
        println!("cargo::rerun-if-changed={}", library.join(file).display());
    }
    println!("cargo::rerun-if-changed={}", driver.display());
    println!("cargo::rustc-check-cfg=cfg(has_library)");
    // The driver does not support another architecture.
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    if !["x86_64", "aarch64"].contains(&architecture.as_str()) {
        return;
    }
    let mut build = cc::Build::new();
    if env::var_os("CC").is_none() {
        // `cc` looks for musl-gcc. The library needs nothing that differs between C libraries.
        let compiler = match env::consts::ARCH == architecture {
            true => "cc".to_owned(),
            false => format!("{architecture}-linux-gnu-gcc"),
        };
        if Command::new(&compiler).arg("--version").output().is_err() {
            println!(
                "cargo::error=cannot start {compiler}, which compiles the C library of detached threads; fix: \
                 scripts/setup build cross, or name a compiler in CC"
            );
            return;
        }
        build.compiler(compiler);
    }
    println!("cargo::rustc-cfg=has_library");
    build
        .file(library.join("detached.c"))
        .include(library)
        .include(driver)
        .opt_level(2)
        .flag("-fno-stack-protector")
        .define("_FORTIFY_SOURCE", "0")
        .compile("rampart-detach");
}
