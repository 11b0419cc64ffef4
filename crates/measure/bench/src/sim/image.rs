// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The image: a read-only root file system made of the packages, and the kernel beside it.
//!
//! Everything in it belongs to user 0, whoever makes it. Nothing of a package is run: what its
//! scripts would have written (users, the list of modules) is written here.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::architecture::Architecture;
use super::cache::{Cache, lock_directory, make_directory};
use super::content::make;
use super::error::SimError;
use super::mirror::Mirror;
use super::packages::{Apt, Package, hexadecimal};

/// To be raised when an image made by this code differs from one made before from the same
/// packages.
pub(super) const RECIPE: u32 = 2;

pub(super) const ROOT: &str = "root.squashfs";
pub(super) const KERNEL: &str = "kernel";
pub(super) const RECORD: &str = "image.json";
const CURRENT: &str = "current";

/// What an image was made of; `image.json` beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// Version of the code that made it.
    pub recipe: u32,
    /// Its architecture, as `uname -m` says it.
    pub architecture: String,
    /// Its kernel, as `uname -r` says it.
    pub kernel_release: String,
    /// Its packages with versions and hashes.
    pub packages: Vec<Package>,
}

/// An image that can be booted, and is kept as long as this lives.
#[derive(Debug)]
pub struct Image {
    directory: PathBuf,
    record: ImageRecord,
    _lock: fs::File,
}

/// What a build is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildStep {
    /// Another process of this user builds.
    Waiting,
    /// The lists of packages are fetched.
    Lists,
    /// Packages are fetched.
    Fetch {
        /// Bytes that are here.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
    /// Packages are unpacked.
    Unpack {
        /// Packages that are unpacked.
        done: usize,
        /// Packages in all.
        total: usize,
    },
    /// The root file system is written.
    Pack,
    /// The image is as the archive has it; nothing was done.
    UpToDate,
}

impl Image {
    /// The image that was built last, if this program can use it.
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

    /// The image in `directory`, unless it is not whole or was made by another recipe.
    fn open(directory: &Path) -> Result<Option<Self>, SimError> {
        // Who removes it holds it alone; then it is as good as gone.
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

    /// Looks for newer packages, and makes a new image where there are any or there is none.
    pub(super) fn build(
        cache: &Cache,
        architecture: &Architecture,
        progress: &mut dyn FnMut(BuildStep),
    ) -> Result<Self, SimError> {
        let _lock = cache.lock_for_building(&mut || progress(BuildStep::Waiting))?;
        progress(BuildStep::Lists);
        let apt = Apt::prepare(&cache.apt(architecture), architecture, Mirror::find())?;
        apt.update()?;
        let mut packages = apt.resolve()?;
        let images = cache.images(architecture);
        let directory = images.join(identity(&packages));
        if let Some(image) = Self::open(&directory)? {
            point_to(&images, &directory)?;
            progress(BuildStep::UpToDate);
            return Ok(image);
        }
        let total = packages.iter().map(|package| package.bytes).sum();
        apt.download(&mut packages, &mut |done| {
            progress(BuildStep::Fetch {
                done: done.min(total),
                total,
            });
        })?;
        make_directory(&images)?;
        // Room, before it is needed: what killed builds left, and images that are not used.
        remove_old(
            &images,
            &images.join(fs::read_link(images.join(CURRENT)).unwrap_or_default()),
        );
        let work = tempfile::Builder::new()
            .prefix(".building-")
            .tempdir_in(&images)
            .map_err(SimError::file("make a directory in", &images))?;
        make(work.path(), architecture, &apt, packages, progress)?;
        // An incomplete one may be in the way.
        if directory.exists() {
            fs::remove_dir_all(&directory).map_err(SimError::file("remove", &directory))?;
        }
        fs::rename(work.path().join("image"), &directory)
            .map_err(SimError::file("rename to", &directory))?;
        let image = Self::open(&directory)?
            .ok_or_else(|| SimError::Image(format!("{} is not whole", directory.display())))?;
        point_to(&images, &directory)?;
        remove_old(&images, &directory);
        Ok(image)
    }

    /// What it was made of.
    #[must_use]
    pub fn record(&self) -> &ImageRecord {
        &self.record
    }

    /// Where it is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its kernel, as QEMU boots it.
    #[must_use]
    pub fn kernel(&self) -> PathBuf {
        self.directory.join(KERNEL)
    }

    /// Its root file system.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.directory.join(ROOT)
    }

    /// The modules of its kernel that are needed before the root file system is there, and
    /// `modules.dep` for all.
    pub(super) fn modules(&self) -> PathBuf {
        self.directory.join("modules")
    }
}

/// Names an image by what it is made of: packages come from a signed archive that never gives
/// two files one name.
fn identity(packages: &[Package]) -> String {
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

/// Makes `current` name `directory`, at once.
fn point_to(images: &Path, directory: &Path) -> Result<(), SimError> {
    let name = directory.file_name().unwrap_or_default();
    let new = images.join(".current");
    let current = images.join(CURRENT);
    // Left by a build that was killed.
    let _ = fs::remove_file(&new);
    std::os::unix::fs::symlink(name, &new).map_err(SimError::file("make the link", &new))?;
    fs::rename(&new, &current).map_err(SimError::file("rename to", &current))
}

/// Removes images that nobody boots from and directories of builds that were killed; the caller
/// holds the lock of builds.
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
            // It only takes room.
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(file: &str) -> Package {
        Package {
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
    fn another_version_is_another_image() {
        let one = identity(&[package("a_1.deb")]);
        assert_eq!(one, identity(&[package("a_1.deb")]));
        assert_ne!(one, identity(&[package("a_2.deb")]));
        assert_ne!(one, identity(&[package("a_1.deb"), package("b_1.deb")]));
    }

    #[test]
    fn only_a_whole_image_of_this_recipe_is_used() {
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
    fn an_old_image_goes_unless_somebody_boots_from_it() {
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
