// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks the host's support for guests: QEMU, KVM, memory, and the right to lock it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rampart_model::{Accelerator, CpuSet, Finding, Severity, Topology};
use rampart_rules::{Package, Rule, named, rule_of_knob};
use rustix::process::Resource;

use super::description::{Backing, Board};

/// Names of QEMU, and whether it has the board `microvm`, which Red Hat's lacks.
const PROGRAMS: [(&str, bool); 2] = [
    ("qemu-system-x86_64", true),
    ("/usr/libexec/qemu-kvm", false),
];
/// Memory that QEMU needs besides the guest's.
const OWN_MEBIBYTES: u64 = 192;

/// QEMU's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    microvm: bool,
}

impl Program {
    /// Finds the first program that is installed.
    pub(super) fn find() -> Result<Self, Box<Finding>> {
        let directories: Vec<PathBuf> = std::env::var_os("PATH")
            .map(|path| std::env::split_paths(&path).collect())
            .unwrap_or_default();
        Self::find_in(&directories).ok_or_else(|| {
            Box::new(
                Finding::new(
                    Severity::Error,
                    PROGRAMS[0].0,
                    "QEMU, which runs guests, is not installed",
                )
                .fix(crate::install_command(Package::Qemu)),
            )
        })
    }

    /// Returns a program with this path.
    #[cfg(test)]
    pub(super) fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            microvm: true,
        }
    }

    fn find_in(directories: &[PathBuf]) -> Option<Self> {
        PROGRAMS.into_iter().find_map(|(name, microvm)| {
            // Joining an absolute name returns that name.
            let found = directories
                .iter()
                .map(|directory| directory.join(name))
                .find(|path| is_executable(path));
            found.map(|path| Self { path, microvm })
        })
    }

    /// Returns the board for an accelerator.
    pub(super) fn board(&self, accelerator: Accelerator) -> Board {
        match (accelerator, self.microvm) {
            (Accelerator::Kvm, true) => Board::Microvm,
            (Accelerator::Kvm, false) => Board::Q35,
            (Accelerator::Tcg, _) => Board::Pc,
        }
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The rule of findings about KVM.
pub(super) const KVM: Rule = rule_of_knob("kvm");

/// Checks that this process may use `/dev/kvm`.
pub(super) fn kvm() -> Result<(), Box<Finding>> {
    let path = Path::new("/dev/kvm");
    let opened = fs::File::options().read(true).write(true).open(path);
    opened.map(|_| ()).map_err(|cause| {
        let finding = KVM.finding("/dev/kvm", format!("cannot use KVM: {cause}"));
        Box::new(if path.exists() {
            finding
                .values("not readable and writable", "readable and writable")
                .fix("run the same command as root\nusermod -aG kvm $USER")
        } else {
            let fix = named(KVM.id).and_then(|knob| knob.fix);
            finding
                .values("missing", "a character device")
                .fix(fix.unwrap_or_default())
        })
    })
}

/// Chooses memory for a guest: huge pages if enough are free, on the CPUs' node if they share one,
/// locked if permitted.
pub(super) fn backing(
    root: &Path,
    mebibytes: u64,
    cpus: &CpuSet,
    topology: &Topology,
    real_time: bool,
) -> Backing {
    let node = node_of(cpus, topology).filter(|_| topology.nodes.len() > 1 && real_time);
    Backing {
        mebibytes,
        huge_page: free_huge_page(root, mebibytes, node).filter(|_| real_time),
        node,
        locked: real_time && may_lock() && fits(root, mebibytes),
    }
}

/// Returns the memory node of all these CPUs, or `None` if they have several.
pub(super) fn node_of(cpus: &CpuSet, topology: &Topology) -> Option<u32> {
    let mut nodes = topology
        .cpus
        .iter()
        .filter(|cpu| cpus.contains(cpu.id))
        .filter_map(|cpu| cpu.node);
    let first = nodes.next()?;
    nodes.all(|node| node == first).then_some(first)
}

/// Returns the largest huge page size in bytes that divides the size and of which enough pages are
/// free (Linux document `admin-guide/mm/hugetlbpage.rst`).
fn free_huge_page(root: &Path, mebibytes: u64, node: Option<u32>) -> Option<u64> {
    let directory = match node {
        Some(node) => root.join(format!("sys/devices/system/node/node{node}/hugepages")),
        None => root.join("sys/kernel/mm/hugepages"),
    };
    let wanted = mebibytes << 20;
    let mut sizes: Vec<u64> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let size = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
            let bytes = size.parse::<u64>().ok()? * 1024;
            let free = fs::read_to_string(entry.path().join("free_hugepages")).ok()?;
            let free: u64 = free.trim().parse().ok()?;
            let enough = wanted.is_multiple_of(bytes) && free >= wanted / bytes;
            enough.then_some(bytes)
        })
        .collect();
    sizes.sort_unstable();
    sizes.pop()
}

/// Returns whether locking is unlimited, for root or by an unlimited limit: `mem-lock=on` locks a
/// multiple of the guest's memory, so any limit is too small.
pub(super) fn may_lock() -> bool {
    let limit = rustix::process::getrlimit(Resource::Memlock);
    rustix::process::geteuid().is_root() || limit.current.is_none()
}

/// Returns whether enough memory is available for everything that would be locked.
fn fits(root: &Path, mebibytes: u64) -> bool {
    let text = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    available_mebibytes(&text).is_none_or(|free| free >= mebibytes + 2 * OWN_MEBIBYTES)
}

fn available_mebibytes(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("parent")).expect("directory");
        fs::write(path, text).expect("file");
    }

    #[test]
    fn chooses_the_largest_sufficient_pages() {
        let directory = tempfile::tempdir().expect("directory");
        let pages = |size: &str, free: &str| {
            let path = format!("sys/kernel/mm/hugepages/hugepages-{size}kB/free_hugepages");
            write(directory.path(), &path, free);
        };
        pages("2048", "128\n");
        pages("1048576", "0\n");
        assert_eq!(free_huge_page(directory.path(), 256, None), Some(2 << 20));
        assert_eq!(free_huge_page(directory.path(), 257, None), None);
        assert_eq!(free_huge_page(directory.path(), 258, None), None);
        pages("1048576", "4\n");
        assert_eq!(free_huge_page(directory.path(), 1024, None), Some(1 << 30));
        assert_eq!(free_huge_page(directory.path(), 256, Some(0)), None);
    }

    #[test]
    fn does_not_lock_missing_memory() {
        let directory = tempfile::tempdir().expect("directory");
        write(
            directory.path(),
            "proc/meminfo",
            "MemFree: 1 kB\nMemAvailable: 600000 kB\n",
        );
        assert!(!fits(directory.path(), 256));
        write(
            directory.path(),
            "proc/meminfo",
            "MemAvailable: 900000 kB\n",
        );
        assert!(fits(directory.path(), 256));
    }

    #[test]
    fn finds_programs_by_name_and_by_path() {
        let directory = tempfile::tempdir().expect("directory");
        assert_eq!(
            Program::find_in(&[directory.path().to_owned()]).filter(|program| program.microvm),
            None
        );
        let path = directory.path().join("qemu-system-x86_64");
        fs::write(&path, "").expect("file");
        assert!(!is_executable(&path));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
        let found = Program::find_in(&[directory.path().to_owned()]).expect("found");
        assert_eq!(found.path, path);
        assert_eq!(found.board(Accelerator::Kvm), Board::Microvm);
        assert_eq!(found.board(Accelerator::Tcg), Board::Pc);
    }
}
