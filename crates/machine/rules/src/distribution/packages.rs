// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Installs packages: names and commands of each distribution.

use rampart_model::{Machine, OperatingSystem};

use super::{Family, OPKG, OSTREE_BOOTED, TRANSACTIONAL_UPDATE, family, has, is_node_of_openshift};

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

/// Returns the command that installs a kernel with PREEMPT_RT. A kernel that was made for the machine's board is only
/// replaced by one for the same board: others lack its drivers, and may not start.
///
/// Sources: Debian's packages `linux-image-rt-*`; Real-time Ubuntu documentation, "Enable Real-time
/// Ubuntu", and packages.ubuntu.com (`ubuntu-realtime` from 25.10 on); Red Hat Enterprise Linux for
/// Real Time, "Installation Guide"; the repository `rt` of AlmaLinux, Rocky Linux and CentOS Stream;
/// openSUSE's and SUSE's package `kernel-rt`; wiki.archlinux.org, "Kernel"; Yocto Project Linux
/// Kernel Development Manual, `linux-yocto-rt`.
#[must_use]
pub fn install_real_time_kernel(machine: &Machine) -> String {
    real_time_kernel(
        &machine.operating_system,
        &machine.architecture,
        &machine.kernel_release,
    )
}

pub(super) fn real_time_kernel(
    system: &OperatingSystem,
    architecture: &str,
    release: &str,
) -> String {
    if is_node_of_openshift(system) {
        return "oc edit performanceprofile, and set spec.realTimeKernel.enabled to true"
            .to_owned();
    }
    let family = family(system);
    if family != Some(Family::Yocto)
        && let Some(command) = kernel_of_board(system, family, architecture, release)
    {
        return command;
    }
    let Some(family) = family else {
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

/// Returns the command for a kernel that was made for one kind of board; `None` if the machine runs one that its
/// distribution has for all machines of the architecture.
///
/// Sources: NVIDIA Jetson Linux Developer Guide, "Real-Time Kernel Using OTA Update"; the package `linux-image-rpi-v8-rt`
/// of archive.raspberrypi.com, and Raspberry Pi documentation, "config.txt"; Real-time Ubuntu documentation, variants.
fn kernel_of_board(
    system: &OperatingSystem,
    family: Option<Family>,
    architecture: &str,
    release: &str,
) -> Option<String> {
    let pro = |variant: &str| {
        Some(format!(
            "pro attach && pro enable realtime-kernel --variant={variant}"
        ))
    };
    let is_old = is_before(&system.version, 25, 10);
    if family == Some(Family::Ubuntu) && is_old {
        for variant in ["raspi", "nvidia-tegra"] {
            if release.ends_with(&format!("-{variant}")) {
                return pro(variant);
            }
        }
    }
    let packages = matches!(family, Some(Family::Debian | Family::Ubuntu));
    if release.ends_with("-tegra") && packages {
        // Before Linux 5.15 the drivers are part of the kernel's package.
        let drivers = match is_before(release, 5, 15) {
            true => "",
            false => " nvidia-l4t-rt-kernel-oot-modules nvidia-l4t-display-rt-kernel",
        };
        let list = "/etc/apt/sources.list.d/nvidia-l4t-apt-source.list";
        return Some(format!(
            "sed -i -E 's|^(deb .*/jetson/)common(.*)|&\\n\\1rt-kernel\\2|' {list} && apt-get update && apt-get install nvidia-l4t-rt-kernel nvidia-l4t-rt-kernel-headers{drivers}"
        ));
    }
    if release.contains("rpi-") && packages && architecture == "aarch64" {
        let line = "/boot/firmware/cmdline.txt";
        let directory = if has(system, line) || system.files.is_empty() {
            "/boot/firmware"
        } else {
            "/boot"
        };
        return Some(format!(
            "apt-get install linux-image-rpi-v8-rt && printf '[all]\\nkernel=kernel8_rt.img\\n' >> {directory}/config.txt"
        ));
    }
    let common: &[&str] = match family {
        // Every other kernel for a PC starts a PC.
        _ if architecture == "x86_64" || release.is_empty() => return None,
        Some(Family::Debian) => &["arm64", "arm64-16k", "armmp", "armmp-lpae", "riscv64"],
        Some(Family::Ubuntu) => &["generic", "generic-64k", "lowlatency", "lowlatency-64k"],
        _ => return None,
    };
    let is_common = common
        .iter()
        .any(|flavour| release.ends_with(&format!("-{flavour}")));
    (!is_common).then(|| {
        format!(
            "build the kernel of this board ({release}) with CONFIG_PREEMPT_RT=y, from its maker's sources: no package has it"
        )
    })
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
