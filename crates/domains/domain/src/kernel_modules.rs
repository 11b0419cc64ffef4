// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds kernel modules and their dependencies, and unpacks them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _};
use rampart_agent::MODULE_LIST;
use rampart_model::{Finding, Severity};

/// Endings of module files, with their compression.
const ENDINGS: [(&str, Packing); 4] = [
    (".ko", Packing::None),
    (".ko.xz", Packing::Xz),
    (".ko.zst", Packing::Zstandard),
    (".ko.gz", Packing::Gzip),
];

/// The module that injects blocks.
const BLOCKS: &str = "blocksys";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    None,
    Xz,
    Zstandard,
    Gzip,
}

/// An unpacked module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Module {
    /// Its name as the kernel writes it, with `_`.
    pub(crate) name: String,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
}

/// The modules of one kernel.
#[derive(Debug)]
pub(crate) struct ModuleTree {
    directory: PathBuf,
    built_in: BTreeSet<String>,
    /// Files by module name.
    files: BTreeMap<String, PathBuf>,
}

impl ModuleTree {
    /// Opens the tree below `/lib/modules/RELEASE`. `modules.dep` names the files; if depmod(8) has
    /// not run yet, as in an unpacked package, the directory is searched.
    pub(crate) fn open(directory: &Path) -> Self {
        let read = |name| fs::read_to_string(directory.join(name)).unwrap_or_default();
        let mut files = BTreeMap::new();
        for line in read("modules.dep").lines() {
            if let Some((path, _)) = line.split_once(':') {
                add(&mut files, &directory.join(path));
            }
        }
        if files.is_empty() {
            walk(directory, 0, &mut files);
        }
        Self {
            directory: directory.to_owned(),
            built_in: read("modules.builtin")
                .lines()
                .filter_map(|line| name_and_packing(Path::new(line)))
                .map(|(name, _)| name)
                .collect(),
            files,
        }
    }

    /// Returns whether there is a file of this module.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// Returns the named modules and their dependencies in loading order, without those that are
    /// built into the kernel.
    pub(crate) fn closure(&self, names: &[&str]) -> Result<Vec<Module>, Box<Finding>> {
        let mut loaded = Vec::new();
        for name in names {
            self.add(name, &mut loaded, 0)?;
        }
        Ok(loaded)
    }

    fn add(&self, name: &str, loaded: &mut Vec<Module>, depth: u32) -> Result<(), Box<Finding>> {
        if self.built_in.contains(name) || loaded.iter().any(|module| module.name == name) {
            return Ok(());
        }
        let Some(path) = self.files.get(name).filter(|_| depth < 32) else {
            return Err(Box::new(
                Finding::new(
                    Severity::Error,
                    self.directory.display().to_string(),
                    format!("the kernel has no module `{name}`, which a guest needs, and it is not built in"),
                )
                .fix("install the package with all modules of the kernel\nname another kernel in RAMPART_GUEST_KERNEL"),
            ));
        };
        let bytes = read(path).map_err(|cause| {
            Box::new(
                Finding::new(
                    Severity::Error,
                    path.display().to_string(),
                    format!("the module cannot be read: {cause}"),
                )
                .fix("reinstall the kernel's package"),
            )
        })?;
        for needed in depends(&bytes) {
            self.add(&needed, loaded, depth + 1)?;
        }
        loaded.push(Module {
            name: name.to_owned(),
            bytes,
        });
        Ok(())
    }
}

/// Returns the module that injects blocks, from beside the meter or from the kernel's own
/// directory, or no module if there is none for this release.
///
/// # Errors
/// Returns an error if the module cannot be read or a dependency is missing.
pub(crate) fn of_blocks(
    tree: &ModuleTree,
    release: &str,
    meter: &Path,
) -> Result<Vec<Module>, Box<Finding>> {
    let beside = meter
        .parent()
        .map(|bin| bin.join("modules").join(release).join("blocksys.ko"));
    let beside = beside.and_then(|path| read(&path).ok());
    match beside.filter(|bytes| built_for(bytes).as_deref() == Some(release)) {
        Some(bytes) => Ok(vec![Module {
            name: BLOCKS.to_owned(),
            bytes,
        }]),
        None if tree.has(BLOCKS) => tree.closure(&[BLOCKS]),
        None => Ok(Vec::new()),
    }
}

