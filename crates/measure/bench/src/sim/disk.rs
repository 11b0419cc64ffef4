// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small disk that outlives the simulated machine, with Rampart's state and the boot loader's
//! configuration, which a restart must find again.
//!
//! `rampart sim` starts QEMU with the `append` line of `extlinux.conf` on that disk, in place of a
//! boot loader. The disk is an ext4 file system in a plain file, created and read with e2fsprogs,
//! which needs no root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build_programs::Program;
use super::error::SimError;

/// Size for journals and plans. The file is sparse.
const SIZE: &str = "64M";

/// The mount point in the machine.
pub(super) const MOUNTED: &str = "/state";

const CONFIGURATION: &str = "boot/extlinux/extlinux.conf";

const MAKE: Program = Program {
    name: "mkfs.ext4",
    purpose: "create the disk of the simulated machine",
    package: "e2fsprogs",
};
const CHECK: Program = Program {
    name: "e2fsck",
    purpose: "read the disk of the simulated machine",
    package: "e2fsprogs",
};
const DEBUG: Program = Program {
    name: "debugfs",
    purpose: "read the disk of the simulated machine",
    package: "e2fsprogs",
};

/// An existing disk.
#[derive(Debug)]
pub(super) struct Disk {
    path: PathBuf,
}

impl Disk {
    /// Opens the disk in a file. Creates it with `kernel_command_line` if it does not exist.
    ///
    /// # Errors
    /// Returns an error if a program of e2fsprogs is missing or fails.
    pub(super) fn open(path: &Path, kernel_command_line: &str) -> Result<Self, SimError> {
        let disk = Self {
            path: std::path::absolute(path).map_err(SimError::file("find", path))?,
        };
        if !disk.path.exists() {
            disk.make(kernel_command_line)?;
        }
        Ok(disk)
    }

    /// Returns the path of its file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn make(&self, kernel_command_line: &str) -> Result<(), SimError> {
        let beside = self.path.parent().unwrap_or(Path::new("/"));
        let content = tempfile::tempdir_in(beside).map_err(SimError::file("write in", beside))?;
        let tree = content.path().join("tree");
        let configuration = tree.join(CONFIGURATION);
        for directory in [configuration.parent(), Some(&*tree.join("rampart"))] {
            let directory = directory.unwrap_or(&tree);
            super::cache::create_directory(directory)?;
        }
        fs::write(&configuration, configuration_text(kernel_command_line))
            .map_err(SimError::file("write", &configuration))?;
        let image = content.path().join("disk");
        let mut make = command(&MAKE);
        make.args([
            "-q",
            "-F",
            "-L",
            "rampart-state",
            "-E",
            "root_owner=0:0",
            "-d",
        ]);
        make.arg(&tree).arg(&image).arg(SIZE);
        MAKE.run(make, &mut || 0)?;
        // The files have the owner of their originals. In the machine they belong to root.
        for path in ["boot", "boot/extlinux", CONFIGURATION, "rampart"] {
            for field in ["uid", "gid"] {
                let request = format!("set_inode_field /{path} {field} 0");
                ask(&image, &["-w"], &request)?;
            }
        }
        fs::rename(&image, &self.path).map_err(SimError::file("create", &self.path))
    }

    /// Returns the kernel command line of its boot loader's configuration.
    ///
    /// # Errors
    /// Returns an error if there is none, or the disk cannot be read.
    pub(super) fn kernel_command_line(&self) -> Result<String, SimError> {
        // If the machine ended without unmounting, changes may be in the file system's journal
        // alone.
        let mut check = command(&CHECK);
        check.args(["-p", "-E", "journal_only"]).arg(&self.path);
        CHECK.run(check, &mut || 0)?;
        let text = ask(&self.path, &[], &format!("cat /{CONFIGURATION}"))?;
        append_line(&text).ok_or_else(|| {
            SimError::Image(format!(
                "{}: /{CONFIGURATION} on it has no `append` line for its default label; fix: \
                 restore it with debugfs, or remove the disk",
                self.path.display()
            ))
        })
    }
}

