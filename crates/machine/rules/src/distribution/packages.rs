// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Installs packages: names and commands of each distribution.

use rampart_model::OperatingSystem;

use super::{Family, OPKG, OSTREE_BOOTED, TRANSACTIONAL_UPDATE, family, has};

/// A program that Rampart uses if it is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Package {
    /// `stress-ng`, which makes loads.
    StressNg,
    /// `runc` or `crun`, which start containers.
    ContainerRuntime,
    /// `podman`.
    Podman,
    /// `docker` and its daemon.
    Docker,
    /// QEMU for guests of the x86-64 architecture.
    Qemu,
}

impl Package {
    /// Returns the name of the package; `None` if the distribution does not have it.
    ///
    /// Sources: packages.debian.org, packages.fedoraproject.org, the package browser of RHEL,
    /// software.opensuse.org, archlinux.org/packages, pkgs.alpinelinux.org and
    /// layers.openembedded.org (OE-Core, meta-oe, meta-virtualization).
    const fn name(self, family: Family) -> Option<&'static str> {
        Some(match (self, family) {
            (Self::StressNg, _) => "stress-ng",
            // RHEL 10 has crun alone.
            (Self::ContainerRuntime, Family::Fedora | Family::RedHat) => "crun",
            (Self::ContainerRuntime, Family::Yocto) => "runc-opencontainers",
            (Self::ContainerRuntime, _) => "runc",
            (Self::Podman, _) => "podman",
            (Self::Docker, Family::Debian | Family::Ubuntu) => "docker.io",
            (Self::Docker, Family::Fedora) => "moby-engine",
            (Self::Docker, Family::RedHat) => return None,
            (Self::Docker, Family::Yocto) => "docker-moby",
            (Self::Docker, _) => "docker",
            (Self::Qemu, Family::RedHat) => "qemu-kvm",
            (Self::Qemu, Family::Suse) => "qemu-x86",
            (Self::Qemu, Family::Alpine) => "qemu-system-x86_64",
            (Self::Qemu, Family::Yocto) => "qemu",
            (Self::Qemu, _) => "qemu-system-x86",
        })
    }

    /// Returns the name of the program.
    const fn program(self) -> &'static str {
        match self {
            Self::StressNg => "stress-ng",
            Self::ContainerRuntime => "runc or crun",
            Self::Podman => "podman",
            Self::Docker => "docker",
            Self::Qemu => "qemu-system-x86_64",
        }
    }
}

/// Returns the command that installs a package on this distribution.
#[must_use]
pub fn install(system: &OperatingSystem, package: Package) -> String {
    let named = family(system).and_then(|family| Some((family, package.name(family)?)));
    match named {
        Some((family, name)) => install_named(system, family, name),
        None => format!("install {} from its own project", package.program()),
    }
}

/// Returns the command for a package with this name.
///
/// Sources: apt-get(8), dnf(8), zypper(8), pacman(8), apk(8), opkg of the Yocto Project's manual,
/// rpm-ostree(1), transactional-update(8); for an image without a package manager the Yocto
/// Project's Development Tasks Manual, "Customizing Images Using local.conf".
fn install_named(system: &OperatingSystem, family: Family, name: &str) -> String {
    if has(system, OSTREE_BOOTED) || is_image_of_fedora(system) {
        return format!("rpm-ostree install {name} && systemctl reboot");
    }
    if has(system, TRANSACTIONAL_UPDATE) {
        return format!("transactional-update pkg install {name} && systemctl reboot");
    }
    match family {
        Family::Debian | Family::Ubuntu => format!("apt-get install {name}"),
        Family::Fedora | Family::RedHat => format!("dnf install {name}"),
        Family::Suse => format!("zypper install {name}"),
        Family::Arch => format!("pacman -S {name}"),
        Family::Alpine => format!("apk add {name}"),
        Family::Yocto if has(system, OPKG) => format!("opkg install {name}"),
        Family::Yocto => {
            format!(
                "write IMAGE_INSTALL:append = \" {name}\" into conf/local.conf and build the image again"
            )
        }
    }
}

/// Returns whether `VARIANT_ID` of os-release names an edition of Fedora that rpm-ostree installs
/// (fedoraproject.org, "Atomic Desktops", "IoT", "CoreOS").
pub(super) fn is_image_of_fedora(system: &OperatingSystem) -> bool {
    const IMAGES: [&str; 7] = [
        "iot",
        "coreos",
        "silverblue",
        "kinoite",
        "sway-atomic",
        "budgie-atomic",
        "cosmic-atomic",
    ];
    IMAGES.contains(&system.variant.as_str())
}

/// Returns the command that installs a kernel with PREEMPT_RT.
///
/// Sources: Debian's packages `linux-image-rt-*`; Real-time Ubuntu documentation, "Enable Real-time
/// Ubuntu", and packages.ubuntu.com (`ubuntu-realtime` from 25.10 on); Red Hat Enterprise Linux for
/// Real Time, "Installation Guide"; the repository `rt` of AlmaLinux, Rocky Linux and CentOS Stream;
/// openSUSE's and SUSE's package `kernel-rt`; wiki.archlinux.org, "Kernel"; Yocto Project Linux
/// Kernel Development Manual, `linux-yocto-rt`.
#[must_use]
pub fn install_real_time_kernel(system: &OperatingSystem, architecture: &str) -> String {
    let Some(family) = family(system) else {
        return "install a kernel that is built with CONFIG_PREEMPT_RT=y".to_owned();
    };
    let named = |name: &str| install_named(system, family, name);
    match family {
        Family::Debian => {
            let flavour = match architecture {
                "aarch64" => "arm64",
                "armv7l" => "armmp",
                _ => "amd64",
            };
            named(&format!("linux-image-rt-{flavour}"))
        }
        Family::Ubuntu if is_before(&system.version, 25, 10) => {
            "pro attach && pro enable realtime-kernel".to_owned()
        }
        Family::Ubuntu => named("ubuntu-realtime"),
        Family::RedHat if has(system, OSTREE_BOOTED) => {
            "build the image with the package kernel-rt instead of kernel".to_owned()
        }
        Family::RedHat if system.id == "rhel" => {
            let version = system.version.split('.').next().unwrap_or_default();
            format!(
                "subscription-manager repos --enable rhel-{version}-for-{architecture}-rt-rpms && dnf install kernel-rt"
            )
        }
        Family::RedHat => "dnf --enablerepo=rt install kernel-rt".to_owned(),
        Family::Suse => named("kernel-rt"),
        Family::Arch => named("linux-rt"),
        Family::Yocto => {
            "write PREFERRED_PROVIDER_virtual/kernel = \"linux-yocto-rt\" into conf/local.conf and build the image again".to_owned()
        }
        // Neither distribution has such a package.
        Family::Fedora | Family::Alpine => NO_PACKAGE.to_owned(),
    }
}

const NO_PACKAGE: &str =
    "build and start a kernel with CONFIG_PREEMPT_RT=y (this distribution has no package of one)";

/// Returns whether a version as `24.04` is before this one. Without a number it is not.
fn is_before(version: &str, major: u32, minor: u32) -> bool {
    let mut parts = version.split('.').map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(first)), Some(Ok(second))) => (first, second) < (major, minor),
        _ => false,
    }
}
