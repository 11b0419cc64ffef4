// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Replaces files atomically and durably: a reader finds either the old or the new content, also
//! after a power failure.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// Replaces or creates a file atomically.
///
/// Writes a temporary file in the same directory, brings it to the disk, renames it and brings the
/// directory to the disk. Keeps mode and owner of a file that it replaces; a new file gets its mode
/// from the umask. Creates missing directories. Replaces the target of a symbolic link.
///
/// # Errors
/// The system call's error. The file has its old content then, and the temporary file is removed.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_in_steps(path, content, &mut || Ok(()))
}

/// Replaces a file like [`replace_file`] and calls `step` wherever the machine may lose power.
///
/// # Errors
/// The system call's error, or the first error of `step`, which leaves the temporary file.
pub(crate) fn replace_in_steps(
    path: &Path,
    content: &[u8],
    step: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let path = target(path);
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    if !directory.is_dir() {
        std::fs::create_dir_all(directory)?;
        for above in directory.ancestors().skip(1).take(2) {
            if !above.as_os_str().is_empty() {
                File::open(above)?.sync_all()?;
            }
        }
    }
    step()?;
    let temporary = temporary(&path);
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let replaced = match std::fs::metadata(&path) {
        Ok(replaced) => Some(replaced),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(if replaced.is_some() { 0o600 } else { 0o666 })
        .open(&temporary)?;
    step()?;
    let without_temporary = |error| {
        let _ = std::fs::remove_file(&temporary);
        error
    };
    write(&mut file, replaced.as_ref(), content).map_err(without_temporary)?;
    step()?;
    std::fs::rename(&temporary, &path).map_err(without_temporary)?;
    step()?;
    File::open(directory)?.sync_all()
}

/// Writes the content, with mode and owner of the file that it replaces, and brings it to the disk.
fn write(file: &mut File, replaced: Option<&Metadata>, content: &[u8]) -> io::Result<()> {
    file.write_all(content)?;
    if let Some(replaced) = replaced {
        let present = file.metadata()?;
        // The owner first, since changing it may clear bits of the mode. A file system without
        // owners (FAT) refuses even a change to the present owner.
        if (present.uid(), present.gid()) != (replaced.uid(), replaced.gid()) {
            fchown(&*file, Some(replaced.uid()), Some(replaced.gid()))?;
        }
        let mode = replaced.mode() & 0o7777;
        if file.metadata()?.mode() & 0o7777 != mode {
            file.set_permissions(Permissions::from_mode(mode))?;
        }
    }
    file.sync_all()
}

/// Removes a file if it exists, and brings the removal to the disk.
///
/// # Errors
/// The system call's error.
pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    let path = target(path);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

/// Removes the temporary file of an interrupted replacement.
///
/// # Errors
/// The system call's error.
pub(crate) fn remove_temporary(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(temporary(&target(path))) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Follows symbolic links.
fn target(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Returns the path of the temporary file: in the same directory, under a name that no boot loader
/// reads.
fn temporary(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".rampart-new");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("there").mode() & 0o7777
    }

    #[test]
    fn keeps_the_mode_and_the_link() {
        let directory = tempfile::tempdir().expect("directory");
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        std::fs::write(&file, "old").expect("written");
        std::fs::set_permissions(&file, Permissions::from_mode(0o640)).expect("set");
        std::os::unix::fs::symlink("file", &link).expect("link");
        replace_file(&link, b"new").expect("replaced");
        assert_eq!(std::fs::read_to_string(&file).expect("read"), "new");
        assert_eq!(mode(&file), 0o640);
        assert!(link.is_symlink());
        let fresh = directory.path().join("made/fresh");
        replace_file(&fresh, b"x").expect("made");
        assert_eq!(std::fs::read(&fresh).expect("read"), b"x");
    }

    #[test]
    fn leaves_the_old_content_and_no_temporary_file_if_it_fails() {
        let directory = tempfile::tempdir().expect("directory");
        let occupied = directory.path().join("occupied");
        std::fs::create_dir(&occupied).expect("directory");
        replace_file(&occupied, b"new").expect_err("a directory is not replaced by a file");
        assert!(occupied.is_dir());
        assert!(!temporary(&occupied).exists());

        let file = directory.path().join("file");
        std::fs::write(&file, "old").expect("written");
        std::fs::create_dir(temporary(&file)).expect("directory");
        replace_file(&file, b"new").expect_err("the temporary file cannot be created");
        assert_eq!(std::fs::read(&file).expect("read"), b"old");

        let below = file.join("below");
        replace_file(&below, b"new").expect_err("a file has no files below it");
        assert_eq!(std::fs::read(&file).expect("read"), b"old");
    }

    #[test]
    fn leaves_the_old_or_the_new_content_wherever_it_is_interrupted() {
        for end in 1.. {
            let directory = tempfile::tempdir().expect("directory");
            let file = directory.path().join("file");
            std::fs::write(&file, "old").expect("written");
            let mut steps = 0;
            let answer = replace_in_steps(&file, b"new", &mut || {
                steps += 1;
                if steps == end {
                    Err(io::Error::other("the end"))
                } else {
                    Ok(())
                }
            });
            let text = std::fs::read_to_string(&file).expect("read");
            assert!(["old", "new"].contains(&text.as_str()), "{text}");
            remove_temporary(&file).expect("removed");
            assert_eq!(
                std::fs::read_dir(directory.path()).expect("list").count(),
                1
            );
            if answer.is_ok() {
                assert!(end > 4 && text == "new");
                return;
            }
        }
    }
}
