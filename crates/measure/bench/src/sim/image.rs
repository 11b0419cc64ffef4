// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The image: a read-only root file system built from the packages, and the kernel beside it.
//!
//! All files belong to user 0, whichever user builds it. No script of a package runs; the build writes the
//! files that they would have written (users, the list of modules).

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::architecture::Architecture;
use super::cache::{Cache, create_directory, lock_directory};
use super::content::create;
use super::error::SimError;
use super::mirror::{Mirror, SUITE};
use super::packages::{Apt, PACKAGES, SimPackage, hexadecimal};

/// Version of the build. Raise it if the code builds a different image from the same packages.
pub(super) const RECIPE: u32 = 5;

pub(super) const ROOT: &str = "root.squashfs";
pub(super) const KERNEL: &str = "kernel";
/// Directory of the boards' device trees.
pub(super) const TREES: &str = "trees";
pub(super) const RECORD: &str = "image.json";
const CURRENT: &str = "current";

/// The content of an image, in `image.json` beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// Version of the code that built it.
    pub recipe: u32,
    /// Its architecture, as `uname -m` prints it.
    pub architecture: String,
    /// Its kernel, as `uname -r` prints it.
    pub kernel_release: String,
    /// Its packages with versions and hashes.
    pub packages: Vec<SimPackage>,
}

/// A bootable image. It is not removed as long as this value lives.
#[derive(Debug)]
pub struct Image {
    directory: PathBuf,
    record: ImageRecord,
    _lock: fs::File,
}

/// The current step of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildStep {
    /// Waiting for a build by another process of this user.
    Waiting,
    /// Fetching the lists of packages.
    Lists,
    /// Fetching packages.
    Fetch {
        /// Bytes fetched.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
    /// Unpacking packages.
    Unpack {
        /// Packages unpacked.
        done: usize,
        /// Packages in all.
        total: usize,
    },
    /// Writing the root file system.
    Pack,
    /// The image has the archive's current packages; nothing was built.
    UpToDate,
}

impl Image {
    /// Opens the image that was built last, if this program can use it.
    pub(super) fn present(
        cache: &Cache,
        architecture: &Architecture,
    ) -> Result<Option<Self>, SimError> {
        let images = cache.images(architecture);
        let current = images.join(CURRENT);
        let Ok(target) = fs::read_link(&current) else {
            return Ok(None);
        };
        Self::open(&images.join(target))
    }

    /// Opens the image in `directory`. Returns `None` if it is incomplete or of another recipe.
    fn open(directory: &Path) -> Result<Option<Self>, SimError> {
        // An exclusive lock means that another process is removing it.
        let Ok(lock) = lock_directory(directory, FlockOperation::NonBlockingLockShared) else {
            return Ok(None);
        };
        let path = directory.join(RECORD);
        let Ok(text) = fs::read_to_string(&path) else {
            return Ok(None);
        };
        let record: ImageRecord = serde_json::from_str(&text).map_err(|error| {
            SimError::Image(format!(
                "{}: {error}; fix: rampart sim build",
                path.display()
            ))
        })?;
        let whole = [ROOT, KERNEL]
            .iter()
            .all(|name| directory.join(name).is_file());
        Ok((whole && record.recipe == RECIPE).then(|| Self {
            directory: directory.to_owned(),
            record,
            _lock: lock,
        }))
    }

    /// Looks for newer packages. Builds a new image if there are any, or if no image exists.
    pub(super) fn build(
        cache: &Cache,
        architecture: &Architecture,
        progress: &mut dyn FnMut(BuildStep),
    ) -> Result<Self, SimError> {
        let _lock = cache.lock_for_building(&mut || progress(BuildStep::Waiting))?;
        progress(BuildStep::Lists);
        let packages = PACKAGES.iter().chain(architecture.packages).copied();
        let apt = Apt::prepare(
            &cache.apt(architecture),
            architecture.debian,
            &Mirror::find().sources(SUITE, architecture.kernel_suite),
            packages.collect(),
        )?;
        apt.update()?;
        let mut packages = apt.resolve()?;
        let images = cache.images(architecture);
        let directory = images.join(identity(&packages));
        if let Some(image) = Self::open(&directory)? {
            point_to(&images, &directory)?;
            progress(BuildStep::UpToDate);
            return Ok(image);
        }
        apt.download_with_progress(&mut packages, progress)?;
        create_directory(&images)?;
        // Frees space before it is needed: removes unused images and remains of killed builds.
        remove_old(
            &images,
            &images.join(fs::read_link(images.join(CURRENT)).unwrap_or_default()),
        );
        let work = tempfile::Builder::new()
            .prefix(".building-")
            .tempdir_in(&images)
            .map_err(SimError::file("create a directory in", &images))?;
        create(work.path(), architecture, &apt, packages, progress)?;
        // An incomplete image may exist there.
        if directory.exists() {
            fs::remove_dir_all(&directory).map_err(SimError::file("remove", &directory))?;
        }
        fs::rename(work.path().join("image"), &directory)
            .map_err(SimError::file("rename to", &directory))?;
        let image = Self::open(&directory)?
            .ok_or_else(|| SimError::Image(format!("{} is incomplete", directory.display())))?;
        point_to(&images, &directory)?;
        remove_old(&images, &directory);
        Ok(image)
    }