/// Returns modules as files of an initramfs, with the list by which the agent loads them.
pub(crate) fn files(modules: &[Module]) -> Vec<(String, Vec<u8>)> {
    let path = |module: &Module| format!("/lib/modules/{}.ko", module.name);
    let list: String = modules.iter().map(|one| path(one) + "\n").collect();
    let files = modules.iter().map(|one| (path(one), one.bytes.clone()));
    files
        .chain([(MODULE_LIST.to_owned(), list.into_bytes())])
        .collect()
}

fn walk(directory: &Path, depth: u32, files: &mut BTreeMap<String, PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth < 16 => walk(&path, depth + 1, files),
            Ok(kind) if kind.is_file() => add(files, &path),
            _ => {}
        }
    }
}

fn add(files: &mut BTreeMap<String, PathBuf>, path: &Path) {
    if let Some((name, _)) = name_and_packing(path) {
        files.insert(name, path.to_owned());
    }
}

/// Returns the module's name, with `_` for the `-` of the file name, and its compression.
fn name_and_packing(path: &Path) -> Option<(String, Packing)> {
    let file = path.file_name()?.to_str()?;
    ENDINGS.into_iter().find_map(|(ending, packing)| {
        let name = file.strip_suffix(ending)?;
        Some((name.replace('-', "_"), packing))
    })
}

/// Reads and unpacks a module file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = fs::read(path)?;
    let packing = name_and_packing(path).map_or(Packing::None, |(_, packing)| packing);
    let mut unpacked = Vec::new();
    match packing {
        Packing::None => return Ok(bytes),
        Packing::Gzip => {
            flate2::read::GzDecoder::new(bytes.as_slice()).read_to_end(&mut unpacked)?;
        }
        Packing::Zstandard => {
            ruzstd::decoding::StreamingDecoder::new(bytes.as_slice())
                .map_err(io::Error::other)?
                .read_to_end(&mut unpacked)?;
        }
        Packing::Xz => {
            // xz(1) may have written several streams into one file.
            lzma_rust2::XzReader::new(bytes.as_slice(), true).read_to_end(&mut unpacked)?;
        }
    }
    Ok(unpacked)
}

/// Returns the dependencies in a module's section `.modinfo`: `depends=a,b`.
fn depends(module: &[u8]) -> Vec<String> {
    information(module, "depends=")
        .map(|text| {
            text.split(',')
                .filter(|name| !name.is_empty())
                .map(|name| name.replace('-', "_"))
                .collect()
        })
        .unwrap_or_default()
}

/// Returns the release that a module was built for: the first word of `vermagic=`.
pub(crate) fn built_for(module: &[u8]) -> Option<String> {
    let text = information(module, "vermagic=")?;
    text.split_whitespace().next().map(str::to_owned)
}

