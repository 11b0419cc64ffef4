// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the files are that belong to `rampart`: its meter, programs of other architectures, the
//! hypervisor, kernel modules.

use std::path::{Path, PathBuf};

/// Directory of these files in an installation, below its prefix.
const INSTALLED: &str = "libexec/rampart";

/// Returns the directories of the files that belong to the program `rampart`, in the order in which
/// they are searched: its own directory (a build, or a copy on another machine), and
/// `libexec/rampart` beside that directory (an installation).
#[must_use]
pub fn program_file_directories(rampart: &Path) -> Vec<PathBuf> {
    let own = rampart.parent();
    let installed = own
        .and_then(Path::parent)
        .map(|prefix| prefix.join(INSTALLED));
    own.map(Path::to_owned)
        .into_iter()
        .chain(installed)
        .collect()
}

/// Finds a file or directory that belongs to the program `rampart`.
///
/// # Errors
/// Returns every path where it was searched, if it is in none.
pub fn find_program_file(rampart: &Path, name: impl AsRef<Path>) -> Result<PathBuf, Vec<PathBuf>> {
    let searched: Vec<PathBuf> = program_file_directories(rampart)
        .into_iter()
        .map(|directory| directory.join(name.as_ref()))
        .collect();
    match searched.iter().find(|path| path.exists()) {
        Some(found) => Ok(found.clone()),
        None => Err(searched),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_beside_the_program_and_then_below_libexec() {
        let prefix = tempfile::tempdir().expect("a directory");
        let path = |name: &str| prefix.path().join(name);
        let rampart = path("bin/rampart");
        let (beside, installed) = (path("bin/meter"), path("libexec/rampart/meter"));
        assert_eq!(
            find_program_file(&rampart, "meter"),
            Err(vec![beside.clone(), installed.clone()])
        );
        for file in [&installed, &beside] {
            std::fs::create_dir_all(file.parent().expect("a directory")).expect("created");
            std::fs::write(file, "").expect("written");
            assert_eq!(find_program_file(&rampart, "meter").as_ref(), Ok(file));
        }
    }
}