    /// Returns the record of its content.
    #[must_use]
    pub fn record(&self) -> &ImageRecord {
        &self.record
    }

    /// Returns its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the path of the kernel that QEMU boots.
    #[must_use]
    pub fn kernel(&self) -> PathBuf {
        self.directory.join(KERNEL)
    }

    /// Returns the path of its root file system.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.directory.join(ROOT)
    }

    /// Returns the path of a board's device tree, as the kernel's package names it.
    pub(super) fn tree(&self, file: &str) -> PathBuf {
        self.directory.join(TREES).join(file)
    }

    /// Returns the directory of the modules that the kernel needs to mount the root file system, with
    /// `modules.dep` for all modules.
    pub(super) fn modules(&self) -> PathBuf {
        self.directory.join("modules")
    }
}

/// Returns a name for the image of these packages. File names suffice, because the signed archive
/// never gives two files the same name.
pub(super) fn identity(packages: &[SimPackage]) -> String {
    let mut digest = Sha256::new();
    digest.update(RECIPE.to_le_bytes());
    for package in packages {
        digest.update(package.file.as_bytes());
        digest.update(package.bytes.to_le_bytes());
    }
    let mut name = hexadecimal(&digest.finalize());
    name.truncate(16);
    name
}

/// Atomically makes the link `current` point to `directory`.
pub(super) fn point_to(images: &Path, directory: &Path) -> Result<(), SimError> {
    let name = directory.file_name().unwrap_or_default();
    let new = images.join(".current");
    let current = images.join(CURRENT);
    // Left by a build that was killed.
    let _ = fs::remove_file(&new);
    std::os::unix::fs::symlink(name, &new).map_err(SimError::file("create the link", &new))?;
    fs::rename(&new, &current).map_err(SimError::file("rename to", &current))
}

/// Removes unused images and the directories of killed builds. The caller holds the lock of builds.
fn remove_old(images: &Path, current: &Path) {
    let Ok(entries) = fs::read_dir(images) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_directory = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir());
        if is_directory
            && path != current
            && let Ok(_lock) = lock_directory(&path, FlockOperation::NonBlockingLockExclusive)
        {
            // An error here only costs disk space.
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(file: &str) -> SimPackage {
        SimPackage {
            name: "a".to_owned(),
            version: "1".to_owned(),
            file: file.to_owned(),
            bytes: 7,
            sha256: String::new(),
        }
    }

    fn write_image(directory: &Path, recipe: u32) {
        fs::create_dir_all(directory).expect("made");
        let record = ImageRecord {
            recipe,
            architecture: "x86_64".to_owned(),
            kernel_release: "6.1.0".to_owned(),
            packages: vec![package("a_1.deb")],
        };
        let text = serde_json::to_string(&record).expect("text");
        fs::write(directory.join(RECORD), text).expect("written");
        fs::write(directory.join(ROOT), "root").expect("written");
        fs::write(directory.join(KERNEL), "kernel").expect("written");
    }

    #[test]
    fn names_images_by_their_packages() {
        let one = identity(&[package("a_1.deb")]);
        assert_eq!(one, identity(&[package("a_1.deb")]));
        assert_ne!(one, identity(&[package("a_2.deb")]));
        assert_ne!(one, identity(&[package("a_1.deb"), package("b_1.deb")]));
    }

    #[test]
    fn opens_only_a_complete_image_of_this_recipe() {
        let images = tempfile::tempdir().expect("a directory");
        let directory = images.path().join("x");
        assert!(Image::open(&directory).expect("no error").is_none());
        write_image(&directory, RECIPE);
        let image = Image::open(&directory).expect("read").expect("whole");
        assert_eq!(image.record().kernel_release, "6.1.0");
        drop(image);
        fs::remove_file(directory.join(ROOT)).expect("removed");
        assert!(Image::open(&directory).expect("read").is_none());
        write_image(&directory, RECIPE + 1);
        assert!(Image::open(&directory).expect("read").is_none());
    }

    #[test]
    fn removes_an_old_image_unless_it_is_in_use() {
        let images = tempfile::tempdir().expect("a directory");
        let path = |name: &str| images.path().join(name);
        for name in ["old", "used", "new"] {
            write_image(&path(name), RECIPE);
        }
        let _used = Image::open(&path("used")).expect("read").expect("whole");
        point_to(images.path(), &path("old")).expect("linked");
        point_to(images.path(), &path("new")).expect("linked");
        assert_eq!(
            fs::read_link(path(CURRENT)).expect("a link"),
            Path::new("new")
        );
        remove_old(images.path(), &path("new"));
        assert!(!path("old").exists());
        assert!(path("used").exists());
        assert!(path("new").exists());
    }
}
