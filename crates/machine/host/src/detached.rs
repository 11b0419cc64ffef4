// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs that the driver of detached threads takes from Linux (`kernel/detach`).
//!
//! The holder of a CPU is an open file of the driver, which gives the CPU back when the last descriptor is
//! closed. The journal is separate, as that of modules: a CPU stays taken while other commands change the machine.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rampart_model::{
    CpuId, CpuSet, DetachDriver, DetachedCounts, DetachedCpu, DetachedHolder, DetachedState,
    ReleaseReport,
};

use crate::changes::Changes;
use crate::journal::{self, Change};
use crate::kernel::{Kernel, RunningKernel};
use crate::lock::Lock;
use crate::release::{Which, release_those};
use crate::tasks::stat_of;
use crate::undo::Undone;
use crate::{HostError, MachineRoot, StateDirectory};

/// The driver's device.
const DEVICE: &str = "/dev/rampart-detach";
/// The driver's directory of sysfs, without the leading slash.
const SYSFS: &str = "sys/devices/virtual/misc/rampart-detach";

/// Returns where the driver of detached threads is; `None` if that is unknown, as on a recorded machine.
#[must_use]
pub fn read_detach_driver(root: &MachineRoot) -> Option<DetachDriver> {
    if root.exists(SYSFS) {
        return Some(DetachDriver::Loaded);
    }
    // A kernel that is built without modules has no such file (proc_modules(5)).
    if root.is_system() && !root.exists("proc/modules") {
        return Some(DetachDriver::NoModules);
    }
    let list = || {
        let release = root.line("proc/sys/kernel/osrelease")?;
        root.text(&format!("lib/modules/{release}/modules.dep"))
    };
    let installed = match list() {
        None if root.is_system() => String::new(),
        other => other?,
    };
    let is_driver = |line: &str| {
        let path = line.split(':').next().unwrap_or_default();
        path.rsplit('/')
            .next()
            .is_some_and(|file| file.starts_with("detach.ko"))
    };
    Some(if installed.lines().any(is_driver) {
        DetachDriver::Installed
    } else {
        DetachDriver::NotInstalled
    })
}

/// Reads the CPUs that are taken for detached threads. Holders of other users are only visible to root.
#[must_use]
pub fn read_detached_cpus(root: &MachineRoot) -> Vec<DetachedCpu> {
    let list = |name: &str| root.value(&format!("{SYSFS}/{name}"));
    let taken: CpuSet = list("taken").unwrap_or_default();
    let running: CpuSet = list("running").unwrap_or_default();
    if taken.is_empty() {
        return Vec::new();
    }
    let mut found: BTreeMap<CpuId, DetachedCpu> = BTreeMap::new();
    for process in root.numbered("proc", "") {
        for (_, text) in descriptors(root, process) {
            let Some(cpu) = parse(&text) else {
                continue;
            };
            let holder = DetachedHolder {
                process,
                name: name_of(root, process),
            };
            let entry = found.entry(cpu.cpu).or_insert(cpu);
            if !entry.holders.contains(&holder) {
                entry.holders.push(holder);
            }
        }
    }
    let invisible = |cpu: CpuId| DetachedCpu {
        cpu,
        state: if running.contains(cpu) {
            DetachedState::Running
        } else {
            DetachedState::Taken
        },
        holders: Vec::new(),
        thread: None,
        counts: None,
    };
    taken
        .iter()
        .map(|cpu| found.remove(&cpu).unwrap_or_else(|| invisible(cpu)))
        .map(|mut cpu| {
            if let Some(thread) = &mut cpu.thread {
                thread.name = name_of(root, thread.process);
            }
            cpu
        })
        .collect()
}

/// Returns a process's descriptors of the driver with the text of their fdinfo.
fn descriptors(root: &MachineRoot, process: u32) -> Vec<(u32, String)> {
    let is_driver = |number: &u32| {
        let link = root.path(&format!("proc/{process}/fd/{number}"));
        std::fs::read_link(link).is_ok_and(|file| file == Path::new(DEVICE))
    };
    let numbers = root.numbered(&format!("proc/{process}/fd"), "");
    numbers
        .into_iter()
        .filter(is_driver)
        .filter_map(|number| {
            let text = root.text(&format!("proc/{process}/fdinfo/{number}"))?;
            Some((number, text))
        })
        .collect()
}

