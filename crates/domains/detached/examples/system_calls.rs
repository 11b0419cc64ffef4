// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shows what each setting does on a system call: `system_calls CPU`, as root.
#![allow(clippy::print_stdout, reason = "a program")]

use std::env;
use std::error::Error;
use std::fs::File;
use std::io::ErrorKind;

use rampart_detach::{Cpu, SystemCalls};

/// Reads the size of a file, which takes a system call.
fn execute_system_call(file: &File) -> &'static str {
    match file.metadata() {
        Ok(_) => "executed",
        Err(error) if error.kind() == ErrorKind::Unsupported => "ENOSYS",
        Err(_) => "failed",
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let number = env::args().nth(1).ok_or("usage: system_calls CPU")?;
    let mut cpu = Cpu::take(number.parse()?)?;
    let file = File::open("/")?;
    for (name, setting) in [
        ("proxied", SystemCalls::Proxied),
        ("refused", SystemCalls::Refused),
        ("reattach", SystemCalls::Reattach),
    ] {
        cpu.on_system_calls(setting);
        let before = cpu.counts()?;
        let (result, detached) =
            cpu.run(|thread| (execute_system_call(&file), thread.is_detached()))?;
        let state = if detached { "detached" } else { "attached" };
        let counted = cpu.counts()?.since(before).system_calls;
        println!("{name}: {result}, {state}, {counted} system calls");
    }
    Ok(())
}