fn information(module: &[u8], key: &str) -> Option<String> {
    let file = ElfFile64::<object::Endianness>::parse(module).ok()?;
    let section = file.section_by_name(".modinfo")?;
    let data = section.data().ok()?;
    data.split(|byte| *byte == 0)
        .filter_map(|entry| std::str::from_utf8(entry).ok())
        .find_map(|entry| entry.strip_prefix(key))
        .map(str::to_owned)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write as _;

    use super::*;

    /// Returns a minimal ELF file with a section `.modinfo`.
    pub(crate) fn module(information: &str) -> Vec<u8> {
        let names = b"\0.modinfo\0.shstrtab\0";
        let information = information.as_bytes();
        let mut file = vec![0u8; 64];
        file[..16].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        file[16..18].copy_from_slice(&1u16.to_le_bytes());
        file[18..20].copy_from_slice(&62u16.to_le_bytes());
        file[20..24].copy_from_slice(&1u32.to_le_bytes());
        let (at, names_at) = (64, 64 + information.len());
        let sections_at = names_at + names.len();
        file[40..48].copy_from_slice(&(sections_at as u64).to_le_bytes());
        file[52..54].copy_from_slice(&64u16.to_le_bytes());
        file[58..60].copy_from_slice(&64u16.to_le_bytes());
        file[60..62].copy_from_slice(&3u16.to_le_bytes());
        file[62..64].copy_from_slice(&2u16.to_le_bytes());
        file.extend(information);
        file.extend(names);
        for (name, kind, offset, size) in [
            (0u32, 0u32, 0usize, 0usize),
            (1, 1, at, information.len()),
            (10, 3, names_at, names.len()),
        ] {
            let mut section = vec![0u8; 64];
            section[..4].copy_from_slice(&name.to_le_bytes());
            section[4..8].copy_from_slice(&kind.to_le_bytes());
            section[24..32].copy_from_slice(&(offset as u64).to_le_bytes());
            section[32..40].copy_from_slice(&(size as u64).to_le_bytes());
            section[48..56].copy_from_slice(&1u64.to_le_bytes());
            file.extend(section);
        }
        file
    }

    fn tree(files: &[(&str, Vec<u8>)], built_in: &str) -> (tempfile::TempDir, ModuleTree) {
        let directory = tempfile::tempdir().expect("directory");
        for (path, bytes) in files {
            let path = directory.path().join("kernel").join(path);
            fs::create_dir_all(path.parent().expect("parent")).expect("directory");
            fs::write(path, bytes).expect("file");
        }
        fs::write(directory.path().join("modules.builtin"), built_in).expect("file");
        let tree = ModuleTree::open(directory.path());
        (directory, tree)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).expect("write");
        encoder.finish().expect("finish")
    }

    fn zstandard(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn xz(bytes: &[u8]) -> Vec<u8> {
        let options = lzma_rust2::XzOptions::with_preset(1);
        let mut writer = lzma_rust2::XzWriter::new(Vec::new(), options).expect("a writer");
        writer.write_all(bytes).expect("compress");
        writer.finish().expect("finish")
    }

    #[test]
    fn lists_dependencies_first_in_every_compression() {
        let top = module("depends=low-b,low_a\0vermagic=6.1-x SMP\0");
        let (_directory, tree) = tree(
            &[
                ("drivers/top.ko.xz", xz(&top)),
                ("low-a.ko.gz", gzip(&module("depends=\0"))),
                ("low_b.ko.zst", zstandard(&module("depends=low_a,fixed\0"))),
            ],
            "kernel/fixed.ko\n",
        );
        let modules = tree.closure(&["top", "low_b", "fixed"]).expect("closure");
        let names: Vec<&str> = modules.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["low_a", "low_b", "top"]);
        assert_eq!(modules[2].bytes, top);
        assert_eq!(built_for(&top).as_deref(), Some("6.1-x"));
    }

    #[test]
    fn names_a_missing_module() {
        let (_directory, tree) = tree(&[("a.ko", module("depends=absent\0"))], "");
        let finding = tree.closure(&["a"]).expect_err("must fail").to_string();
        assert!(finding.contains("`absent`"), "{finding}");
    }

    #[test]
    fn refuses_circular_dependencies() {
        let (_directory, tree) = tree(
            &[
                ("a.ko", module("depends=b\0")),
                ("b.ko", module("depends=a\0")),
            ],
            "",
        );
        tree.closure(&["a"]).expect_err("must fail");
    }

    #[test]
    fn uses_modules_dep_if_it_exists() {
        let directory = tempfile::tempdir().expect("directory");
        let updates = directory.path().join("updates");
        fs::create_dir_all(&updates).expect("directory");
        fs::write(updates.join("x.ko"), module("depends=\0")).expect("file");
        fs::write(directory.path().join("modules.dep"), "updates/x.ko:\n").expect("file");
        let tree = ModuleTree::open(directory.path());
        assert!(tree.has("x"));
        assert_eq!(tree.closure(&["x"]).expect("closure").len(), 1);
    }

    #[test]
    fn returns_no_dependencies_of_an_invalid_file() {
        assert!(depends(b"no ELF").is_empty());
        assert_eq!(built_for(b""), None);
    }
}
