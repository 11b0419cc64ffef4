// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Process 1 of an initramfs of a machine with a root file system: mounts the root file system with
//! a writable layer in memory above it, makes it the root directory and executes another program.
//!
//! Kernel, Documentation/filesystems/ramfs-rootfs-initramfs.rst: the initramfs itself cannot be
//! unmounted or pivoted away from, so the new root is moved over it.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_move, unmount};
use rustix::process::{chdir, chroot};

use crate::server::{load_modules, to_console};
use crate::{CARRIED, INIT, MODULE_LIST};

/// Timeout for the device of the root file system to appear.
const DEVICE_TIMEOUT: Duration = Duration::from_secs(30);

/// Mounts the squashfs on the device in the first argument with a writable layer in memory, copies
/// the carried files of the initramfs over it, and executes the program in the other arguments.
/// Returns only on failure; then the caller exits, which makes the kernel panic.
///
/// Once a device that reports panics is present, it sets `kernel.panic` so that the kernel stops
/// after a panic. Before that, the kernel command line should make the machine reset, which is also
/// reported.
///
/// # Errors
/// Returns the failed operation and the error of the kernel.
pub fn enter_root(arguments: &[OsString]) -> Result<Infallible, io::Error> {
    let [device, program, rest @ ..] = arguments else {
        return Err(io::Error::other("enter-root needs a device and a program"));
    };
    for location in ["/proc", "/dev", "/read-only", "/written", "/root"] {
        fs::create_dir_all(location).map_err(with_context("create", location))?;
    }
    mount_at("devtmpfs", "devtmpfs", "/dev", MountFlags::empty(), c"")?;
    // The first modules; `serve` reads the same file again, from the new root.
    for problem in load_modules(Path::new(MODULE_LIST)) {
        to_console(&problem);
    }
    mount_at("proc", "proc", "/proc", MountFlags::empty(), c"")?;
    fs::write("/proc/sys/kernel/panic", "0")
        .map_err(with_context("write", "/proc/sys/kernel/panic"))?;
    unmount_at("/proc")?;
    wait_for(Path::new(device))?;
    let device = device.to_string_lossy();
    mount_at(&device, "squashfs", "/read-only", MountFlags::RDONLY, c"")?;
    mount_at(
        "written",
        "tmpfs",
        "/written",
        MountFlags::empty(),
        c"mode=0755",
    )?;
    for location in ["/written/upper", "/written/work"] {
        fs::create_dir_all(location).map_err(with_context("create", location))?;
    }
    let layers = c"lowerdir=/read-only,upperdir=/written/upper,workdir=/written/work";
    mount_at("root", "overlay", "/root", MountFlags::empty(), layers)?;
    copy_tree(Path::new(CARRIED), Path::new("/root"))?;
    unmount_at("/dev")?;
    free_initramfs();
    chdir("/root")?;
    mount_move(".", "/").map_err(|error| with_context("move onto /", "/root")(error.into()))?;
    chroot(".")?;
    chdir("/")?;
    if let Ok(name) = fs::read_to_string("/etc/hostname") {
        // The host name is not essential.
        let _ = rustix::system::sethostname(name.trim().as_bytes());
    }
    let error = Command::new(program).args(rest).exec();
    Err(with_context("start", &program.to_string_lossy())(error))
}

fn mount_at(
    source: &str,
    kind: &str,
    location: &str,
    flags: MountFlags,
    options: &std::ffi::CStr,
) -> io::Result<()> {
    mount(source, location, kind, flags, options).map_err(|error| {
        with_context(&format!("mount {kind} from {source} on"), location)(error.into())
    })
}

fn unmount_at(location: &str) -> io::Result<()> {
    unmount(location, UnmountFlags::empty())
        .map_err(|error| with_context("unmount", location)(error.into()))
}

fn wait_for(device: &Path) -> io::Result<()> {
    let until = Instant::now() + DEVICE_TIMEOUT;
    while !device.exists() {
        if Instant::now() > until {
            return Err(io::Error::other(format!(
                "{}: no such device",
                device.display()
            )));
        }
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Copies directories and files with their permissions.
fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(from) else {
        return Ok(());
    };
    for entry in entries {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            if !target.is_dir() {
                fs::create_dir(&target)
                    .map_err(with_context("create", &target.to_string_lossy()))?;
            }
            copy_tree(&source, &target)?;
        } else {
            // The target may be a link or belong to the read-only layer, so it is replaced.
            match fs::remove_file(&target) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            fs::copy(&source, &target)
                .map_err(with_context("copy to", &target.to_string_lossy()))?;
        }
    }
    Ok(())
}

/// Frees the memory of the initramfs, which is no longer reachable.
fn free_initramfs() {
    for location in [CARRIED, "/modules", "/etc"] {
        let _ = fs::remove_dir_all(location);
    }
    let _ = fs::remove_file(INIT);
}

fn with_context(action: &str, location: &str) -> impl FnOnce(io::Error) -> io::Error {
    let text = format!("{location}: cannot {action}");
    move |error| io::Error::new(error.kind(), format!("{text}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn carried_files_replace_existing_ones_and_keep_their_permissions() {
        let directory = tempfile::tempdir().expect("a directory");
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::create_dir_all(from.join("usr/bin")).expect("created");
        fs::create_dir_all(to.join("usr")).expect("created");
        fs::write(from.join("usr/bin/program"), "new").expect("written");
        fs::set_permissions(
            from.join("usr/bin/program"),
            fs::Permissions::from_mode(0o755),
        )
        .expect("set");
        fs::write(from.join("usr/name"), "new").expect("written");
        symlink("/nowhere", to.join("usr/name")).expect("linked");
        copy_tree(&from, &to).expect("copied");
        let program = fs::metadata(to.join("usr/bin/program")).expect("copied");
        assert_eq!(program.permissions().mode() & 0o777, 0o755);
        assert_eq!(
            fs::read_to_string(to.join("usr/name")).expect("read"),
            "new"
        );
        copy_tree(Path::new("/nowhere"), &to).expect("no files to copy");
    }

    #[test]
    fn missing_arguments_are_an_error() {
        let error = enter_root(&[]).expect_err("refused");
        assert!(error.to_string().contains("device"), "{error}");
    }
}
