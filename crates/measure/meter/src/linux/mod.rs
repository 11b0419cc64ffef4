// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The system calls and files that the program needs. If an environment lacks something (no `/sys`,
//! no `/proc`, an old kernel), functions return `None` or `unknown` instead of an error.

pub(crate) mod clock;
pub(crate) mod continued;
pub(crate) mod counter;
pub(crate) mod cpus;
pub(crate) mod diagnosis;
pub(crate) mod environment;
pub(crate) mod files;
pub(crate) mod memory_locking;
pub(crate) mod privilege;
pub(crate) mod raw;
pub(crate) mod real_time_limits;
pub(crate) mod rseq;
pub(crate) mod scheduling;
pub(crate) mod usage;
pub(crate) mod vdso;
pub(crate) mod wake;

use std::io;

/// Converts a negative result of a system call to an error with `errno`.
pub(crate) fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Returns the calling thread's id in its PID namespace.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Returns the value of a kernel build option (`y` if built in), or `None` if the kernel does not
/// provide its configuration.
pub(crate) fn kernel_config(option: &str) -> Option<String> {
    let release = files::text("/proc/sys/kernel/osrelease")?;
    let text = packed_config().or_else(|| files::text(format!("/boot/config-{release}")))?;
    let value = text.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name == option).then(|| value.to_owned())
    });
    Some(value.unwrap_or_else(|| "n".to_owned()))
}

/// Reads `/proc/config.gz`: a header of ten bytes without options (RFC 1952), then deflate data.
fn packed_config() -> Option<String> {
    let packed = std::fs::read("/proc/config.gz").ok()?;
    let [0x1f, 0x8b, 8, 0, ..] = packed.as_slice() else {
        return None;
    };
    let text = miniz_oxide::inflate::decompress_to_vec_with_limit(packed.get(10..)?, 8 << 20);
    // The trailing checksum is not verified; a truncated file gives an error.
    String::from_utf8(text.ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_configuration_of_the_kernel_if_available() {
        if let Some(text) = packed_config() {
            assert!(text.contains("CONFIG_"), "not a configuration");
            // A kernel that runs this test has the option.
            assert_eq!(kernel_config("CONFIG_BINFMT_ELF").as_deref(), Some("y"));
            assert_eq!(kernel_config("CONFIG_NO_SUCH_OPTION").as_deref(), Some("n"));
        }
    }
}
