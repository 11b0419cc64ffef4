// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files on a disk, replaced as a whole: whoever reads one, or finds it after a sudden end of the
//! machine, finds the old text or the new one.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Replaces or makes a file. Mode and owner stay; a new file may be read by everybody. Its directory
/// is made, with those above it, where there is none.
///
/// # Errors
/// The kernel's refusal, or that of `step`, which is called where a sudden end may come.
pub(crate) fn replace(
    path: &Path,
    text: &str,
    step: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let path = target(path);
    let directory = path.parent().unwrap_or(Path::new("/"));
    if !directory.is_dir() {
        std::fs::create_dir_all(directory)?;
        for above in directory.ancestors().skip(1).take(2) {
            File::open(above)?.sync_all()?;
        }
    }
    step()?;
    let temporary = temporary(&path);
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    step()?;
    let written = write(&mut file, &path, text);
    if let Err(error) = written {
        let _ = std::fs::remove_file(&temporary);
        return Err(error);
    }
    step()?;
    std::fs::rename(&temporary, &path)?;
    step()?;
    File::open(directory)?.sync_all()
}

fn write(file: &mut File, path: &Path, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    let present = file.metadata()?;
    let (mode, owner, group) = match std::fs::metadata(path) {
        Ok(old) => (old.mode() & 0o7777, old.uid(), old.gid()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            (0o644, present.uid(), present.gid())
        }
        Err(error) => return Err(error),
    };
    // A file system without owners (FAT) refuses what is so already; and the owner first, whose
    // change may take bits of the mode away.
    if (present.uid(), present.gid()) != (owner, group) {
        std::os::unix::fs::fchown(&*file, Some(owner), Some(group))?;
    }
    if file.metadata()?.mode() & 0o7777 != mode {
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    file.sync_all()
}

/// Removes a file, if it is there, and brings that to the disk.
///
/// # Errors
/// The kernel's refusal.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
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

/// Removes what a replacement that was broken off left.
///
/// # Errors
/// The kernel's refusal.
pub(crate) fn remove_temporary(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(temporary(&target(path))) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Where a link leads: the file there is replaced, and the link stays.
fn target(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Beside the file, under a name that no boot loader reads.
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
    fn a_file_keeps_its_mode_and_a_link_stays() {
        let directory = tempfile::tempdir().expect("directory");
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        std::fs::write(&file, "old").expect("written");
        std::fs::set_permissions(&file, Permissions::from_mode(0o640)).expect("set");
        std::os::unix::fs::symlink("file", &link).expect("link");
        replace(&link, "new", &mut || Ok(())).expect("replaced");
        assert_eq!(std::fs::read_to_string(&file).expect("read"), "new");
        assert_eq!(mode(&file), 0o640);
        assert!(link.is_symlink());
        let fresh = directory.path().join("made/fresh");
        replace(&fresh, "x", &mut || Ok(())).expect("made");
        assert_eq!(mode(&fresh), 0o644);
    }

    #[test]
    fn broken_off_anywhere_the_text_is_the_old_or_the_new_one() {
        for end in 1.. {
            let directory = tempfile::tempdir().expect("directory");
            let file = directory.path().join("file");
            std::fs::write(&file, "old").expect("written");
            let mut steps = 0;
            let answer = replace(&file, "new", &mut || {
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
