// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The content of an image: the packages unpacked into one tree, its kernel and modules, and the
//! files that the packages' scripts would have written.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::architecture::Architecture;
use super::build_programs::Program;
use super::cache::create_directory;
use super::error::SimError;
use super::image::{BuildStep, ImageRecord, KERNEL, RECIPE, RECORD, ROOT, TREES};
use super::packages::{Apt, SimPackage};
use super::{kernel, modules, root_files, squashfs};

const DPKG_DEB: Program = Program {
    name: "dpkg-deb",
    purpose: "unpack packages",
    package: "dpkg",
};

/// Creates the image in `work/image`.
pub(super) fn create(
    work: &Path,
    architecture: &Architecture,
    apt: &Apt,
    packages: Vec<SimPackage>,
    progress: &mut dyn FnMut(BuildStep),
) -> Result<(), SimError> {
    let root = work.join("root");
    let image = work.join("image");
    create_directory(&image)?;
    unpack(&root, apt, &packages, progress)?;
    progress(BuildStep::Pack);
    let release = kernel_release(&root)?;
    modules::prune(&root, architecture, &release)?;
    root_files::write(&root)?;
    take_kernel(&root, &image.join(KERNEL), architecture, &release)?;
    take_modules(&root, &image.join("modules"), architecture, &release)?;
    take_trees(&root, &image.join(TREES), architecture, &release)?;
    squashfs::pack(&root, &image.join(ROOT))?;
    let record = ImageRecord {
        recipe: RECIPE,
        architecture: architecture.processor.to_owned(),
        kernel_release: release,
        packages,
    };
    let path = image.join(RECORD);
    let text = serde_json::to_string_pretty(&record)
        .map_err(|error| SimError::Image(format!("its record: {error}")))?;
    fs::write(&path, text + "\n").map_err(SimError::file("write", &path))
}

/// Unpacks all packages into one tree. Replaces `/bin`, `/sbin` and `/lib`, which the packages still
/// contain, by links into `/usr`, as in the distribution.
pub(super) fn unpack(
    root: &Path,
    apt: &Apt,
    packages: &[SimPackage],
    progress: &mut dyn FnMut(BuildStep),
) -> Result<(), SimError> {
    create_directory(root)?;
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let workers = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(4);
    thread::scope(|scope| {
        let unpacking: Vec<_> = (0..workers)
            .map(|_| {
                scope.spawn(|| {
                    while let Some(package) = packages.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if let Err(error) = unpack_one(root, &apt.path(package)) {
                            next.store(packages.len(), Ordering::Relaxed);
                            if let Ok(mut failed) = failed.lock() {
                                *failed = Some(error);
                            }
                        }
                    }
                })
            })
            .collect();
        while unpacking.iter().any(|thread| !thread.is_finished()) {
            progress(BuildStep::Unpack {
                done: next.load(Ordering::Relaxed).min(packages.len()),
                total: packages.len(),
            });
            thread::sleep(Duration::from_millis(100));
        }
    });
    if let Ok(Some(error)) = failed.into_inner() {
        return Err(error);
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        let (outside, inside) = (root.join(name), root.join("usr").join(name));
        create_directory(&inside)?;
        move_into(&outside, &inside)?;
        std::os::unix::fs::symlink(format!("usr/{name}"), &outside)
            .map_err(SimError::file("create the link", &outside))?;
    }
    Ok(())
}