fn name_of(root: &MachineRoot, process: u32) -> String {
    root.line(&format!("proc/{process}/comm"))
        .unwrap_or_default()
}

/// Parses the lines that the driver writes to an fdinfo. Returns `None` if the file has no CPU.
fn parse(text: &str) -> Option<DetachedCpu> {
    let field = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.find_map(|(key, value)| (key == name).then(|| value.trim()))
    };
    let number = |name: &str| field(name)?.parse::<u64>().ok();
    let thread = field("thread")?.parse().ok()?;
    Some(DetachedCpu {
        cpu: CpuId(field("cpu")?.parse().ok()?),
        state: match field("state")? {
            "taken" => DetachedState::Taken,
            "running" => DetachedState::Running,
            "stopped" => DetachedState::Stopped,
            _ => DetachedState::Failed,
        },
        holders: Vec::new(),
        thread: (thread > 0).then(|| DetachedHolder {
            process: thread,
            name: String::new(),
        }),
        counts: Some(DetachedCounts {
            system_calls: number("system_calls")?,
            faults: number("faults")?,
            kicks: number("kicks")?,
            flushes: number("flushes")?,
            interrupts: number("interrupts")?,
        }),
    })
}

/// Returns the state directory of the journal and lock of taken CPUs.
fn detached_state(state: &StateDirectory) -> StateDirectory {
    StateDirectory::at(state.path().join("detached"))
}

/// Takes a CPU from Linux for detached threads of this process, and of the program that replaces it. The CPU is
/// Linux's again when the last copy of the descriptor is closed, or by [`release_detached`].
///
/// # Errors
/// If the journal cannot be written, or the driver refuses.
pub fn take_cpu(state: &StateDirectory, cpu: CpuId) -> Result<OwnedFd, HostError> {
    take_cpu_on(&(Arc::new(RunningKernel) as _), state, cpu)
}

fn take_cpu_on(
    kernel: &Arc<dyn Kernel>,
    state: &StateDirectory,
    cpu: CpuId,
) -> Result<OwnedFd, HostError> {
    let state = detached_state(state);
    let _lock = Lock::take(&state, false)?;
    forget_ended(&**kernel, &state)?;
    let holder = std::process::id();
    let start = stat_of(&**kernel, holder).map_or(0, |stat| stat.start);
    let mut changes = Changes::persistent(Arc::clone(kernel), &state);
    changes.prepare(vec![Change::TakenCpu { cpu, holder, start }])?;
    changes.step()?;
    match kernel.take_cpu(cpu) {
        Ok(descriptor) => {
            changes.step()?;
            Ok(descriptor)
        }
        Err(error) => {
            changes.undo()?;
            Err(refused(cpu, &error))
        }
    }
}

fn refused(cpu: CpuId, error: &io::Error) -> HostError {
    let fix = match error.kind() {
        io::ErrorKind::NotFound => {
            let driver = read_detach_driver(&MachineRoot::system());
            let problem = rampart_rules::detach_driver_problem(driver);
            problem.fix.unwrap_or_default()
        }
        io::ErrorKind::PermissionDenied => {
            let user = rustix::process::geteuid().as_raw();
            format!("run as root, or write owner = {user} for its domain in the plan")
        }
        io::ErrorKind::WouldBlock => {
            "run the same command again: its owner may take it once a second".to_owned()
        }
        io::ErrorKind::ResourceBusy => {
            "choose another CPU; `rampart detach` lists those that are taken".to_owned()
        }
        _ => "choose a CPU that is online; dmesg shows the reason".to_owned(),
    };
    HostError::Request {
        location: format!("CPU {cpu}"),
        what: format!("cannot be taken: {error}"),
        found: match error.kind() {
            io::ErrorKind::ResourceBusy => "taken already, or needed by Linux",
            _ => "not available",
        }
        .to_owned(),
        expected: "a CPU that Linux can give up".to_owned(),
        fix,
    }
}

