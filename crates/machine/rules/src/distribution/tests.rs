// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands of each distribution, by the os-release files that they ship.

use super::*;

/// Returns a system with this `ID` and `ID_LIKE`, of which nothing else is known.
fn system(id: &str, like: &str) -> OperatingSystem {
    OperatingSystem {
        id: id.to_owned(),
        like: like.split_whitespace().map(str::to_owned).collect(),
        ..OperatingSystem::default()
    }
}

fn with_files(system: OperatingSystem, files: &[&str]) -> OperatingSystem {
    for file in files {
        assert!(SYSTEM_FILES.contains(file), "{file} is not read");
    }
    OperatingSystem {
        files: files.iter().map(|file| (*file).to_owned()).collect(),
        ..system
    }
}

#[test]
fn each_distribution_installs_with_its_own_tool() {
    for (id, like, expected) in [
        ("debian", "", "apt-get install stress-ng"),
        ("raspbian", "debian", "apt-get install stress-ng"),
        ("ubuntu", "debian", "apt-get install stress-ng"),
        ("linuxmint", "ubuntu debian", "apt-get install stress-ng"),
        ("fedora", "", "dnf install stress-ng"),
        ("rhel", "fedora", "dnf install stress-ng"),
        ("rocky", "rhel centos fedora", "dnf install stress-ng"),
        (
            "opensuse-tumbleweed",
            "opensuse suse",
            "zypper install stress-ng",
        ),
        ("opensuse-leap", "suse opensuse", "zypper install stress-ng"),
        ("sles", "suse", "zypper install stress-ng"),
        ("arch", "", "pacman -S stress-ng"),
        ("manjaro", "arch", "pacman -S stress-ng"),
        ("alpine", "", "apk add stress-ng"),
        (
            "poky",
            "",
            "write IMAGE_INSTALL:append = \" stress-ng\" into conf/local.conf and build the image again",
        ),
        ("", "", "install stress-ng from its own project"),
    ] {
        assert_eq!(install(&system(id, like), Package::StressNg), expected);
    }
}

#[test]
fn images_install_with_the_tool_that_changes_them() {
    let ostree = with_files(
        system("fedora", ""),
        &["/run/ostree-booted", "/usr/bin/dnf"],
    );
    let silverblue = OperatingSystem {
        variant: "silverblue".to_owned(),
        ..system("fedora", "")
    };
    for system in [ostree, silverblue] {
        assert_eq!(
            install(&system, Package::Podman),
            "rpm-ostree install podman && systemctl reboot"
        );
        assert_eq!(
            add_parameters(&system, "psi=0 nosmt"),
            "rpm-ostree kargs --append-if-missing=psi=0 --append-if-missing=nosmt"
        );
        assert_eq!(
            remove_parameter(&system, "idle"),
            "rpm-ostree kargs --delete=idle"
        );
    }
    let micro = system("opensuse-microos", "suse opensuse");
    let micro = with_files(
        micro,
        &["/usr/sbin/transactional-update", "/usr/bin/zypper"],
    );
    assert_eq!(
        install(&micro, Package::StressNg),
        "transactional-update pkg install stress-ng && systemctl reboot"
    );
    assert!(add_parameters(&micro, "psi=0").ends_with("&& transactional-update grub.cfg"));
    let image = with_files(system("acme-linux", ""), &["/usr/bin/opkg"]);
    assert_eq!(install(&image, Package::StressNg), "opkg install stress-ng");
    assert!(add_parameters(&image, "psi=0").contains("APPEND:append = \" psi=0\""));
}

#[test]
fn packages_have_the_names_of_the_distribution() {
    let name = |id: &str, package| install(&system(id, ""), package);
    assert_eq!(
        name("debian", Package::ContainerRuntime),
        "apt-get install runc"
    );
    assert_eq!(name("rhel", Package::ContainerRuntime), "dnf install crun");
    assert_eq!(name("ubuntu", Package::Docker), "apt-get install docker.io");
    assert_eq!(name("fedora", Package::Docker), "dnf install moby-engine");
    assert_eq!(
        name("rhel", Package::Docker),
        "install docker from its own project"
    );
    assert_eq!(name("rhel", Package::Qemu), "dnf install qemu-kvm");
    assert_eq!(name("alpine", Package::Qemu), "apk add qemu-system-x86_64");
}

