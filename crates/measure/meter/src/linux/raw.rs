// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls without the C library. For the few calls that are made in every turn, the
//! cancellation points and `errno` of the C library would be a considerable part of the
//! instructions.

/// Makes a system call with at most four arguments and returns its result, a negative `errno` on
/// error.
///
/// # Safety
/// The requirements of the system call: pointers among the arguments have to be valid for it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn call<const COUNT: usize>(
    number: libc::c_long,
    arguments: [usize; COUNT],
) -> isize {
    // Arguments that the kernel does not read need not be set.
    if COUNT <= 2 {
        let result;
        // SAFETY: as below.
        unsafe {
            core::arch::asm!(
                "syscall",
                inlateout("rax") number as isize => result,
                in("rdi") arguments.first().copied().unwrap_or(0),
                in("rsi") arguments.get(1).copied().unwrap_or(0),
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack, preserves_flags),
            );
        }
        return result;
    }
    let argument = |index: usize| arguments.get(index).copied().unwrap_or(0);
    let result;
    // SAFETY: the x86-64 convention (syscall(2)): number and result in rax, arguments in rdi, rsi,
    // rdx, r10; rcx and r11 are clobbered. The caller guarantees the rest.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") argument(0),
            in("rsi") argument(1),
            in("rdx") argument(2),
            in("r10") argument(3),
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack, preserves_flags),
        );
    }
    result
}

/// Makes a system call with at most four arguments and returns its result, a negative `errno` on
/// error.
///
/// # Safety
/// The requirements of the system call: pointers among the arguments have to be valid for it.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) unsafe fn call<const COUNT: usize>(
    number: libc::c_long,
    arguments: [usize; COUNT],
) -> isize {
    let argument = |index: usize| arguments.get(index).copied().unwrap_or(0);
    let result;
    // SAFETY: the Arm convention (syscall(2)): number in x8, arguments from x0 on, result in x0.
    // The caller guarantees the rest.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") argument(0) => result,
            in("x1") argument(1),
            in("x2") argument(2),
            in("x3") argument(3),
            options(nostack, preserves_flags),
        );
    }
    result
}

/// Makes a system call with at most four arguments and returns its result, a negative `errno` on
/// error.
///
/// # Safety
/// The requirements of the system call: pointers among the arguments have to be valid for it.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) unsafe fn call<const COUNT: usize>(
    number: libc::c_long,
    arguments: [usize; COUNT],
) -> isize {
    let argument = |index: usize| arguments.get(index).copied().unwrap_or(0);
    let (a, b, c, d) = (argument(0), argument(1), argument(2), argument(3));
    // SAFETY: guaranteed by the caller.
    let result = unsafe { libc::syscall(number, a, b, c, d) };
    if result == -1 {
        -(std::io::Error::last_os_error().raw_os_error().unwrap_or(1) as isize)
    } else {
        result as isize
    }
}
