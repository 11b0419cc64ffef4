// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device tree of a machine with the changes that a boot loader makes. Pure.
//!
//! On a board a device is enabled in the flattened tree itself (Devicetree Specification 0.4, 5.4): dtoolkit refuses the trees
//! of some boards, because of names of properties that the specification does not permit.

use std::ops::Range;

use dtoolkit::fdt::Fdt;
use dtoolkit::model::{DeviceTree, DeviceTreeProperty};

const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const NOTHING: u32 = 4;

const DISABLED: &[u8] = b"disabled\0";
const OKAY: &[u8] = b"okay\0";

/// Enables the nodes with these paths, unless they are enabled (2.3.4).
///
/// # Errors
/// Returns an error if the bytes are no tree, or a node does not exist or has another state.
pub(super) fn with_enabled(bytes: &[u8], paths: &[&str]) -> Result<Vec<u8>, String> {
    let mut changed = bytes.to_vec();
    for path in paths {
        property(bytes, path, "reg")?.ok_or_else(|| format!("no node {path} with a `reg`"))?;
        let Some(Range { start, end }) = property(bytes, path, "status")? else {
            continue;
        };
        match &bytes[start..end] {
            OKAY => continue,
            DISABLED => {}
            other => {
                let found = String::from_utf8_lossy(other);
                return Err(format!(
                    "{path}: found status `{}`, expected `disabled` or `okay`",
                    found.trim_end_matches('\0')
                ));
            }
        }
        // The shorter value needs two words instead of three; the third becomes a token without meaning. The
        // length precedes the value by two words.
        changed[start - 8..start - 4].copy_from_slice(&(OKAY.len() as u32).to_be_bytes());
        changed[start..start + 8].copy_from_slice(b"okay\0\0\0\0");
        changed[start + 8..start + 12].copy_from_slice(&NOTHING.to_be_bytes());
    }
    Ok(changed)
}

/// Reserves the device with this path for something else than Linux (2.3.4).
///
/// # Errors
/// Returns an error if the bytes are no tree that dtoolkit reads, or the node does not exist.
pub(super) fn with_reserved(bytes: &[u8], path: &str) -> Result<Vec<u8>, String> {
    let flattened = Fdt::new(bytes).map_err(|error| error.to_string())?;
    let mut tree = DeviceTree::from_fdt(&flattened);
    let mut names = path.split('/').filter(|name| !name.is_empty());
    let node = names.try_fold(&mut tree.root, |node, name| node.child_mut(name));
    let node = node.ok_or_else(|| format!("no node {path}"))?;
    node.add_property(DeviceTreeProperty::new_unchecked("status", "reserved"));
    Ok(tree.to_dtb())
}

/// Returns where the value of a property is.
fn property(bytes: &[u8], path: &str, name: &str) -> Result<Option<Range<usize>>, String> {
    let broken = || "not a flattened device tree".to_owned();
    let word = |at: usize| {
        let word = bytes.get(at..at + 4)?;
        Some(u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
    };
    let text = |at: usize| {
        let rest = bytes.get(at..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(&rest[..end]).ok()
    };
    if word(0) != Some(0xd00d_feed) {
        return Err(broken());
    }
    let (mut at, names) = word(8)
        .zip(word(12))
        .map(|(at, names)| (at as usize, names as usize))
        .ok_or_else(broken)?;
    let mut open: Vec<&str> = Vec::new();
    loop {
        let token = word(at).ok_or_else(broken)?;
        at += 4;
        match token {
            BEGIN_NODE => {
                let node = text(at).ok_or_else(broken)?;
                open.push(node);
                at = (at + node.len() + 1).next_multiple_of(4);
            }
            END_NODE => {
                open.pop();
            }
            PROPERTY => {
                let (length, offset) = word(at).zip(word(at + 4)).ok_or_else(broken)?;
                let value = at + 8..at + 8 + length as usize;
                // With its padding.
                at = value.end.next_multiple_of(4);
                if at > bytes.len() {
                    return Err(broken());
                }
                if text(names + offset as usize) == Some(name) && open.join("/") == path {
                    return Ok(Some(value));
                }
            }
            NOTHING => {}
            _ => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use dtoolkit::model::DeviceTreeNode;
    use dtoolkit::{Node as _, Property as _};

    use super::*;

    fn tree() -> Vec<u8> {
        let mut tree = DeviceTree::new();
        let node = DeviceTreeNode::new_unchecked;
        let text = |name: &str, value: &str| DeviceTreeProperty::new_unchecked(name, value);
        let bus = tree.root.add_child_mut(node("bus"));
        for (name, status) in [
            ("serial@0", "okay"),
            ("serial@1", "disabled"),
            ("serial@2", "disabled"),
            ("serial@3", "reserved"),
        ] {
            let serial = bus.add_child_mut(node(name));
            serial.add_property(DeviceTreeProperty::new_unchecked(
                "reg",
                [0_u8; 8].as_slice(),
            ));
            serial.add_property(text("status", status));
            serial.add_property(text("compatible", "board,serial"));
        }
        tree.to_dtb()
    }

    #[test]
    fn enables_the_named_device_alone() {
        let paths = ["/bus/serial@2", "/bus/serial@0"];
        let bytes = with_enabled(&tree(), &paths).expect("a tree");
        let changed = Fdt::new(&bytes).expect("a tree");
        let value = |path: &str, name: &str| {
            let node = changed.find_node(path).expect("a node");
            node.property(name).expect("a property").value().to_vec()
        };
        assert_eq!(value("/bus/serial@2", "status"), b"okay\0");
        assert_eq!(value("/bus/serial@2", "compatible"), b"board,serial\0");
        assert_eq!(value("/bus/serial@1", "status"), b"disabled\0");
    }

    #[test]
    fn reserves_the_named_device_alone() {
        let bytes = with_reserved(&tree(), "/bus/serial@0").expect("a tree");
        let changed = Fdt::new(&bytes).expect("a tree");
        for (path, status) in [
            ("/bus/serial@0", "reserved\0"),
            ("/bus/serial@1", "disabled\0"),
        ] {
            let node = changed.find_node(path).expect("a node");
            let property = node.property("status").expect("a property");
            assert_eq!(property.value(), status.as_bytes(), "{path}");
        }
        let error = with_reserved(&tree(), "/bus/serial@9").expect_err("refused");
        assert_eq!(error, "no node /bus/serial@9");
        assert!(with_reserved(b"no tree", "/bus/serial@0").is_err());
    }

    #[test]
    fn reports_what_the_tree_lacks() {
        let error = |path| with_enabled(&tree(), &[path]).expect_err("refused");
        assert_eq!(error("/bus/serial@9"), "no node /bus/serial@9 with a `reg`");
        assert!(error("/bus/serial@3").contains("found status `reserved`"));
        let whole = tree();
        for bytes in 0..whole.len() {
            // No part of a tree makes it panic.
            let _ = with_enabled(&whole[..bytes], &["/bus/serial@2"]);
        }
        assert!(with_enabled(b"no tree", &["/bus/serial@2"]).is_err());
    }
}