/// Removes journals of processes that have ended: the kernel gave their CPUs back.
fn forget_ended(kernel: &dyn Kernel, state: &StateDirectory) -> Result<(), HostError> {
    for path in journal::files(state) {
        let recorded = journal::read(&path)?;
        let has_ended = |change: &Change| match change {
            Change::TakenCpu { holder, start, .. } => !is_same(kernel, *holder, *start),
            _ => false,
        };
        if !recorded.damaged && recorded.changes.iter().all(|(_, change)| has_ended(change)) {
            journal::remove(&path)?;
        }
    }
    Ok(())
}

/// Removes the journal of a CPU that [`take_cpu`] took for this process, and that no process has any more.
///
/// # Errors
/// If another process takes a CPU, or a journal cannot be read or removed.
pub fn forget_cpu(state: &StateDirectory, cpu: CpuId) -> Result<(), HostError> {
    let state = detached_state(state);
    let _lock = Lock::take(&state, false)?;
    for path in journal::files(&state) {
        let recorded = journal::read(&path)?;
        let is_it = |change: &Change| match change {
            Change::TakenCpu {
                cpu: taken, holder, ..
            } => *taken == cpu && *holder == std::process::id(),
            _ => false,
        };
        if !recorded.damaged && recorded.changes.iter().all(|(_, change)| is_it(change)) {
            journal::remove(&path)?;
        }
    }
    Ok(())
}

fn is_same(kernel: &dyn Kernel, process: u32, start: u64) -> bool {
    stat_of(kernel, process).is_some_and(|stat| stat.start == start && !stat.is_gone())
}

/// Gives a CPU back to Linux, also if a program holds it. A thread that is detached there continues under Linux.
///
/// # Errors
/// If the CPU is not taken, or no process that holds it is visible.
pub fn give_cpu(cpu: CpuId) -> Result<(), HostError> {
    let request = |what: String, present: &str, fix: &str| HostError::Request {
        location: format!("CPU {cpu}"),
        what,
        found: present.to_owned(),
        expected: "taken, by a process that this user may change".to_owned(),
        fix: fix.to_owned(),
    };
    let all = read_detached_cpus(&MachineRoot::system());
    let Some(taken) = all.iter().find(|taken| taken.cpu == cpu) else {
        return Err(request(
            "it is not taken".to_owned(),
            "Linux has it",
            "rampart detach",
        ));
    };
    let Some(holder) = taken.holders.first() else {
        return Err(request(
            "its holder is not visible".to_owned(),
            "taken",
            "run as root",
        ));
    };
    match RunningKernel.give_cpu(holder.process, cpu) {
        Ok(_) => Ok(()),
        Err(error) => Err(request(
            format!(
                "cannot be given back by process {}: {error}",
                holder.process
            ),
            "taken",
            &format!("kill {}", holder.process),
        )),
    }
}

/// Gives every CPU back that [`take_cpu`] took and whose program still runs. The program continues under Linux.
///
/// # Errors
/// If another process takes a CPU, or a journal cannot be read.
pub fn release_detached(state: &StateDirectory) -> Result<ReleaseReport, HostError> {
    release_detached_on(&RunningKernel, state)
}

fn release_detached_on(
    kernel: &dyn Kernel,
    state: &StateDirectory,
) -> Result<ReleaseReport, HostError> {
    let state = detached_state(state);
    if journal::files(&state).is_empty() {
        return Ok(ReleaseReport::default());
    }
    let _lock = Lock::take(&state, false)?;
    release_those(kernel, &state, Which::All)
}

/// Gives a taken CPU back, if its holder still has it.
pub(crate) fn undo_taken_cpu(
    kernel: &dyn Kernel,
    cpu: CpuId,
    holder: u32,
    start: u64,
    undone: &mut Undone,
) -> io::Result<()> {
    if !is_same(kernel, holder, start) {
        return Ok(());
    }
    let location = format!("/sys/devices/system/cpu/cpu{cpu}");
    let location = Path::new(&location);
    kernel.step()?;
    match kernel.give_cpu(holder, cpu) {
        Ok(true) => undone.restored(location, format!("given back by process {holder}")),
        Ok(false) => {}
        Err(error) => undone.failed(
            location,
            format!("process {holder} has the CPU and cannot give it back: {error}"),
            &format!("kill {holder}"),
        ),
    }
    Ok(())
}