/// Merges the directory `from` into `to` and removes `from`. Files that exist in both are kept from
/// `to`.
fn move_into(from: &Path, to: &Path) -> Result<(), SimError> {
    let Ok(entries) = fs::read_dir(from) else {
        return Ok(());
    };
    for entry in entries {
        let entry = entry.map_err(SimError::file("list", from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let is_directory = entry
            .file_type()
            .map_err(SimError::file("look at", &source))?
            .is_dir();
        match fs::symlink_metadata(&target) {
            Err(_) => fs::rename(&source, &target).map_err(SimError::file("move", &source))?,
            Ok(_) if is_directory => move_into(&source, &target)?,
            Ok(_) => fs::remove_file(&source).map_err(SimError::file("remove", &source))?,
        }
    }
    fs::remove_dir(from).map_err(SimError::file("remove", from))
}

fn unpack_one(root: &Path, package: &Path) -> Result<(), SimError> {
    let mut command = Command::new(DPKG_DEB.name);
    command.arg("--extract").arg(package).arg(root);
    DPKG_DEB.run(command, &mut || 0).map(|_| ())
}

/// Returns the release of the only kernel in the tree.
fn kernel_release(root: &Path) -> Result<String, SimError> {
    let modules = root.join("usr/lib/modules");
    let entries = fs::read_dir(&modules).map_err(SimError::file("list", &modules))?;
    entries
        .flatten()
        .find_map(|entry| entry.file_name().into_string().ok())
        .ok_or_else(|| SimError::Image("no package has a kernel".to_owned()))
}

fn take_kernel(
    root: &Path,
    to: &Path,
    architecture: &Architecture,
    release: &str,
) -> Result<(), SimError> {
    let packed = root.join(format!("boot/vmlinuz-{release}"));
    let image = fs::read(&packed).map_err(SimError::file("read", &packed))?;
    let Some(kernel) = kernel::unpacked(architecture.kernel_form, &image)? else {
        return fs::write(to, image).map_err(SimError::file("write", to));
    };
    fs::write(to, kernel).map_err(SimError::file("write", to))?;
    // For guests inside: in nested emulation, unpacking takes longer than the rest of their boot.
    let inside = root.join(format!("boot/vmlinux-{release}"));
    fs::copy(to, &inside)
        .map(|_| ())
        .map_err(SimError::file("write", &inside))
}

fn take_modules(
    root: &Path,
    to: &Path,
    architecture: &Architecture,
    release: &str,
) -> Result<(), SimError> {
    let from = root.join("usr/lib/modules").join(release);
    let dependencies = modules::Dependencies::read(&from)?;
    let names = architecture.of_same_image();
    let names = names.flat_map(|machine| machine.early_modules);
    let early = dependencies
        .order(names.copied())
        .map_err(|name| SimError::Image(format!("its kernel has no module {name}")))?;
    for path in early.into_iter().chain(modules::LISTS) {
        let target = to.join(path);
        if let Some(parent) = target.parent() {
            create_directory(parent)?;
        }
        fs::copy(from.join(path), &target).map_err(SimError::file("copy to", &target))?;
    }
    Ok(())
}

/// Copies the device trees of the boards, and removes all trees from the root file system.
fn take_trees(
    root: &Path,
    to: &Path,
    architecture: &Architecture,
    release: &str,
) -> Result<(), SimError> {
    let from = root.join(format!("usr/lib/linux-image-{release}"));
    let trees = architecture.of_same_image();
    for tree in trees.filter_map(|machine| machine.tree.as_ref()) {
        let target = to.join(tree.file);
        if let Some(parent) = target.parent() {
            create_directory(parent)?;
        }
        fs::copy(from.join(tree.file), &target).map_err(SimError::file("copy to", &target))?;
    }
    match fs::remove_dir_all(&from) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(SimError::file("remove", &from)(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_two_trees() {
        let root = tempfile::tempdir().expect("a directory");
        let path = |name: &str| root.path().join(name);
        for directory in ["lib/x86/modules", "usr/lib/x86", "usr/lib/y"] {
            fs::create_dir_all(path(directory)).expect("made");
        }
        fs::write(path("lib/x86/libc.so"), "c").expect("written");
        fs::write(path("lib/both"), "outside").expect("written");
        fs::write(path("usr/lib/both"), "inside").expect("written");
        move_into(&path("lib"), &path("usr/lib")).expect("moved");
        assert!(!path("lib").exists());
        assert!(path("usr/lib/x86/modules").is_dir());
        assert!(path("usr/lib/x86/libc.so").is_file());
        assert_eq!(
            fs::read_to_string(path("usr/lib/both")).expect("read"),
            "inside"
        );
        move_into(&path("nowhere"), &path("usr/lib")).expect("nothing to do");
    }
}