#[test]
fn real_time_kernels_come_from_where_the_distribution_has_them() {
    let kernel = |system: &OperatingSystem| install_real_time_kernel(system, "x86_64");
    let version = |id: &str, like: &str, version: &str| OperatingSystem {
        version: version.to_owned(),
        ..system(id, like)
    };
    let debian = system("debian", "");
    assert_eq!(kernel(&debian), "apt-get install linux-image-rt-amd64");
    assert_eq!(
        install_real_time_kernel(&debian, "aarch64"),
        "apt-get install linux-image-rt-arm64"
    );
    let pro = "pro attach && pro enable realtime-kernel";
    assert_eq!(kernel(&version("ubuntu", "debian", "24.04")), pro);
    let ubuntu = version("ubuntu", "debian", "26.04");
    assert_eq!(kernel(&ubuntu), "apt-get install ubuntu-realtime");
    assert_eq!(
        kernel(&version("rhel", "fedora", "9.4")),
        "subscription-manager repos --enable rhel-9-for-x86_64-rt-rpms && dnf install kernel-rt"
    );
    let rocky = system("rocky", "rhel centos fedora");
    assert_eq!(kernel(&rocky), "dnf --enablerepo=rt install kernel-rt");
    assert_eq!(
        kernel(&system("opensuse-leap", "suse")),
        "zypper install kernel-rt"
    );
    assert_eq!(kernel(&system("arch", "")), "pacman -S linux-rt");
    assert!(kernel(&system("poky", "")).contains("linux-yocto-rt"));
    for none in ["fedora", "alpine", "acme-linux"] {
        assert!(kernel(&system(none, "")).contains("CONFIG_PREEMPT_RT=y"));
    }
}

#[test]
fn without_any_file_the_usual_boot_loader_of_the_distribution_is_named() {
    let add = |id: &str| add_parameters(&system(id, ""), "psi=0");
    let grub = "echo 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX psi=0\"' >> /etc/default/grub && ";
    assert_eq!(add("debian"), format!("{grub}update-grub"));
    assert_eq!(add("ubuntu"), format!("{grub}update-grub"));
    assert_eq!(add("fedora"), "grubby --update-kernel=ALL --args=\"psi=0\"");
    assert_eq!(add("rhel"), "grubby --update-kernel=ALL --args=\"psi=0\"");
    assert_eq!(
        add("sles"),
        format!("{grub}grub2-mkconfig -o /boot/grub2/grub.cfg")
    );
    assert_eq!(
        add("arch"),
        format!("{grub}grub-mkconfig -o /boot/grub/grub.cfg")
    );
    assert!(add("alpine").ends_with("&& update-extlinux"));
    assert!(add("poky").contains("conf/local.conf"));
    assert_eq!(add("acme-linux"), "psi=0 on the kernel command line");
}

#[test]
fn the_boot_loader_that_is_installed_overrules_the_usual_one() {
    for (files, expected) in [
        (
            &["/usr/bin/apt-get", "/usr/sbin/update-grub"][..],
            "update-grub",
        ),
        (
            &["/usr/bin/apt-get", "/boot/firmware/cmdline.txt"],
            "/boot/firmware/cmdline.txt",
        ),
        (
            &["/usr/bin/apt-get", "/etc/default/u-boot"],
            "u-boot-update",
        ),
        (
            &["/usr/bin/apt-get", "/boot/extlinux/extlinux.conf"],
            "extlinux.conf",
        ),
        (
            &["/etc/kernel/cmdline", "/boot/loader/entries"],
            "kernel-install add-all",
        ),
        (&["/efi/loader/entries"], "/efi/loader/entries/*.conf"),
        (
            &["/usr/sbin/grubby", "/etc/kernel/cmdline"],
            "--args=\"psi=0\"",
        ),
    ] {
        let command = add_parameters(&with_files(system("debian", ""), files), "psi=0");
        assert!(command.ends_with(expected), "{files:?}: {command}");
    }
    // A package manager without a boot loader: a container, or a board with its own firmware.
    let unknown = with_files(system("debian", ""), &["/usr/bin/apt-get"]);
    assert_eq!(
        add_parameters(&unknown, "psi=0"),
        "psi=0 on the kernel command line"
    );
    assert_eq!(
        remove_parameter(&unknown, "idle"),
        "remove idle= from the kernel command line"
    );
}
