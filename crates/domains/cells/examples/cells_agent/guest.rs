// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest of KVM, by the kernel's interface (Documentation/virt/kvm/api.rst): two instructions that store to an
//! address without memory. KVM and the hypervisor exclude each other.

use std::fs::File;
use std::io::Error;
use std::os::fd::{AsRawFd as _, FromRawFd as _};

use rampart_cells::device::Device;

use crate::support::{Done, enable, report};

const CREATE_VM: u64 = 0xae01;
const VCPU_MMAP_SIZE: u64 = 0xae04;
const CREATE_VCPU: u64 = 0xae41;
const SET_MEMORY: u64 = 0x4020_ae46;
const RUN: u64 = 0xae80;
const PREFERRED_TARGET: u64 = 0x8020_aeaf;
const INITIALISE: u64 = 0x4020_aeae;
const SET_REGISTER: u64 = 0x4010_aeac;
/// `KVM_EXIT_MMIO`, and the index of `exit_reason` in `struct kvm_run`.
const ACCESSED_DEVICE: u32 = 6;
const EXIT_REASON: usize = 2;
/// The program counter, for `KVM_SET_ONE_REG`.
const PROGRAM_COUNTER: u64 = 0x6030_0000_0010_0040;
const MEMORY: u64 = 0x1_0000;
const BYTES: usize = 0x1000;
/// `mov x0, #0x1000`, `str w0, [x0]`, `b .`
const CODE: [u32; 3] = [0xd282_0000, 0xb900_0000, 0x1400_0000];

fn call(file: &File, request: u64, argument: u64) -> Result<i32, Error> {
    // SAFETY: an argument is a number or the address of what the request reads or writes, which its caller has.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request as _, argument) };
    if result < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn created(file: &File, request: u64) -> Result<File, Error> {
    let descriptor = call(file, request, 0)?;
    // SAFETY: a new descriptor that nothing else closes.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// Maps memory of a file, or new memory.
fn mapped(file: Option<&File>, bytes: usize) -> Result<*mut u32, Error> {
    let (flags, descriptor) = match file {
        Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping; its user unmaps it or keeps it.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, flags, descriptor, 0) };
    if at == libc::MAP_FAILED {
        Err(Error::last_os_error())
    } else {
        Ok(at.cast())
    }
}

/// Creates a virtual machine with a CPU, and runs it. Returns whether its store arrived, with the machine.
fn run() -> Result<(bool, [File; 2]), Error> {
    let kvm = File::options().read(true).write(true).open("/dev/kvm")?;
    let machine = created(&kvm, CREATE_VM)?;
    let memory = mapped(None, BYTES)?;
    // SAFETY: the new page is larger than the code.
    unsafe { std::ptr::copy_nonoverlapping(CODE.as_ptr(), memory, CODE.len()) };
    let region = [0, MEMORY, BYTES as u64, memory as u64];
    call(&machine, SET_MEMORY, region.as_ptr() as u64)?;
    let cpu = created(&machine, CREATE_VCPU)?;
    let mut target = [0_u64; 4];
    call(&machine, PREFERRED_TARGET, target.as_mut_ptr() as u64)?;
    call(&cpu, INITIALISE, target.as_ptr() as u64)?;
    let entry = [PROGRAM_COUNTER, (&raw const MEMORY_START) as u64];
    call(&cpu, SET_REGISTER, entry.as_ptr() as u64)?;
    let bytes = call(&kvm, VCPU_MMAP_SIZE, 0)? as usize;
    let state = mapped(Some(&cpu), bytes)?;
    call(&cpu, RUN, 0)?;
    // SAFETY: the mapping of `struct kvm_run`, which nothing uses afterwards; it would keep the machine.
    let reason = unsafe {
        let reason = state.add(EXIT_REASON).read_volatile();
        libc::munmap(state.cast(), bytes);
        reason
    };
    Ok((reason == ACCESSED_DEVICE, [machine, cpu]))
}

static MEMORY_START: u64 = MEMORY;

fn runs() -> bool {
    run().is_ok_and(|(stored, _)| stored)
}

/// A guest runs before the hypervisor; while it exists, the hypervisor does not start; then no guest runs until the
/// hypervisor has ended.
pub(crate) fn excluded(device: &Device) -> Done {
    let (stored, machine) = run()?;
    report(stored, "guest: a guest of KVM runs without the hypervisor");
    let refused = enable(device).is_err() && !device.state()?.is_enabled();
    report(
        refused,
        "guest: the hypervisor is not enabled while a guest exists",
    );
    drop(machine);
    enable(device)?;
    report(
        !runs(),
        "guest: no guest runs while the hypervisor is enabled",
    );
    device.disable()?;
    report(runs(), "guest: a guest runs after the hypervisor has ended");
    Ok(())
}
