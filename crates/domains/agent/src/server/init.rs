// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Process 1: prepares the machine and powers it off.

use std::ffi::{CStr, CString};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};

use super::kernel_log;
use crate::MODULE_LIST;

/// `MODULE_INIT_COMPRESSED_FILE`: the kernel decompresses the module (finit_module(2)).
const COMPRESSED: i32 = 4;

/// The mounts: mount point, type, options, and whether the mount is essential.
const MOUNTS: [(&str, &str, &CStr, bool); 11] = [
    ("/proc", "proc", c"", true),
    ("/sys", "sysfs", c"", true),
    ("/dev", "devtmpfs", c"mode=0755", true),
    ("/dev/pts", "devpts", c"ptmxmode=0666,mode=0620,gid=5", true),
    ("/dev/shm", "tmpfs", c"mode=1777", true),
    ("/dev/hugepages", "hugetlbfs", c"", false),
    ("/run", "tmpfs", c"mode=0755", true),
    ("/tmp", "tmpfs", c"mode=1777", true),
    ("/sys/fs/cgroup", "cgroup2", c"", false),
    ("/sys/kernel/tracing", "tracefs", c"", false),
    ("/sys/kernel/debug", "debugfs", c"", false),
];

/// Creates mounts, links and environment, and loads modules. Returns the failures as text. Without
/// a console, standard error goes to the kernel log.
pub(super) fn prepare_machine(without_console: bool) -> Vec<String> {
    let mut problems = Vec::new();
    for (location, kind, options, needed) in MOUNTS {
        // A directory in sysfs cannot be created; if it is missing, the mount fails too.
        let _ = fs::create_dir_all(location);
        let flags = MountFlags::NOSUID;
        match mount(kind, location, kind, flags, options) {
            // Already mounted.
            Ok(()) | Err(Errno::BUSY) => {}
            Err(_) if !needed => {}
            Err(error) => problems.push(format!("cannot mount {kind} on {location}: {error}")),
        }
    }
    if without_console && let Err(error) = kernel_log::redirect_standard_error() {
        problems.push(format!("cannot write /dev/kmsg: {error}"));
    }
    for (link, target) in [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
    ] {
        let _ = std::os::unix::fs::symlink(target, link);
    }
    for (name, value) in [
        (
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        ),
        ("HOME", "/root"),
        ("TERM", "linux"),
    ] {
        // SAFETY: there is only one thread.
        unsafe { std::env::set_var(name, value) };
    }
    problems.extend(load_modules(Path::new(MODULE_LIST)));
    for problem in &problems {
        to_console(problem);
    }
    problems
}

/// Loads the modules of a list, in order. Returns the failures as text.
pub(crate) fn load_modules(list: &Path) -> Vec<String> {
    let Ok(text) = fs::read_to_string(list) else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    for (path, parameters) in modules(&text) {
        if let Err(error) = load_module(path, parameters) {
            problems.push(format!("cannot load the module {path}: {error}"));
        }
    }
    problems
}

/// Parses paths and parameters; skips empty lines and comments.
fn modules(text: &str) -> Vec<(&str, &str)> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(char::is_whitespace).unwrap_or((line, "")))
        .map(|(path, parameters)| (path, parameters.trim()))
        .collect()
}

fn load_module(path: &str, parameters: &str) -> io::Result<()> {
    let file = fs::File::open(path)?;
    let flags = if path.ends_with(".ko") { 0 } else { COMPRESSED };
    match finit_module(&file, &CString::new(parameters)?, flags) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Prints a line to the console.
pub(crate) fn to_console(text: &str) {
    // One call: in the kernel log each call is a separate line.
    let _ = io::stderr().write_all(format!("rampart-meter agent: {text}\n").as_bytes());
}

/// Powers the machine off; never returns.
pub(super) fn power_off() -> ! {
    rustix::fs::sync();
    let _ = reboot(RebootCommand::PowerOff);
    // Power off is not supported. Exiting would make the kernel panic.
    let _ = reboot(RebootCommand::Halt);
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_list_of_modules() {
        let text = "# order matters\n/lib/a.ko\n\n  /lib/b.ko.xz  depth=4 wide=\"1 2\" \n";
        assert_eq!(
            modules(text),
            [("/lib/a.ko", ""), ("/lib/b.ko.xz", "depth=4 wide=\"1 2\"")]
        );
    }

    #[test]
    fn names_a_missing_module() {
        let directory = tempfile::tempdir().expect("a directory");
        let list = directory.path().join("modules");
        fs::write(&list, "/nowhere/a.ko\n").expect("list");
        let problems = load_modules(&list);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("/nowhere/a.ko: "), "{problems:?}");
    }
}
