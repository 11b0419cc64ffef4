// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a system call, a page fault, detaching and returning cost, as medians and as ratios to the attached thread:
//! `costs CPU`, as root. Marks the begin and the end of each sample for an emulator that counts instructions
//! (`benchmarks/marked_instructions.c`).
#![allow(clippy::print_stdout, reason = "a program")]

use std::env;
use std::error::Error;
use std::hint::black_box;
use std::ptr;
use std::time::Duration;

use rampart_detach::Cpu;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

const SAMPLES: usize = 200;
const PAGE: usize = 4096;

/// Executes an instruction that does nothing and has two numbers: of what is measured, and 0 at its begin or 1 at its
/// end.
fn mark<const MEASURED: u8, const END: u8>() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `nopl` accesses no memory, and changes no register and no flag.
    unsafe {
        std::arch::asm!(".byte 0x0f, 0x1f, 0x80, {}, 0, 0x4d, 0x52", const 2 * MEASURED + END);
    }
}

/// Returns the median time of a function.
fn median<const MEASURED: u8>(cpu: &Cpu, mut function: impl FnMut(usize)) -> Duration {
    let mut times = [Duration::ZERO; SAMPLES];
    for (index, time) in times.iter_mut().enumerate() {
        let start = cpu.now();
        mark::<MEASURED, 0>();
        function(index);
        mark::<MEASURED, 1>();
        *time = cpu.now() - start;
    }
    times.sort_unstable();
    times[SAMPLES / 2]
}

/// Calls a function with memory whose pages have not been touched yet.
fn with_new_memory<R>(function: impl FnOnce(*mut u8) -> R) -> rustix::io::Result<R> {
    let bytes = SAMPLES * PAGE;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses an address that nothing uses.
    let memory = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) }?;
    let result = function(memory.cast());
    // SAFETY: nothing refers to the memory any more.
    unsafe { munmap(memory, bytes) }?;
    Ok(result)
}

fn system_call(_: usize) {
    black_box(rustix::process::getppid());
}

fn touch(memory: *mut u8) -> impl FnMut(usize) {
    // SAFETY: each index is below the number of pages.
    move |index| unsafe { memory.add(index * PAGE).write_volatile(1) }
}

fn print(name: &str, time: Duration, reference: (&str, Duration)) {
    let (what, reference) = reference;
    let ratio = time.as_nanos() as f64 / reference.as_nanos().max(1) as f64;
    println!(
        "{name}: {} ns, {ratio:.1} times {what} ({} ns)",
        time.as_nanos(),
        reference.as_nanos()
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let number = env::args().nth(1).ok_or("usage: costs CPU")?;
    let mut cpu = Cpu::take(number.parse()?)?;
    let call = median::<0>(&cpu, system_call);
    let fault = with_new_memory(|memory| median::<1>(&cpu, touch(memory)))?;
    let before = cpu.counts()?;
    let proxied_call = cpu.run(|thread| median::<2>(thread, system_call))?;
    let proxied_fault =
        with_new_memory(|memory| cpu.run(|thread| median::<3>(thread, touch(memory))))??;
    let counts = cpu.counts()?.since(before);
    let mut begins = [Duration::ZERO; SAMPLES];
    let mut ends = begins;
    for (begin, end) in begins.iter_mut().zip(&mut ends) {
        let start = cpu.now();
        mark::<4, 0>();
        let detached = cpu.run(|thread| {
            mark::<4, 1>();
            let now = thread.now();
            mark::<5, 0>();
            now
        })?;
        mark::<5, 1>();
        *end = cpu.now() - detached;
        *begin = detached - start;
    }
    begins.sort_unstable();
    ends.sort_unstable();
    let attached_call = ("an attached system call", call);
    print("system call", proxied_call, attached_call);
    print(
        "page fault",
        proxied_fault,
        ("an attached page fault", fault),
    );
    print("detaching", begins[SAMPLES / 2], attached_call);
    print("returning", ends[SAMPLES / 2], attached_call);
    println!("counter: {} Hz", cpu.clock_frequency());
    println!(
        "counted: {} system calls, {} faults",
        counts.system_calls, counts.faults
    );
    Ok(())
}
