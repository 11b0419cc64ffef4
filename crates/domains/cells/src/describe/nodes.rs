// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device tree as a table of its nodes, from a flattened tree or from Linux's directory. Section
//! numbers refer to the Devicetree Specification 0.4.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::flattened::{self, Item};

/// Maximum depth of a tree: a directory may contain loops.
const DEEPEST: usize = 32;
/// Maximum number of bytes read of a property.
const MOST_PROPERTY_BYTES: u64 = 1 << 20;

/// The reason why there is no device tree.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The tree cannot be read.
    #[error(
        "cannot read the device tree {path}: {source}; fix: name one with --tree DIRECTORY or --tree FILE.dtb"
    )]
    Read {
        /// Path of the tree.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is not a flattened device tree.
    #[error("{path} is not a flattened device tree: {reason}; fix: write one with `dtc -O dtb`")]
    Format {
        /// The file.
        path: PathBuf,
        /// The error of the parser.
        reason: String,
    },
}

/// One node.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    /// Path from the root, which is `/`.
    pub(super) path: String,
    /// Index of the parent in the table.
    pub(super) parent: Option<usize>,
    properties: BTreeMap<String, Vec<u8>>,
}

/// All nodes; each follows its parent.
#[derive(Debug, Clone, Default)]
pub(super) struct Nodes {
    all: Vec<Node>,
    phandles: BTreeMap<u32, usize>,
    /// Start and size of the parts reserved by the boot loader (5.3).
    pub(super) reservations: Vec<(u64, u64)>,
}

impl Nodes {
    /// Reads a directory such as `/proc/device-tree`, or a flattened tree.
    pub(super) fn read(path: &Path) -> Result<Self, TreeError> {
        let failed = |source| TreeError::Read {
            path: path.to_owned(),
            source,
        };
        let mut nodes = Self::default();
        if fs::metadata(path).map_err(failed)?.is_dir() {
            nodes.add_directory(path, "", None, 0).map_err(failed)?;
        } else {
            nodes.add_flattened(&fs::read(path).map_err(failed)?, path)?;
        }
        nodes.index();
        Ok(nodes)
    }

    fn add_flattened(&mut self, bytes: &[u8], path: &Path) -> Result<(), TreeError> {
        let tree = flattened::read(bytes).map_err(|reason| TreeError::Format {
            path: path.to_owned(),
            reason,
        })?;
        self.reservations = tree.reservations;
        let mut open: Vec<usize> = Vec::new();
        for item in tree.items {
            let parent = open.last().copied();
            match item {
                Item::Begin(name) => {
                    let above = parent.map_or("", |parent| self.path(parent));
                    let path = below(above, name, parent);
                    open.push(self.all.len());
                    self.all.push(Node {
                        path,
                        parent,
                        properties: BTreeMap::new(),
                    });
                }
                Item::Property(name, value) => {
                    let node = parent.and_then(|index| self.all.get_mut(index));
                    if let Some(node) = node {
                        node.properties.insert(name.to_owned(), value.to_vec());
                    }
                }
                Item::End => {
                    open.pop();
                }
            }
        }
        Ok(())
    }

