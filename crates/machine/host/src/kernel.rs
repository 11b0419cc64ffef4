// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of the kernel's interface that changes a machine, behind a trait so that every
//! step of a change can be tried, and broken off, on a machine that is not there.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use rampart_model::{CpuId, CpuSet};
use rustix::process::Pid;
use rustix::thread::{CpuSet as KernelCpuSet, sched_getaffinity, sched_setaffinity};

use crate::CapturedOutput;
use crate::policy::{self, Attributes};
use crate::replace_file;

/// Files and affinities of a machine. Paths are absolute.
pub(crate) trait Kernel: fmt::Debug + Send + Sync {
    /// The text of a file.
    fn read(&self, path: &Path) -> io::Result<String>;
    /// Hands a value to the kernel in one write.
    fn write(&self, path: &Path, value: &str) -> io::Result<()>;
    /// Makes a directory: in a control group hierarchy, a group.
    fn make_directory(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory: in a control group hierarchy, an empty group.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;
    /// Names in a directory in a stable order; none where it cannot be read.
    fn names(&self, path: &Path) -> Vec<String>;
    /// Whether there is a directory.
    fn is_directory(&self, path: &Path) -> bool;
    /// Whether there is a file or directory.
    fn exists(&self, path: &Path) -> bool;
    /// The CPUs that a thread may run on.
    fn affinity(&self, thread: u32) -> io::Result<CpuSet>;
    /// Sets the CPUs that a thread may run on.
    fn set_affinity(&self, thread: u32, cpus: &CpuSet) -> io::Result<()>;
    /// What the scheduler knows of a thread.
    fn attributes(&self, thread: u32) -> io::Result<Attributes>;
    /// Tells the scheduler of a thread.
    fn set_attributes(&self, thread: u32, attributes: &Attributes) -> io::Result<()>;
    /// Mounts a file system of the kernel that has no device, such as `tracefs`.
    fn mount(&self, _kind: &str, _point: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Unmounts what is mounted there.
    fn unmount(&self, _point: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Replaces a file on a disk as a whole, or makes it.
    fn replace_file(&self, _path: &Path, _text: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Removes a file on a disk, if it is there.
    fn remove_file(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Removes what a replacement that was broken off left beside a file.
    fn remove_temporary_file(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    /// Runs a program, by its absolute path, to its end, and kills it after `limit`.
    fn run(&self, _words: &[String], _limit: Duration) -> io::Result<CapturedOutput> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Unloads a module that is not in use.
    fn remove_module(&self, _name: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Called around each step that must survive a sudden end; tests end here.
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
        // Read whole: some files (`osnoise/cpus`) refuse to be read in pieces that are no larger
        // than their text, even at its end.
        let mut text = String::with_capacity(4096);
        std::fs::File::open(path)?.read_to_string(&mut text)?;
        Ok(text)
    }

    fn write(&self, path: &Path, value: &str) -> io::Result<()> {
        use std::io::Write as _;
        // Never creates: a file that is not there is a setting that this kernel lacks.
        let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
        // With a line feed, as `echo` does: some files (`osnoise/cpus` before 6.17) read on where
        // there is none.
        let line = format!("{value}\n");
        let written = file.write(line.as_bytes())?;
        if written == line.len() {
            Ok(())
        } else {
            // The kernel takes a value whole or not at all; a second write would be another.
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
        let mut names: Vec<String> = std::fs::read_dir(path)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
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
        // `O_NONBLOCK` is the only behaviour that the kernel still has (delete_module(2)).
        rustix::system::delete_module(&name, rustix::fs::OFlags::NONBLOCK.bits() as _)?;
        Ok(())
    }

    fn run(&self, words: &[String], limit: Duration) -> io::Result<CapturedOutput> {
        let (program, arguments) = words
            .split_first()
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut command = std::process::Command::new(program);
        // What it says is shown to nobody who could choose a language.
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
