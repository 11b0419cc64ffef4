// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel modules of the simulated machine and the order in which they are loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::architecture::Architecture;
use super::build_programs::Program;
use super::error::SimError;

/// The parts of the module tree that the machines can use: one tenth of it. The rest
/// is for hardware that the machine does not have.
const KEPT: &[&str] = &[
    "kernel/arch/",
    "kernel/block/",
    "kernel/crypto/",
    "kernel/drivers/block/brd.ko",
    "kernel/drivers/block/loop.ko",
    "kernel/drivers/block/null_blk/",
    "kernel/drivers/block/virtio_blk.ko",
    "kernel/drivers/block/zram/",
    "kernel/drivers/char/hw_random/",
    "kernel/drivers/char/virtio_console.ko",
    "kernel/drivers/crypto/ccp/",
    "kernel/drivers/firmware/qemu_fw_cfg.ko",
    "kernel/drivers/i2c/busses/i2c-imx.ko",
    "kernel/drivers/misc/pvpanic/",
    "kernel/drivers/mmc/host/sdhci",
    "kernel/drivers/net/bonding/",
    "kernel/drivers/net/dummy.ko",
    "kernel/drivers/net/ethernet/intel/e1000e/",
    "kernel/drivers/net/ipvlan/",
    "kernel/drivers/net/macvlan.ko",
    "kernel/drivers/net/macvtap.ko",
    "kernel/drivers/net/net_failover.ko",
    "kernel/drivers/net/tap.ko",
    "kernel/drivers/net/tun.ko",
    "kernel/drivers/net/veth.ko",
    "kernel/drivers/net/virtio_net.ko",
    "kernel/drivers/net/vxlan/",
    "kernel/drivers/spi/spi-imx.ko",
    "kernel/drivers/vhost/",
    "kernel/drivers/virtio/",
    "kernel/drivers/watchdog/i6300esb.ko",
    "kernel/drivers/watchdog/softdog.ko",
    "kernel/fs/9p/",
    "kernel/fs/configfs/",
    "kernel/fs/ext4/",
    "kernel/fs/fscache/",
    "kernel/fs/fuse/",
    "kernel/fs/isofs/",
    "kernel/fs/netfs/",
    "kernel/fs/nls/",
    "kernel/fs/overlayfs/",
    "kernel/fs/squashfs/",
    "kernel/lib/",
    "kernel/mm/",
    "kernel/net/",
    "kernel/virt/",
];

const DEPMOD: Program = Program {
    name: "depmod",
    purpose: "list kernel modules",
    package: "kmod",
};

/// Files of the module directory, depmod(8) and Linux, Documentation/kbuild/kbuild.rst.
const NEEDS: &str = "modules.dep";
const BUILT_IN: &str = "modules.builtin";
/// Files that [`Dependencies::read`] needs.
pub(super) const LISTS: [&str; 2] = [NEEDS, BUILT_IN];

/// `modules.dep`: the path of each module below the module directory, and the paths of all modules that it needs,
/// directly needed ones first; and `modules.builtin`: the paths of those that are a part of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dependencies {
    needs: BTreeMap<String, Vec<String>>,
    built_in: Vec<String>,
}

impl Dependencies {
    pub(super) fn read(modules: &Path) -> Result<Self, SimError> {
        let text = |name| {
            let path = modules.join(name);
            fs::read_to_string(&path).map_err(SimError::file("read", &path))
        };
        Ok(Self::parse(&text(NEEDS)?, &text(BUILT_IN)?))
    }

    pub(super) fn parse(text: &str, built_in: &str) -> Self {
        let needs = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(module, needed)| {
                let needed = needed.split_whitespace().map(str::to_owned).collect();
                (module.to_owned(), needed)
            })
            .collect();
        let built_in = built_in.lines().map(str::to_owned).collect();
        Self { needs, built_in }
    }

    /// Returns the modules to load for `names`, each once and after those that it needs. A part of the kernel is not
    /// loaded.
    ///
    /// # Errors
    /// Returns the first name that no module has.
    pub(super) fn order<'a>(
        &'a self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<&'a str>, &'a str> {
        let mut order: Vec<&str> = Vec::new();
        for name in names {
            if self.built_in.iter().any(|module| is_called(module, name)) {
                continue;
            }
            let (module, needed) = self
                .needs
                .iter()
                .find(|(module, _)| is_called(module, name))
                .ok_or(name)?;
            for path in needed.iter().rev().chain([module]) {
                if !order.contains(&path.as_str()) {
                    order.push(path);
                }
            }
        }
        Ok(order)
    }

    /// Returns the modules in [`KEPT`] and all that they need.
    fn closure(&self) -> BTreeSet<&str> {
        self.needs
            .iter()
            .filter(|(module, _)| KEPT.iter().any(|kept| module.starts_with(kept)))
            .flat_map(|(module, needed)| needed.iter().chain([module]))
            .map(String::as_str)
            .collect()
    }
}

