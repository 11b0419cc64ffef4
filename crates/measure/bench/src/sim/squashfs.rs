// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes a directory tree as a squashfs image in which everything belongs to user 0.

use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use backhand::compression::{CompressionOptions, Compressor, Lz4};
use backhand::{FilesystemCompressor, FilesystemWriter, NodeHeader};

use super::error::SimError;

/// Directories that a machine for tests does not need.
const LEFT_OUT: &[&str] = &[
    "usr/share/doc",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/bug",
    "usr/share/iso-codes",
    "usr/share/icons",
    "usr/share/perl",
    "usr/share/xml",
    "usr/share/zoneinfo",
];

/// Larger blocks compress better, but each read under emulation decompresses at least one.
const BLOCK_BYTES: u32 = 128 * 1024;

/// The only version of LZ4 that the kernel's squashfs supports (fs/squashfs/lz4_wrapper.c).
const LZ4_LEGACY: u32 = 1;

/// Packs `root` into `to` with LZ4, because an emulated processor decompresses it.
pub(super) fn pack(root: &Path, to: &Path) -> Result<(), SimError> {
    let failed = |error: backhand::BackhandError| {
        SimError::Image(format!("cannot write {}: {error}", to.display()))
    };
    let mut image = FilesystemWriter::default();
    image.set_block_size(BLOCK_BYTES);
    let options = CompressionOptions::Lz4(Lz4 {
        version: LZ4_LEGACY,
        flags: 0,
    });
    image
        .set_compressor(FilesystemCompressor::new(Compressor::Lz4, Some(options)).map_err(failed)?);
    image.set_root_mode(0o755);
    image.set_only_root_id();
    // A fixed time makes images of the same packages equal.
    image.set_time(0);
    add(&mut image, root, Path::new(""), &failed)?;
    let file = File::create(to).map_err(SimError::file("create", to))?;
    image.write(BufWriter::new(file)).map_err(failed)?;
    pad(to)
}

/// Pads a file to a power of two with a hole: the size of a card (QEMU, "SD card size has to be a power of 2").
fn pad(path: &Path) -> Result<(), SimError> {
    let file = File::options().write(true).open(path);
    let file = file.map_err(SimError::file("open", path))?;
    let bytes = file
        .metadata()
        .map_err(SimError::file("read the size of", path))?
        .len();
    file.set_len(bytes.next_power_of_two())
        .map_err(SimError::file("extend", path))
}

fn add(
    image: &mut FilesystemWriter<'_, '_, '_>,
    root: &Path,
    below: &Path,
    failed: &impl Fn(backhand::BackhandError) -> SimError,
) -> Result<(), SimError> {
    let directory = root.join(below);
    let entries = fs::read_dir(&directory).map_err(SimError::file("list", &directory))?;
    for entry in entries {
        let entry = entry.map_err(SimError::file("list", &directory))?;
        let inside = below.join(entry.file_name());
        if LEFT_OUT
            .iter()
            .any(|left_out| inside == Path::new(left_out))
        {
            continue;
        }
        let path = entry.path();
        let metadata =
            fs::symlink_metadata(&path).map_err(SimError::file("read the metadata of", &path))?;
        let permissions = u16::try_from(metadata.permissions().mode() & 0o7777).unwrap_or(0o644);
        let header = NodeHeader::new(permissions, 0, 0, 0);
        if metadata.is_dir() {
            image.push_dir(&inside, header).map_err(failed)?;
            add(image, root, &inside, failed)?;
        } else if metadata.is_symlink() {
            let target = fs::read_link(&path).map_err(SimError::file("read the link", &path))?;
            image
                .push_symlink(target, &inside, header)
                .map_err(failed)?;
        } else if metadata.is_file() {
            image
                .push_file_from_path(&path, &inside, header)
                .map_err(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use backhand::{FilesystemReader, InnerNode};

    use super::*;

    #[test]
    fn packs_a_tree_that_belongs_to_root() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("root");
        fs::create_dir_all(root.join("usr/bin")).expect("made");
        fs::create_dir_all(root.join("usr/share/doc/x")).expect("made");
        let program = root.join("usr/bin/program");
        fs::write(&program, vec![7; 300_000]).expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("set");
        std::os::unix::fs::symlink("usr/bin", root.join("bin")).expect("linked");
        let to = directory.path().join("image");
        pack(&root, &to).expect("packed");

        let file = BufReader::new(File::open(&to).expect("opened"));
        let read = FilesystemReader::from_reader(file).expect("read");
        let mut names = Vec::new();
        for node in read.files() {
            assert_eq!((node.header.uid, node.header.gid), (0, 0));
            names.push(node.fullpath.display().to_string());
            match &node.inner {
                InnerNode::Symlink(link) => assert_eq!(link.link, Path::new("usr/bin")),
                InnerNode::File(_) => assert_eq!(node.header.permissions, 0o4755),
                _ => {}
            }
        }
        names.sort();
        assert_eq!(
            names,
            [
                "/",
                "/bin",
                "/usr",
                "/usr/bin",
                "/usr/bin/program",
                "/usr/share"
            ]
        );
    }
}