/// Returns the command of a program of e2fsprogs, which only root has on the PATH.
fn command(program: &Program) -> Command {
    let beside = ["/usr/sbin", "/sbin"]
        .map(|directory| Path::new(directory).join(program.name))
        .into_iter()
        .find(|path| path.is_file());
    Command::new(beside.unwrap_or_else(|| PathBuf::from(program.name)))
}

fn ask(image: &Path, options: &[&str], request: &str) -> Result<String, SimError> {
    let mut debug = command(&DEBUG);
    debug.args(options).args(["-R", request]).arg(image);
    DEBUG.run(debug, &mut || 0)
}

fn configuration_text(kernel_command_line: &str) -> String {
    format!(
        "# The boot loader of the simulated machine is `rampart sim`, which reads the line of the\n\
         # default label at each start.\n\
         default linux\n\
         label linux\n\
         \tlinux /boot/vmlinuz\n\
         \tappend {kernel_command_line}\n"
    )
}

/// Returns the `append` line of the default label; without a default, that of the first label
/// (syslinux, "Config file format").
fn append_line(configuration: &str) -> Option<String> {
    let mut default = None;
    let mut label = None;
    let mut lines: Vec<(Option<&str>, &str)> = Vec::new();
    for line in configuration.lines() {
        let line = line.trim();
        let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match key.to_ascii_lowercase().as_str() {
            "default" => default = Some(value.trim()),
            "label" => label = Some(value.trim()),
            "append" => lines.push((label, value.trim())),
            _ => {}
        }
    }
    let of_default = lines.iter().find(|(label, _)| *label == default);
    let of_default = of_default.or_else(|| match default {
        // A line before all labels is for all of them.
        Some(_) => lines.iter().find(|(label, _)| label.is_none()),
        None => lines.first(),
    });
    of_default.map(|(_, line)| (*line).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_the_line_of_the_default_label() {
        let two = "default b\nlabel a\n append one\nLABEL b\n\tAPPEND two  words \n";
        assert_eq!(append_line(two).as_deref(), Some("two  words"));
        assert_eq!(append_line("label a\nappend one\n").as_deref(), Some("one"));
        let common = "append all\ndefault x\nlabel x\nlinux /k\n";
        assert_eq!(append_line(common).as_deref(), Some("all"));
        assert_eq!(append_line("default x\nlabel y\nappend y\n"), None);
        assert_eq!(append_line("not at all"), None);
        assert_eq!(
            append_line(&configuration_text("quiet x=1")).as_deref(),
            Some("quiet x=1")
        );
    }

    #[test]
    #[expect(clippy::print_stderr, reason = "a skipped test prints the reason")]
    fn creates_a_disk_once_and_reads_it_again() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("disk");
        let disk = match Disk::open(&path, "quiet isolcpus=1") {
            Err(SimError::ProgramMissing { program, .. }) => {
                return eprintln!("not tested: {program} is missing");
            }
            disk => disk.expect("made"),
        };
        assert_eq!(
            disk.kernel_command_line().expect("read"),
            "quiet isolcpus=1"
        );
        let listed = ask(&path, &[], "stat /rampart").expect("read");
        assert!(listed.contains("User:     0"), "{listed}");
        let again = Disk::open(&path, "another line").expect("there");
        assert_eq!(
            again.kernel_command_line().expect("read"),
            "quiet isolcpus=1"
        );
        ask(&path, &["-w"], &format!("rm /{CONFIGURATION}")).expect("removed");
        let error = again
            .kernel_command_line()
            .expect_err("no line")
            .to_string();
        assert!(error.contains("fix"), "{error}");
        // Nothing else is left beside it.
        assert_eq!(fs::read_dir(directory.path()).expect("list").count(), 1);
    }
}