/// The driver's ioctls, for [`RunningKernel`].
pub(crate) mod ioctls {
    use super::{CpuId, DEVICE, MachineRoot, OwnedFd, descriptors, io, parse};
    use rustix::ioctl::{IntegerSetter, NoArg, ioctl, opcode};
    use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

    /// `RAMPART_DETACH_TAKE` and `RAMPART_DETACH_GIVE` of kernel/detach/rampart-detach.h.
    const TAKE: rustix::ioctl::Opcode = opcode::none(0xb6, 1);
    const GIVE: rustix::ioctl::Opcode = opcode::none(0xb6, 2);

    #[expect(unsafe_code, reason = "an ioctl of the driver")]
    pub(crate) fn take(cpu: CpuId) -> io::Result<OwnedFd> {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(DEVICE)?;
        // SAFETY: the command's argument is a number.
        unsafe { ioctl(&file, IntegerSetter::<TAKE>::new_usize(cpu.0 as usize)) }?;
        Ok(file.into())
    }

    /// Gives a CPU back by a copy of a process's descriptor. Returns `false` if the process has none.
    #[expect(unsafe_code, reason = "an ioctl of the driver")]
    pub(crate) fn give(process: u32, cpu: CpuId) -> io::Result<bool> {
        let all = descriptors(&MachineRoot::system(), process);
        let found = all
            .iter()
            .find(|(_, text)| parse(text).is_some_and(|taken| taken.cpu == cpu));
        let Some((number, _)) = found else {
            return Ok(false);
        };
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let process = i32::try_from(process).ok().and_then(Pid::from_raw);
        let process = pidfd_open(process.ok_or_else(invalid)?, PidfdFlags::empty())?;
        let number = i32::try_from(*number).map_err(|_| invalid())?;
        let file = pidfd_getfd(process, number, PidfdGetfdFlags::empty())?;
        // SAFETY: the command has no argument.
        unsafe { ioctl(&file, NoArg::<GIVE>::new()) }?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeKernel, Layout, Machine, directory};

    const TEXT: &str = "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t412\n\
        cpu:\t2\nstate:\trunning\nthread:\t77\nsystem_calls:\t5\nfaults:\t1\nkicks:\t9\n\
        flushes:\t3\ninterrupts:\t0\n";

    #[test]
    fn reads_cpus_holders_and_counts() {
        let temporary = directory();
        let at = temporary.path();
        let write = |path: &str, text: &str| {
            let path = at.join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("created");
            std::fs::write(path, text).expect("written");
        };
        write("sys/devices/virtual/misc/rampart-detach/taken", "2-3\n");
        write("sys/devices/virtual/misc/rampart-detach/running", "2-3\n");
        // A child of the holder has the same open file.
        for (process, name) in [("70", "loop"), ("71", "child")] {
            write(&format!("proc/{process}/comm"), &format!("{name}\n"));
            for (number, text) in [
                ("4", TEXT),
                ("5", "pos:\t0\ncpu:\t-1\n"),
                ("6", "pos:\t0\n"),
            ] {
                write(&format!("proc/{process}/fdinfo/{number}"), text);
                let link = at.join(format!("proc/{process}/fd/{number}"));
                std::fs::create_dir_all(link.parent().expect("a parent")).expect("created");
                let file = if number == "6" { "/dev/null" } else { DEVICE };
                std::os::unix::fs::symlink(file, link).expect("linked");
            }
        }
        write("proc/77/comm", "control\n");
        let root = MachineRoot::at(at);
        assert_eq!(read_detach_driver(&root), Some(DetachDriver::Loaded));
        let [seen, invisible] = &read_detached_cpus(&root)[..] else {
            panic!("two CPUs are taken");
        };
        assert_eq!((seen.cpu, seen.state), (CpuId(2), DetachedState::Running));
        let holders: Vec<&str> = seen.holders.iter().map(|holder| &*holder.name).collect();
        assert_eq!(holders, ["loop", "child"]);
        assert_eq!(seen.thread.as_ref().expect("a thread").name, "control");
        let counts = seen.counts.expect("counts");
        assert_eq!(
            (counts.system_calls, counts.kicks, counts.flushes),
            (5, 9, 3)
        );
        assert_eq!(invisible.cpu, CpuId(3));
        assert_eq!(invisible.state, DetachedState::Running);
        assert!(invisible.holders.is_empty() && invisible.counts.is_none());
    }

