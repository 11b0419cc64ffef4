// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls without the C library in between: for the few that are made in every turn, its
//! cancellation points and `errno` would be a good part of the instructions.

/// Calls the kernel; the result is its own, a negative `errno` for an error.
///
/// # Safety
/// As the system call asks for: pointers among the arguments have to be valid for it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn call(number: libc::c_long, arguments: [usize; 4]) -> isize {
    let result;
    // SAFETY: the x86-64 convention (syscall(2)): number and result in rax, arguments in rdi,
    // rsi, rdx, r10; rcx and r11 are lost. The rest is the caller's promise.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack, preserves_flags),
        );
    }
    result
}

/// Calls the kernel; the result is its own, a negative `errno` for an error.
///
/// # Safety
/// As the system call asks for: pointers among the arguments have to be valid for it.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) unsafe fn call(number: libc::c_long, arguments: [usize; 4]) -> isize {
    let result;
    // SAFETY: the Arm convention (syscall(2)): number in x8, arguments from x0 on, result in x0.
    // The rest is the caller's promise.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") arguments[0] => result,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            options(nostack, preserves_flags),
        );
    }
    result
}

/// Calls the kernel; the result is its own, a negative `errno` for an error.
///
/// # Safety
/// As the system call asks for: pointers among the arguments have to be valid for it.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) unsafe fn call(number: libc::c_long, arguments: [usize; 4]) -> isize {
    let [a, b, c, d] = arguments;
    // SAFETY: the caller's promise.
    let result = unsafe { libc::syscall(number, a, b, c, d) };
    if result == -1 {
        -(std::io::Error::last_os_error().raw_os_error().unwrap_or(1) as isize)
    } else {
        result as isize
    }
}