/// Returns whether the file of a module has this name. `-` and `_` are equivalent.
fn is_called(path: &str, name: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    let stem = file.split(".ko").next().unwrap_or(file);
    stem.replace('-', "_") == name.replace('-', "_")
}

/// Removes the modules below `root` that the machine cannot use, and updates modprobe's files.
pub(super) fn prune(
    root: &Path,
    architecture: &Architecture,
    release: &str,
) -> Result<(), SimError> {
    let modules = root.join("usr/lib/modules").join(release);
    depmod(root, architecture, release)?;
    let dependencies = Dependencies::read(&modules)?;
    let kept = dependencies.closure();
    for module in dependencies.needs.keys() {
        if !kept.contains(module.as_str()) {
            let path = modules.join(module);
            fs::remove_file(&path).map_err(SimError::file("remove", &path))?;
        }
    }
    depmod(root, architecture, release)
}

/// Runs depmod(8) of this machine. If it has none, runs the unpacked one, if it is of this
/// architecture.
fn depmod(root: &Path, architecture: &Architecture, release: &str) -> Result<(), SimError> {
    let own = ["/usr/sbin/depmod", "/sbin/depmod", "/usr/bin/depmod"]
        .iter()
        .map(PathBuf::from)
        .find(|path| path.is_file());
    let mut command = match own {
        Some(program) => Command::new(program),
        // The unpacked depmod is a link to /bin/kmod, which would be this machine's.
        None if architecture.runs_programs_of_this_machine() => {
            unpacked_program(root, "usr/bin/kmod", "depmod")?
        }
        None => Command::new(DEPMOD.name),
    };
    command.arg("--basedir").arg(root).arg(release);
    DEPMOD.run(command, &mut || 0).map(|_| ())
}

/// Returns the command of a program below `root` with `name` as its `argv[0]`, started by the loader
/// and with the libraries of `root` (ld.so(8)).
fn unpacked_program(root: &Path, program: &str, name: &str) -> Result<Command, SimError> {
    let (loader, libraries) = loader_and_libraries(root)?;
    let mut command = Command::new(loader);
    command
        .arg("--library-path")
        .arg(libraries)
        .args(["--argv0", name])
        .arg(root.join(program));
    Ok(command)
}

/// Returns the dynamic loader below `root`, and the directory of the libraries.
pub(super) fn loader_and_libraries(root: &Path) -> Result<(PathBuf, PathBuf), SimError> {
    let libraries = root.join("usr/lib");
    let entries = fs::read_dir(&libraries).map_err(SimError::file("list", &libraries))?;
    let architecture = entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.join("libc.so.6").is_file())
        .ok_or_else(|| SimError::Image(format!("{}: no C library", libraries.display())))?;
    let loader = fs::read_dir(&architecture)
        .map_err(SimError::file("list", &architecture))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("ld-linux-"))
        })
        .ok_or_else(|| SimError::Image(format!("{}: no loader", architecture.display())))?;
    Ok((loader, architecture))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
kernel/arch/x86/kvm/kvm.ko: kernel/virt/lib/irqbypass.ko
kernel/arch/x86/kvm/kvm-amd.ko: kernel/drivers/crypto/ccp/ccp.ko kernel/arch/x86/kvm/kvm.ko kernel/virt/lib/irqbypass.ko
kernel/drivers/crypto/ccp/ccp.ko:
kernel/drivers/gpu/drm/drm.ko:
kernel/drivers/net/virtio_net.ko: kernel/net/core/failover.ko
kernel/net/core/failover.ko:
kernel/virt/lib/irqbypass.ko:
";

    #[test]
    fn loads_a_module_after_those_that_it_needs() {
        let built_in = "kernel/drivers/virtio/virtio_pci.ko\n";
        let dependencies = Dependencies::parse(LIST, built_in);
        let names = ["kvm", "virtio-pci", "kvm_amd"];
        let order = dependencies.order(names).expect("known");
        assert_eq!(
            order,
            [
                "kernel/virt/lib/irqbypass.ko",
                "kernel/arch/x86/kvm/kvm.ko",
                "kernel/drivers/crypto/ccp/ccp.ko",
                "kernel/arch/x86/kvm/kvm-amd.ko",
            ]
        );
        assert_eq!(dependencies.order(["kvm", "warp"]), Err("warp"));
    }

    #[test]
    fn keeps_the_modules_that_kept_ones_need() {
        let kept = Dependencies::parse(LIST, "");
        let kept = kept.closure();
        assert!(kept.contains("kernel/net/core/failover.ko"));
        assert!(!kept.contains("kernel/drivers/gpu/drm/drm.ko"));
    }
}
