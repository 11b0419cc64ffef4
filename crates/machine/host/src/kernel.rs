// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of the kernel's interface that changes a machine, behind a trait so that tests can make
//! and interrupt every step of a change on a machine in memory.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rampart_model::{CpuId, CpuSet};
use rustix::process::Pid;
use rustix::thread::{CpuSet as KernelCpuSet, sched_getaffinity, sched_setaffinity};

use crate::CapturedOutput;
use crate::detached;
use crate::policy::{self, Attributes};
use crate::replace_file;
use crate::root::sorted_names;

/// Files and affinities of a machine. Paths are absolute.
pub(crate) trait Kernel: fmt::Debug + Send + Sync {
    /// Reads the text of a file.
    fn read(&self, path: &Path) -> io::Result<String>;
    /// Writes a value in one system call.
    fn write(&self, path: &Path, value: &str) -> io::Result<()>;
    /// Creates a directory: in a control group hierarchy, a group.
    fn make_directory(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory: in a control group hierarchy, an empty group.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;
    /// Returns the names in a directory in a stable order, or none if it cannot be read.
    fn names(&self, path: &Path) -> Vec<String>;
    fn is_directory(&self, path: &Path) -> bool;
    /// Returns whether a file or directory exists.
    fn exists(&self, path: &Path) -> bool;
    /// Returns the CPUs that a thread may run on.
    fn affinity(&self, thread: u32) -> io::Result<CpuSet>;
    /// Sets the CPUs that a thread may run on.
    fn set_affinity(&self, thread: u32, cpus: &CpuSet) -> io::Result<()>;
    /// Returns the scheduling attributes of a thread.
    fn attributes(&self, thread: u32) -> io::Result<Attributes>;
    /// Sets the scheduling attributes of a thread.
    fn set_attributes(&self, thread: u32, attributes: &Attributes) -> io::Result<()>;
    /// Mounts a file system of the kernel that has no device, such as `tracefs`.
    fn mount(&self, _kind: &str, _point: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Unmounts a file system.
    fn unmount(&self, _point: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Replaces a file on a disk atomically, or creates it.
    fn replace_file(&self, _path: &Path, _text: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Removes a file on a disk if it exists.
    fn remove_file(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Removes the temporary file of an interrupted replacement.
    fn remove_temporary_file(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    /// Runs a program, given by its absolute path, and kills it after `limit`.
    fn run(&self, _words: &[String], _limit: Duration) -> io::Result<CapturedOutput> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Unloads a module that is not in use.
    fn remove_module(&self, _name: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Takes a CPU from Linux by the driver of detached threads, and returns the file that holds it.
    fn take_cpu(&self, _cpu: CpuId) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Gives back a CPU that a process holds. Returns `false` if it does not hold it.
    fn give_cpu(&self, _process: u32, _cpu: CpuId) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Called before and after each step of a change; tests interrupt the change here.
    fn step(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The running kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunningKernel;

impl Kernel for RunningKernel {
    fn read(&self, path: &Path) -> io::Result<String> {
        use std::io::Read as _;
        // In one read: some files (`osnoise/cpus`) refuse reads that are not longer than their text.
        let mut text = String::with_capacity(4096);
        std::fs::File::open(path)?.read_to_string(&mut text)?;
        Ok(text)
    }

    fn write(&self, path: &Path, value: &str) -> io::Result<()> {
        use std::io::Write as _;
        // Never creates: a missing file is a setting that this kernel does not have.
        let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
        // With a line feed, as `echo` writes it: some files (`osnoise/cpus` before 6.17) read past
        // the end without it.
        let line = format!("{value}\n");
        let written = file.write(line.as_bytes())?;
        if written == line.len() {
            Ok(())
        } else {
            // A second write would be another value.
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)
    }

    fn names(&self, path: &Path) -> Vec<String> {
        sorted_names(path, |_| true)
    }

    fn is_directory(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn affinity(&self, thread: u32) -> io::Result<CpuSet> {
        let set = sched_getaffinity(Some(thread_id(thread)?))?;
        Ok((0..KernelCpuSet::MAX_CPU)
            .filter(|cpu| set.is_set(*cpu))
            .filter_map(|cpu| u32::try_from(cpu).ok().map(CpuId))
            .collect())
    }

    fn set_affinity(&self, thread: u32, cpus: &CpuSet) -> io::Result<()> {
        let mut set = KernelCpuSet::new();
        for CpuId(cpu) in cpus.iter() {
            let cpu = cpu as usize;
            if cpu >= KernelCpuSet::MAX_CPU {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            set.set(cpu);
        }
        sched_setaffinity(Some(thread_id(thread)?), &set)?;
        Ok(())
    }

    fn attributes(&self, thread: u32) -> io::Result<Attributes> {
        policy::attributes(thread)
    }

    fn set_attributes(&self, thread: u32, attributes: &Attributes) -> io::Result<()> {
        policy::set_attributes(thread, attributes)
    }

    fn mount(&self, kind: &str, point: &Path) -> io::Result<()> {
        use rustix::mount::{MountFlags, mount};
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount(kind, point, kind, flags, None)?;
        Ok(())
    }

    fn unmount(&self, point: &Path) -> io::Result<()> {
        rustix::mount::unmount(point, rustix::mount::UnmountFlags::empty())?;
        Ok(())
    }

    fn replace_file(&self, path: &Path, text: &str) -> io::Result<()> {
        replace_file::replace_in_steps(path, text.as_bytes(), &mut || self.step())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        replace_file::remove_file(path)
    }

    fn remove_temporary_file(&self, path: &Path) -> io::Result<()> {
        replace_file::remove_temporary(path)
    }

    fn remove_module(&self, name: &str) -> io::Result<()> {
        let name = std::ffi::CString::new(name)?;
        // `O_NONBLOCK` is the only behaviour that current kernels have (delete_module(2)).
        rustix::system::delete_module(&name, rustix::fs::OFlags::NONBLOCK.bits() as _)?;
        Ok(())
    }

    fn take_cpu(&self, cpu: CpuId) -> io::Result<OwnedFd> {
        detached::ioctls::take(cpu)
    }

    fn give_cpu(&self, process: u32, cpu: CpuId) -> io::Result<bool> {
        detached::ioctls::give(process, cpu)
    }

    fn run(&self, words: &[String], limit: Duration) -> io::Result<CapturedOutput> {
        let (program, arguments) = words
            .split_first()
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut command = std::process::Command::new(program);
        // Its messages become part of ours, which are in English.
        command.args(arguments).env("LC_ALL", "C");
        crate::run_within(command, limit)
    }
}

fn thread_id(thread: u32) -> io::Result<Pid> {
    i32::try_from(thread)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}
