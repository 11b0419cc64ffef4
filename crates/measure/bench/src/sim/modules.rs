// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernel modules: which the simulated machine keeps, and which must be loaded before which.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::architecture::Architecture;
use super::error::SimError;
use super::program::Program;

/// The parts of the module tree that a machine made of virtio devices can use. The rest, nine
/// tenths of it, is for hardware that it does not have.
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
    "kernel/drivers/misc/pvpanic/",
    "kernel/drivers/net/bonding/",
    "kernel/drivers/net/dummy.ko",
    "kernel/drivers/net/ipvlan/",
    "kernel/drivers/net/macvlan.ko",
    "kernel/drivers/net/macvtap.ko",
    "kernel/drivers/net/net_failover.ko",
    "kernel/drivers/net/tap.ko",
    "kernel/drivers/net/tun.ko",
    "kernel/drivers/net/veth.ko",
    "kernel/drivers/net/virtio_net.ko",
    "kernel/drivers/net/vxlan/",
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

/// `modules.dep` of depmod(8): each module's path below the module directory, and those that it
/// needs, all of them, the nearest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dependencies {
    needs: BTreeMap<String, Vec<String>>,
}

impl Dependencies {
    pub(super) fn read(modules: &Path) -> Result<Self, SimError> {
        let path = modules.join("modules.dep");
        let text = fs::read_to_string(&path).map_err(SimError::file("read", &path))?;
        Ok(Self::parse(&text))
    }

    pub(super) fn parse(text: &str) -> Self {
        let needs = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(module, needed)| {
                let needed = needed.split_whitespace().map(str::to_owned).collect();
                (module.to_owned(), needed)
            })
            .collect();
        Self { needs }
    }

    /// What to load for `names`, in order: each after those that it needs, none twice.
    ///
    /// # Errors
    /// With the name that no module has.
    pub(super) fn order<'a>(
        &'a self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<&'a str>, &'a str> {
        let mut order: Vec<&str> = Vec::new();
        for name in names {
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

    /// Those that are kept and all that they need.
    fn closure(&self) -> BTreeSet<&str> {
        self.needs
            .iter()
            .filter(|(module, _)| KEPT.iter().any(|kept| module.starts_with(kept)))
            .flat_map(|(module, needed)| needed.iter().chain([module]))
            .map(String::as_str)
            .collect()
    }
}

/// A module's file is called as the module, with `-` and `_` taken for the same.
fn is_called(path: &str, name: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    let stem = file.split(".ko").next().unwrap_or(file);
    stem.replace('-', "_") == name.replace('-', "_")
}

/// Leaves only the modules that the machine can use below `root`, and writes what modprobe reads.
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

/// depmod(8) of this machine, or where it has none the one that was just unpacked, if it runs here.
fn depmod(root: &Path, architecture: &Architecture, release: &str) -> Result<(), SimError> {
    let own = ["/usr/sbin/depmod", "/sbin/depmod", "/usr/bin/depmod"]
        .iter()
        .map(PathBuf::from)
        .find(|path| path.is_file());
    let mut command = match own {
        Some(program) => Command::new(program),
        // There depmod is a link to /bin/kmod, which would be this machine's.
        None if architecture.is_of_this_machine() => {
            unpacked_program(root, "usr/bin/kmod", "depmod")?
        }
        None => Command::new(DEPMOD.name),
    };
    command.arg("--basedir").arg(root).arg(release);
    DEPMOD.run(command, &mut || 0).map(|_| ())
}

/// A program below `root` under the name that tells it what to do, run with the libraries that are
/// there, by its own loader (ld.so(8)).
fn unpacked_program(root: &Path, program: &str, name: &str) -> Result<Command, SimError> {
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
    let mut command = Command::new(loader);
    command
        .arg("--library-path")
        .arg(&architecture)
        .args(["--argv0", name])
        .arg(root.join(program));
    Ok(command)
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
    fn a_module_comes_after_those_that_it_needs() {
        let dependencies = Dependencies::parse(LIST);
        let order = dependencies.order(["kvm", "kvm_amd"]).expect("known");
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
    fn what_is_kept_keeps_what_it_needs() {
        let kept = Dependencies::parse(LIST);
        let kept = kept.closure();
        assert!(kept.contains("kernel/net/core/failover.ko"));
        assert!(!kept.contains("kernel/drivers/gpu/drm/drm.ko"));
    }
}
