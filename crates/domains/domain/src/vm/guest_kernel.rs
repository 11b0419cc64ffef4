// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the kernel for guests: the machine's own, or one that the user names.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rampart_model::{Finding, Severity};

/// Environment variable that names a kernel image, or a directory with `boot` and `lib/modules`
/// like an unpacked package.
pub(crate) const KERNEL_VARIABLE: &str = "RAMPART_GUEST_KERNEL";
/// Environment variable that names the directory of that kernel's modules.
pub(super) const MODULES_VARIABLE: &str = "RAMPART_GUEST_MODULES";

/// A kernel for guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GuestKernel {
    /// Its image.
    pub(super) image: PathBuf,
    /// Its release (`uname -r`); empty if unknown.
    pub(super) release: String,
    /// Its version (`uname -v`); empty if the image does not contain it.
    pub(super) version: String,
    /// The directory of its modules, if there is one.
    pub(super) modules: Option<PathBuf>,
}

impl GuestKernel {
    /// Returns whether it is built with `PREEMPT_RT`, or `None` if the image does not contain its
    /// version.
    pub(super) fn is_real_time(&self) -> Option<bool> {
        (!self.version.is_empty()).then(|| self.version.contains("PREEMPT_RT"))
    }
}

/// The locations in which a kernel is searched.
#[derive(Debug, Clone)]
pub(super) struct KernelLocations {
    /// The root of the file system.
    pub(super) root: PathBuf,
    /// Release of the running kernel.
    pub(super) release: String,
    /// The value of [`KERNEL_VARIABLE`].
    pub(super) kernel: Option<PathBuf>,
    /// The value of [`MODULES_VARIABLE`].
    pub(super) modules: Option<PathBuf>,
}

impl KernelLocations {
    /// Returns the locations of the running machine and of the environment variables.
    pub(super) fn standard() -> Self {
        let named = |variable| {
            std::env::var_os(variable)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        Self {
            root: PathBuf::from("/"),
            release: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            kernel: named(KERNEL_VARIABLE),
            modules: named(MODULES_VARIABLE),
        }
    }

    /// Finds the kernel for guests.
    pub(super) fn find(&self) -> Result<GuestKernel, Box<Finding>> {
        let image = match &self.kernel {
            Some(named) => self.named_image(named)?,
            None => self.own_image()?,
        };
        let version = File::open(&image)
            .map_err(|cause| unreadable(&image, &cause.to_string()))
            .map(version_in_header)?;
        let (release, version) = match version {
            Some(text) => split_version(&text),
            None => (release_in_name(&image).unwrap_or_default(), String::new()),
        };
        let modules = self.modules_of(&image, &release);
        Ok(GuestKernel {
            image: unpacked_beside(&image).unwrap_or(image),
            release,
            version,
            modules,
        })
    }

    fn own_image(&self) -> Result<PathBuf, Box<Finding>> {
        let release = &self.release;
        // Debian and most others; Fedora; Arch.
        let locations = [
            format!("boot/vmlinuz-{release}"),
            format!("lib/modules/{release}/vmlinuz"),
            format!("usr/lib/modules/{release}/vmlinuz"),
        ];
        locations
            .iter()
            .map(|location| self.root.join(location))
            .find(|path| path.is_file())
            .ok_or_else(|| {
                Box::new(
                    Finding::new(
                        Severity::Error,
                        self.root.join(&locations[0]).display().to_string(),
                        "the image of the running kernel, which guests run too, is missing",
                    )
                    .fix(format!(
                        "install the kernel's package\nname an image (or a directory with `boot` and `lib/modules`) in {KERNEL_VARIABLE}"
                    )),
                )
            })
    }

    fn named_image(&self, named: &Path) -> Result<PathBuf, Box<Finding>> {
        if named.is_file() {
            return Ok(named.to_owned());
        }
        let mut images: Vec<PathBuf> = [named.join("boot"), named.to_owned()]
            .iter()
            .filter_map(|directory| fs::read_dir(directory).ok())
            .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
            .filter(|path| path.is_file() && release_in_name(path).is_some())
            .collect();
        images.sort();
        images.pop().ok_or_else(|| {
            Box::new(
                Finding::new(
                    Severity::Error,
                    KERNEL_VARIABLE,
                    format!(
                        "{} is not a kernel image and contains none",
                        named.display()
                    ),
                )
                .values(
                    named.display().to_string(),
                    "an image, or a directory with boot/vmlinuz-RELEASE",
                )
                .fix(format!(
                    "export {KERNEL_VARIABLE}=/boot/vmlinuz-RELEASE\nunset {KERNEL_VARIABLE}"
                )),
            )
        })
    }

    fn modules_of(&self, image: &Path, release: &str) -> Option<PathBuf> {
        let mut candidates = Vec::new();
        if let Some(named) = &self.modules {
            candidates.push(named.clone());
            candidates.push(named.join(release));
            candidates.push(named.join("lib/modules").join(release));
        }
        // Beside an image in an unpacked package: PACKAGE/boot/vmlinuz-RELEASE.
        if let Some(package) = image.parent().and_then(Path::parent) {
            candidates.push(package.join("lib/modules").join(release));
            candidates.push(package.join("usr/lib/modules").join(release));
        }
        candidates.push(self.root.join("lib/modules").join(release));
        candidates
            .into_iter()
            .filter(|_| !release.is_empty())
            .find(|path| path.join("kernel").is_dir())
    }
}

/// Returns the same kernel as an ELF file, `vmlinux-RELEASE` beside `vmlinuz-RELEASE`. QEMU boots
/// it through its PVH entry, so the guest does not unpack it, which takes long if instructions are
/// emulated.
fn unpacked_beside(image: &Path) -> Option<PathBuf> {
    let release = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?;
    let path = image.with_file_name(format!("vmlinux-{release}"));
    let mut magic = [0; 4];
    File::open(&path).ok()?.read_exact(&mut magic).ok()?;
    (&magic == b"\x7fELF").then_some(path)
}

fn unreadable(image: &Path, cause: &str) -> Box<Finding> {
    Box::new(
        Finding::new(
            Severity::Error,
            image.display().to_string(),
            format!("cannot read the kernel image: {cause}"),
        )
        .fix(format!(
            "run the same command as root\nname a readable copy in {KERNEL_VARIABLE}"
        )),
    )
}

/// Returns `RELEASE` of a file `vmlinuz-RELEASE`, `vmlinux-RELEASE` or `Image-RELEASE`.
fn release_in_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    ["vmlinuz-", "vmlinux-", "Image-"]
        .into_iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .map(str::to_owned)
}