    fn add_directory(
        &mut self,
        directory: &Path,
        above: &str,
        parent: Option<usize>,
        depth: usize,
    ) -> io::Result<()> {
        if depth > DEEPEST {
            return Ok(());
        }
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        let path = below(above, &name, parent);
        let index = self.all.len();
        let mut node = Node {
            path: path.clone(),
            parent,
            properties: BTreeMap::new(),
        };
        let mut children = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                children.push(entry.path());
            } else if kind.is_file() && entry.metadata()?.len() <= MOST_PROPERTY_BYTES {
                let name = entry.file_name().to_string_lossy().into_owned();
                // Some properties are readable only by root, for example a seed for random numbers.
                match fs::read(entry.path()) {
                    Ok(value) => node.properties.insert(name, value),
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
                    Err(error) => return Err(error),
                };
            }
        }
        // Makes the order independent of the file system.
        children.sort();
        self.all.push(node);
        for child in children {
            self.add_directory(&child, &path, Some(index), depth + 1)?;
        }
        Ok(())
    }

    fn index(&mut self) {
        for index in 0..self.all.len() {
            let own = ["phandle", "linux,phandle"]
                .into_iter()
                .find_map(|name| self.word(index, name));
            if let Some(phandle) = own {
                self.phandles.insert(phandle, index);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn path(&self, node: usize) -> &str {
        &self.all[node].path
    }

    /// Returns the name of a node with the unit address.
    pub(super) fn name(&self, node: usize) -> &str {
        let path = self.path(node);
        path.rsplit('/').next().unwrap_or(path)
    }

    pub(super) fn parent(&self, node: usize) -> Option<usize> {
        self.all[node].parent
    }

    pub(super) fn find(&self, path: &str) -> Option<usize> {
        self.all.iter().position(|node| node.path == path)
    }

    pub(super) fn with_phandle(&self, phandle: u32) -> Option<usize> {
        self.phandles.get(&phandle).copied()
    }

    pub(super) fn children(&self, node: usize) -> impl Iterator<Item = usize> {
        (node + 1..self.all.len()).filter(move |child| self.all[*child].parent == Some(node))
    }

    pub(super) fn has(&self, node: usize, property: &str) -> bool {
        self.all[node].properties.contains_key(property)
    }

    /// Returns all properties of a node.
    pub(super) fn properties(&self, node: usize) -> impl Iterator<Item = (&str, &[u8])> {
        let all = self.all[node].properties.iter();
        all.map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    fn value(&self, node: usize, property: &str) -> Option<&[u8]> {
        self.all[node].properties.get(property).map(Vec::as_slice)
    }

    /// Returns a property as words of 32 bits, which are big-endian (2.2.4).
    pub(super) fn words(&self, node: usize, property: &str) -> Vec<u32> {
        let value = self.value(node, property).unwrap_or_default();
        let (words, _) = value.as_chunks::<4>();
        words.iter().map(|word| u32::from_be_bytes(*word)).collect()
    }

    pub(super) fn word(&self, node: usize, property: &str) -> Option<u32> {
        self.words(node, property).first().copied()
    }

    /// Returns a property as a list of strings (2.2.4).
    pub(super) fn strings(&self, node: usize, property: &str) -> Vec<String> {
        let value = self.value(node, property).unwrap_or_default();
        value
            .split(|byte| *byte == 0)
            .filter(|part| !part.is_empty())
            .map(|part| String::from_utf8_lossy(part).into_owned())
            .collect()
    }

    pub(super) fn string(&self, node: usize, property: &str) -> Option<String> {
        self.strings(node, property).into_iter().next()
    }

    pub(super) fn is_compatible(&self, node: usize, wanted: &[&str]) -> bool {
        let own = self.strings(node, "compatible");
        own.iter().any(|name| wanted.contains(&name.as_str()))
    }

    /// Returns whether the node and all nodes above it are enabled (2.3.4).
    pub(super) fn is_enabled(&self, node: usize) -> bool {
        let mut at = Some(node);
        while let Some(index) = at {
            let status = self.string(index, "status");
            if status.is_some_and(|status| status != "okay" && status != "ok") {
                return false;
            }
            at = self.parent(index);
        }
        true
    }

    /// Returns the number of address and size words in the `reg` of a node's children (2.3.5).
    pub(super) fn cells(&self, node: usize) -> (usize, usize) {
        let cells = |property, default| {
            let value = self.word(node, property).unwrap_or(default);
            // No binding has more than four; the limit prevents endless reads of an invalid tree.
            value.min(4) as usize
        };
        (cells("#address-cells", 2), cells("#size-cells", 1))
    }
}

fn below(above: &str, name: &str, parent: Option<usize>) -> String {
    match (parent, above) {
        (None, _) => "/".to_owned(),
        (_, "/") => format!("/{name}"),
        _ => format!("{above}/{name}"),
    }
}

/// Returns words as one number, or `None` if it exceeds 64 bits.
pub(super) fn number(words: &[u32]) -> Option<u64> {
    let (leading, rest) = words.split_at(words.len().saturating_sub(2));
    let joined = rest
        .iter()
        .fold(0, |value, word| value << 32 | u64::from(*word));
    leading.iter().all(|word| *word == 0).then_some(joined)
}
