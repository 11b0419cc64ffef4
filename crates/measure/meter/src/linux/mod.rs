// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The system calls and files that the program needs. What a restricted environment does not
//! have (no `/sys`, no `/proc`, an old kernel) is none or `unknown` here, never a failure.

pub(crate) mod brakes;
pub(crate) mod clock;
pub(crate) mod counter;
pub(crate) mod cpus;
pub(crate) mod diagnosis;
pub(crate) mod environment;
pub(crate) mod files;
pub(crate) mod memory_locking;
pub(crate) mod privilege;
pub(crate) mod raw;
pub(crate) mod rseq;
pub(crate) mod scheduling;
pub(crate) mod usage;
pub(crate) mod vdso;
pub(crate) mod wake;

use std::io;

/// Turns the result of a system call into one that carries `errno`.
pub(crate) fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// The calling thread's id, as this PID namespace has it.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// The value of a kernel build option, `y` for one that is built in; none where the kernel does
/// not tell how it was built.
pub(crate) fn kernel_config(option: &str) -> Option<String> {
    let release = files::text("/proc/sys/kernel/osrelease")?;
    let text = packed_config().or_else(|| files::text(format!("/boot/config-{release}")))?;
    let value = text.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name == option).then(|| value.to_owned())
    });
    Some(value.unwrap_or_else(|| "n".to_owned()))
}

/// `/proc/config.gz`: ten bytes of header without options (RFC 1952), then deflate.
fn packed_config() -> Option<String> {
    let packed = std::fs::read("/proc/config.gz").ok()?;
    let [0x1f, 0x8b, 8, 0, ..] = packed.as_slice() else {
        return None;
    };
    let text = miniz_oxide::inflate::decompress_to_vec_with_limit(packed.get(10..)?, 8 << 20);
    // The checksum after the end is of no interest; a truncated file gives an error.
    String::from_utf8(text.ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_how_it_was_built_if_it_says_anything() {
        if let Some(text) = packed_config() {
            assert!(text.contains("CONFIG_"), "not a configuration");
            // A program that runs has a kernel with this.
            assert_eq!(kernel_config("CONFIG_BINFMT_ELF").as_deref(), Some("y"));
            assert_eq!(kernel_config("CONFIG_NO_SUCH_OPTION").as_deref(), Some("n"));
        }
    }
}
