// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands of each distribution, by the os-release files that they ship.

use super::packages::real_time_kernel;
use super::parameters::{remove, set};
use super::*;
use crate::KernelCommandLine;

/// Returns the command that sets parameters on a machine without any of them.
fn add(system: &OperatingSystem, parameters: &str) -> String {
    set(system, &KernelCommandLine::default(), parameters).expect("a command")
}

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
            add(&system, "psi=0 nosmt"),
            "rpm-ostree kargs --append-if-missing=psi=0 --append-if-missing=nosmt"
        );
        assert_eq!(remove(&system, "idle"), "rpm-ostree kargs --delete=idle");
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
    assert!(add(&micro, "psi=0").ends_with("&& transactional-update grub.cfg"));
    let image = with_files(system("acme-linux", ""), &["/usr/bin/opkg"]);
    assert_eq!(install(&image, Package::StressNg), "opkg install stress-ng");
    assert!(add(&image, "psi=0").contains("APPEND:append = \" psi=0\""));
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
    let kernel = |system: &OperatingSystem| real_time_kernel(system, "x86_64", "6.12-generic");
    let version = |id: &str, like: &str, version: &str| OperatingSystem {
        version: version.to_owned(),
        ..system(id, like)
    };
    let debian = system("debian", "");
    assert_eq!(kernel(&debian), "apt-get install linux-image-rt-amd64");
    assert_eq!(
        real_time_kernel(&debian, "aarch64", "6.12.48+deb13-arm64"),
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
    let add = |id: &str| super::tests::add(&system(id, ""), "psi=0");
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
        let command = add(&with_files(system("debian", ""), files), "psi=0");
        assert!(command.ends_with(expected), "{files:?}: {command}");
    }
    // A package manager without a boot loader: a container, or a board with its own firmware.
    let unknown = with_files(system("debian", ""), &["/usr/bin/apt-get"]);
    assert_eq!(add(&unknown, "psi=0"), "psi=0 on the kernel command line");
    assert_eq!(
        remove(&unknown, "idle"),
        "remove idle= from the kernel command line"
    );
}

/// A file with kernel parameters of each boot loader, and the mark by which the boot loader is found.
const FILES: [(&str, &str, &str); 7] = [
    (
        UPDATE_GRUB,
        "/etc/default/grub",
        "GRUB_DEFAULT=0 # isolcpus\nGRUB_CMDLINE_LINUX_DEFAULT='quiet nohz_full=2'\nGRUB_CMDLINE_LINUX=\"{}\"\n",
    ),
    ("/boot/cmdline.txt", "/boot/cmdline.txt", "{}\n"),
    (
        "/etc/update-extlinux.conf",
        "/etc/update-extlinux.conf",
        "# default_kernel_opts\ndefault_kernel_opts=\"{}\"\n",
    ),
    (
        "/etc/default/u-boot",
        "/etc/default/u-boot",
        "U_BOOT_PARAMETERS=\"{}\"\n",
    ),
    (
        "/boot/extlinux/extlinux.conf",
        "/boot/extlinux/extlinux.conf",
        "LABEL a\n  LINUX /isolcpus\n  APPEND {}\n",
    ),
    (KERNEL_INSTALL_LINE, KERNEL_INSTALL_LINE, "{}\n"),
    (
        "/boot/loader/entries",
        "/boot/loader/entries/a.conf",
        "title isolcpus\noptions {}\n",
    ),
];

#[test]
fn commands_replace_the_words_that_they_contradict() {
    let old = "root=/dev/sda1 isolcpus=3 nohz_full=3 nohz-full=2,3 nohz=on ro module_blacklist=a tsc=nowatchdog";
    let line = KernelCommandLine::parse(old);
    let wanted = "isolcpus=domain,2-3 nohz_full=2-3 module_blacklist=b tsc=reliable ro psi=0";
    let new = "isolcpus=domain,2-3 nohz_full=2-3 module_blacklist=a,b tsc=reliable psi=0";
    for (mark, path, text) in FILES {
        let system = with_files(system("debian", ""), &[mark]);
        let command = set(&system, &line, wanted).expect("a command");
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(file.parent().expect("a parent")).expect("directories");
        std::fs::write(&file, text.replace("{}", old)).expect("a file");
        run(&command, directory.path());
        let changed = std::fs::read_to_string(&file).expect("the file");
        let words: Vec<&str> = changed.split_whitespace().collect();
        let text = words.join(" ");
        assert!(
            text.contains(new) || text.contains(&format!("{new} root=")),
            "{mark}: {text}"
        );
        for gone in [
            "isolcpus=3",
            "nohz_full=2 ",
            "nohz_full=2'",
            "nohz_full=3",
            "nohz-full",
            "module_blacklist=a ",
        ] {
            assert!(!text.contains(gone), "{mark}, {gone}: {text}");
        }
        for kept in ["nohz=on ro", "tsc=nowatchdog"] {
            assert!(text.contains(kept), "{mark}, {kept}: {text}");
        }
        // What is in effect is not set again.
        assert_eq!(set(&system, &line, "nohz=on tsc=nowatchdog"), None);
        run(&remove(&system, "nohz_full"), directory.path());
        let changed = std::fs::read_to_string(&file).expect("the file");
        assert!(
            !changed.contains("nohz_full") && changed.contains("nohz=on"),
            "{mark}: {changed}"
        );
    }
    for (mark, expected) in [
        (
            OSTREE_BOOTED,
            "rpm-ostree kargs --delete=isolcpus=3 --append=isolcpus=2",
        ),
        (
            GRUBBY,
            "grubby --update-kernel=ALL --remove-args=\"isolcpus\" --args=\"isolcpus=2\"",
        ),
        (
            "/usr/bin/apt-get",
            "isolcpus=2 on the kernel command line, instead of the present isolcpus=",
        ),
    ] {
        let system = with_files(system("acme-linux", ""), &[mark]);
        assert_eq!(set(&system, &line, "isolcpus=2").as_deref(), Some(expected));
    }
}

