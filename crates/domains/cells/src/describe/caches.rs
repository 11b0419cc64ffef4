// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Describes the last cache of the CPUs: from the device tree (Devicetree Specification 0.4, 3.8 and 3.9), from
//! Linux (Documentation/ABI/testing/sysfs-devices-system-cpu), or from the processor through the driver.

use std::fs;
use std::path::Path;

use super::nodes::Nodes;
use super::{CacheSource, LastCache};

/// Maximum number of levels of caches (Arm ARM, CLIDR_EL1): a tree may contain loops.
const MOST_LEVELS: usize = 7;

/// Returns the last cache of the tree: that in which the chains of `next-level-cache` end. Of several, the one with
/// the fewest colours, since a cell may run below each of them.
pub(super) fn last(nodes: &Nodes) -> Option<LastCache> {
    let cpus = nodes.find("/cpus")?;
    let ends = nodes.children(cpus).filter_map(|cpu| end(nodes, cpu));
    let caches: Option<Vec<LastCache>> = ends.map(|node| cache(nodes, node)).collect();
    caches?.into_iter().min_by_key(LastCache::colours)
}

/// Returns the node of the last cache of a CPU; `None` if the CPU names none.
fn end(nodes: &Nodes, cpu: usize) -> Option<usize> {
    let next = |node: usize| nodes.with_phandle(nodes.word(node, "next-level-cache")?);
    let mut last = next(cpu)?;
    for _ in 0..MOST_LEVELS {
        match next(last) {
            Some(node) => last = node,
            None => return Some(last),
        }
    }
    None
}

/// Returns the shape of a cache; `None` if its node does not have it.
fn cache(nodes: &Nodes, node: usize) -> Option<LastCache> {
    let word = |name| nodes.word(node, name).filter(|value| *value != 0);
    let sets = u64::from(word("cache-sets")?);
    let line_bytes = u64::from(word("cache-line-size").or_else(|| word("cache-block-size"))?);
    let ways = word("cache-size").map(|bytes| u64::from(bytes) / (sets * line_bytes));
    Some(LastCache {
        sets,
        ways: ways.filter(|ways| *ways != 0),
        line_bytes,
        source: CacheSource::DeviceTree,
    })
}

/// Reads the last cache of a CPU from Linux's directory.
pub(super) fn of_linux(directory: &Path) -> Option<LastCache> {
    let caches = fs::read_dir(directory).ok()?.flatten().filter_map(|entry| {
        let text = |name| fs::read_to_string(entry.path().join(name)).ok();
        let number = |name| text(name)?.trim().parse::<u64>().ok();
        let unified = text("type")?.trim() == "Unified";
        let known = |name| number(name).filter(|value| *value != 0);
        let cache = LastCache {
            sets: known("number_of_sets").unwrap_or(0),
            ways: known("ways_of_associativity"),
            line_bytes: known("coherency_line_size").unwrap_or(0),
            source: CacheSource::Linux,
        };
        unified.then_some((number("level")?, cache))
    });
    // The last one, also if Linux does not know its shape: an earlier one is not shared by all.
    let (_, cache) = caches.max_by_key(|(level, _)| *level)?;
    (cache.sets != 0 && cache.line_bytes != 0).then_some(cache)
}

/// Reads the driver's file: level, sets, ways and bytes of a line.
pub(super) fn of_driver(file: &Path) -> Option<LastCache> {
    let text = fs::read_to_string(file).ok()?;
    let numbers: Option<Vec<u64>> = text
        .split_whitespace()
        .map(|word| word.parse().ok())
        .collect();
    let [level, sets, ways, line_bytes] = numbers?[..] else {
        return None;
    };
    // The first level belongs to one CPU.
    (level > 1).then_some(LastCache {
        sets,
        ways: Some(ways),
        line_bytes,
        source: CacheSource::Processor,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_files_of_linux_and_of_the_driver() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(of_linux(directory.path()), None);
        let write = |index: u32, files: &[(&str, &str)]| {
            let path = directory.path().join(format!("index{index}"));
            fs::create_dir_all(&path).expect("created");
            for (name, value) in files {
                fs::write(path.join(name), format!("{value}\n")).expect("written");
            }
        };
        let first = [("level", "1"), ("type", "Data"), ("number_of_sets", "64")];
        write(0, &first);
        let shape = [("number_of_sets", "1024"), ("coherency_line_size", "64")];
        write(
            2,
            &[("level", "2"), ("type", "Unified"), shape[0], shape[1]],
        );
        let cache = of_linux(directory.path()).expect("a cache");
        assert_eq!((cache.sets, cache.line_bytes, cache.ways), (1024, 64, None));
        assert_eq!(cache.colours(), 16);
        // A third level without its shape: its colours are not those of the second.
        write(3, &[("level", "3"), ("type", "Unified")]);
        assert_eq!(of_linux(directory.path()), None);

        let file = directory.path().join("cache");
        for (text, colours) in [
            ("2 2048 16 64\n", Some(32)),
            ("2 512 16 64", Some(8)),
            ("3 8192 16 64", Some(32)),
            ("2 768 16 64", Some(1)),
            ("1 256 2 64", None),
            ("0 0 0 0", None),
            ("2 2048 16", None),
            ("two", None),
        ] {
            fs::write(&file, text).expect("written");
            let found = of_driver(&file).map(|cache| cache.colours());
            assert_eq!(found, colours, "{text}");
        }
    }
}