/// Bytes of an image that are searched for its version, which an x86 image has in its header.
const HEAD: u64 = 128 << 10;

/// Returns the version text in the header of an x86 image.
fn version_in_header(file: File) -> Option<String> {
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head).ok()?;
    rampart_host::kernel_image_version(&head)
}

/// Splits `RELEASE (who@where) VERSION` into release and version.
fn split_version(text: &str) -> (String, String) {
    let release = text.split_whitespace().next().unwrap_or_default();
    let version = text.find('#').map_or("", |at| &text[at..]);
    (release.to_owned(), version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an image that contains only a header and the version text.
    pub(crate) fn image(version: &str) -> Vec<u8> {
        let mut bytes = vec![0; 0x400];
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
        bytes[0x300..0x300 + version.len()].copy_from_slice(version.as_bytes());
        bytes
    }

    fn places(root: &Path) -> KernelLocations {
        KernelLocations {
            root: root.to_owned(),
            release: "6.1.0-1-rt".to_owned(),
            kernel: None,
            modules: None,
        }
    }

    fn write(path: &Path, bytes: &[u8]) {
        fs::create_dir_all(path.parent().expect("parent")).expect("directory");
        fs::write(path, bytes).expect("file");
    }

    #[test]
    fn finds_the_running_kernel_with_its_version() {
        let directory = tempfile::tempdir().expect("directory");
        let root = directory.path();
        let text = "6.1.0-1-rt (who@where) #1 SMP PREEMPT_RT Debian 6.1";
        write(&root.join("boot/vmlinuz-6.1.0-1-rt"), &image(text));
        fs::create_dir_all(root.join("lib/modules/6.1.0-1-rt/kernel")).expect("modules");
        let kernel = places(root).find().expect("kernel");
        assert_eq!(kernel.release, "6.1.0-1-rt");
        assert_eq!(kernel.is_real_time(), Some(true));
        assert_eq!(kernel.modules, Some(root.join("lib/modules/6.1.0-1-rt")));
    }

    #[test]
    fn finds_kernel_and_modules_in_an_unpacked_package() {
        let directory = tempfile::tempdir().expect("directory");
        let package = directory.path().join("package");
        write(
            &package.join("boot/vmlinuz-7.0"),
            &image("7.0 (a@b) #1 SMP"),
        );
        fs::create_dir_all(package.join("lib/modules/7.0/kernel")).expect("modules");
        let mut locations = places(directory.path());
        locations.kernel = Some(package.clone());
        let kernel = locations.find().expect("kernel");
        assert_eq!(kernel.release, "7.0");
        assert_eq!(kernel.is_real_time(), Some(false));
        assert_eq!(kernel.modules, Some(package.join("lib/modules/7.0")));
    }

    #[test]
    fn names_a_missing_kernel_with_a_fix() {
        let directory = tempfile::tempdir().expect("directory");
        let missing = places(directory.path()).find().expect_err("no image");
        assert!(missing.to_string().contains("boot/vmlinuz-6.1.0-1-rt"));
        assert!(missing.to_string().contains(KERNEL_VARIABLE));
        let mut named = places(directory.path());
        named.kernel = Some(directory.path().join("nothing"));
        let missing = named.find().expect_err("no image").to_string();
        assert!(missing.contains("nothing"), "{missing}");
    }

    #[test]
    fn prefers_an_unpacked_kernel_beside_the_image() {
        let directory = tempfile::tempdir().expect("directory");
        let root = directory.path();
        let text = "6.1.0-1-rt (who@where) #1 SMP PREEMPT_RT";
        write(&root.join("boot/vmlinuz-6.1.0-1-rt"), &image(text));
        let unpacked = root.join("boot/vmlinux-6.1.0-1-rt");
        write(&unpacked, b"no ELF file");
        let kernel = places(root).find().expect("kernel");
        assert!(kernel.image.ends_with("vmlinuz-6.1.0-1-rt"));
        write(&unpacked, b"\x7fELF and more");
        let kernel = places(root).find().expect("kernel");
        assert_eq!(kernel.image, unpacked);
        assert_eq!(kernel.is_real_time(), Some(true));
    }

    #[test]
    fn reads_the_release_from_the_file_name() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("boot/vmlinuz-6.1.0-1-rt");
        write(&path, b"short");
        let kernel = places(directory.path()).find().expect("kernel");
        assert_eq!(kernel.release, "6.1.0-1-rt");
        assert_eq!(kernel.is_real_time(), None);
        assert_eq!(kernel.modules, None);
    }
}