/// Carries out a command with the files of a directory. Only `sed` and `find` are programs; those that install
/// packages or generate a configuration do nothing.
fn run(command: &str, directory: &std::path::Path) {
    let root = directory.display().to_string();
    let mut script = "sed=$(command -v sed) find=$(command -v find) PATH=\n".to_owned();
    script += "sed() { \"$sed\" \"$@\"; }\nfind() { \"$find\" \"$@\"; }\n";
    for program in [
        "update-grub",
        "update-extlinux",
        "u-boot-update",
        "kernel-install",
        "apt-get",
    ] {
        script += &format!("{program}() {{ :; }}\n");
    }
    script += &command
        .replace("/etc/", &format!("{root}/etc/"))
        .replace("/boot/", &format!("{root}/boot/"));
    let output = std::process::Command::new("bash")
        .args(["-c", &script])
        .output()
        .expect("bash");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {error}");
}

#[test]
fn a_kernel_of_a_board_is_replaced_by_one_of_the_same_board() {
    let version = |id: &str, version: &str| OperatingSystem {
        version: version.to_owned(),
        ..system(id, "debian")
    };
    let ubuntu = version("ubuntu", "22.04");
    let raspberry = with_files(system("debian", ""), &["/boot/firmware/cmdline.txt"]);
    for (system, release, begin, end) in [
        (
            &ubuntu,
            "5.15.148-tegra",
            "sed -i -E 's|^(deb ",
            "nvidia-l4t-display-rt-kernel",
        ),
        (
            &ubuntu,
            "5.10.216-tegra",
            "sed -i -E 's|^(deb ",
            " nvidia-l4t-rt-kernel-headers",
        ),
        (
            &ubuntu,
            "5.15.0-1031-nvidia-tegra",
            "pro attach",
            "--variant=nvidia-tegra",
        ),
        (
            &ubuntu,
            "5.15.0-1061-raspi",
            "pro attach",
            "--variant=raspi",
        ),
        (
            &version("ubuntu", "26.04"),
            "6.17.0-1004-raspi",
            "build the kernel of this board",
            "no package has it",
        ),
        (
            &ubuntu,
            "6.8.0-60-generic",
            "pro attach",
            "enable realtime-kernel",
        ),
        (
            &raspberry,
            "6.12.47+rpt-rpi-2712",
            "apt-get install linux-image-rpi-v8-rt ",
            ">> /boot/firmware/config.txt",
        ),
        (
            &raspberry,
            "6.1.115-vendor-rk35xx",
            "build the kernel of this board",
            "no package has it",
        ),
        (
            &raspberry,
            "6.12.48+deb13-arm64",
            "apt-get install linux-image-rt-arm64",
            "-arm64",
        ),
    ] {
        let command = real_time_kernel(system, "aarch64", release);
        assert!(
            command.starts_with(begin) && command.ends_with(end),
            "{release}: {command}"
        );
    }
    let list = "deb https://repo.download.nvidia.com/jetson/common r36.4 main\n";
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory
        .path()
        .join("etc/apt/sources.list.d/nvidia-l4t-apt-source.list");
    std::fs::create_dir_all(file.parent().expect("a parent")).expect("directories");
    std::fs::write(&file, list).expect("a file");
    run(
        &real_time_kernel(&ubuntu, "aarch64", "5.15.148-tegra"),
        directory.path(),
    );
    let changed = std::fs::read_to_string(&file).expect("the file");
    assert_eq!(
        changed,
        format!("{list}{}", list.replace("common", "rt-kernel"))
    );
}

#[test]
fn a_node_of_openshift_is_changed_by_its_profile() {
    let node = with_files(
        system("rhel", "fedora"),
        &["/etc/machine-config-daemon", "/run/ostree-booted"],
    );
    for system in [node, system("rhcos", "rhel fedora")] {
        assert_eq!(
            add(
                &system,
                "isolcpus=domain,managed_irq,4-7,9 nohz_full=4-7,9 irqaffinity=0-3 nosmt psi=0"
            ),
            "oc edit performanceprofile, and set spec.cpu.isolated to \"4-7,9\", set spec.cpu.reserved to \"0-3\", add nosmt to spec.additionalKernelArgs, add psi=0 to spec.additionalKernelArgs"
        );
        assert!(remove(&system, "idle").ends_with("remove idle from spec.additionalKernelArgs"));
        assert!(
            real_time_kernel(&system, "x86_64", "5.14.0-570.el9.x86_64")
                .contains("spec.realTimeKernel.enabled")
        );
    }
}