    #[test]
    fn finds_a_driver_that_is_installed_and_not_loaded() {
        let temporary = directory();
        let at = temporary.path();
        let root = MachineRoot::at(at);
        assert_eq!(read_detach_driver(&root), None);
        for directory in ["proc/sys/kernel", "lib/modules/6.1"] {
            std::fs::create_dir_all(at.join(directory)).expect("created");
        }
        let write = |file, text| std::fs::write(at.join(file), text).expect("written");
        write("proc/sys/kernel/osrelease", "6.1\n");
        for (line, found) in [
            ("kernel/detach_other.ko:", DetachDriver::NotInstalled),
            ("updates/dkms/detach.ko.xz: a.ko", DetachDriver::Installed),
        ] {
            write("lib/modules/6.1/modules.dep", line);
            assert_eq!(read_detach_driver(&root), Some(found), "{line}");
        }
    }

    fn kernel(machine: &Machine) -> (Arc<FakeKernel>, Arc<dyn Kernel>) {
        let kernel = Arc::new(FakeKernel::new(machine.clone()));
        (Arc::clone(&kernel), kernel)
    }

    fn machine() -> Machine {
        let mut machine = Machine::new(4, Layout::V2);
        machine.add_thread(std::process::id(), false, None);
        machine
    }

    #[test]
    fn gives_back_after_an_end_at_any_step() {
        let before = machine();
        for end in 1.. {
            let (fake, kernel) = kernel(&before);
            let temporary = directory();
            let state = StateDirectory::at(temporary.path());
            fake.end_after(Some(end));
            let taken = take_cpu_on(&kernel, &state, CpuId(2)).is_ok();
            fake.end_after(None);
            let is_taken = fake.machine().taken.contains_key(&CpuId(2));
            let report = release_detached_on(&*kernel, &state).expect("released");
            assert!(report.left.is_empty(), "{:?}", report.left);
            assert_eq!(report.restored.len(), usize::from(is_taken), "step {end}");
            assert_eq!(*fake.machine(), before, "step {end}");
            if taken {
                assert!(end > 4, "{end} steps are too few");
                return;
            }
        }
    }

    #[test]
    fn the_journal_of_an_ended_program_is_forgotten_and_its_cpu_not_touched() {
        let (fake, kernel) = kernel(&machine());
        let temporary = directory();
        let state = StateDirectory::at(temporary.path());
        take_cpu_on(&kernel, &state, CpuId(2)).expect("taken");
        let files = || journal::files(&detached_state(&state)).len();
        assert_eq!(files(), 1);
        // A refusal leaves no journal.
        let error = take_cpu_on(&kernel, &state, CpuId(2)).expect_err("it is taken");
        assert!(error.to_string().contains("another CPU"), "{error}");
        assert_eq!(files(), 1);
        // Another process has the CPU meanwhile.
        let own = std::process::id();
        fake.machine().threads.remove(&own);
        fake.machine().taken.insert(CpuId(2), 9999);
        take_cpu_on(&kernel, &state, CpuId(3)).expect("taken");
        assert_eq!(files(), 1, "that of CPU 2 is removed");
        let report = release_detached_on(&*kernel, &state).expect("released");
        assert_eq!(report.restored.len(), 0, "{report:?}");
        assert_eq!(fake.machine().taken.get(&CpuId(2)), Some(&9999));
    }
}
