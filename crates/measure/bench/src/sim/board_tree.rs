// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device tree of a board with the changes that a boot loader makes. Pure.
//!
//! A device is enabled in the flattened tree itself (Devicetree Specification 0.4, 5.4): dtoolkit refuses the trees
//! of some boards, because of names of properties that the specification does not permit.

use std::ops::Range;

const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const NOTHING: u32 = 4;

const DISABLED: &[u8] = b"disabled\0";
const OKAY: &[u8] = b"okay\0";

/// Enables the devices with these aliases.
///
/// # Errors
/// Returns an error if the bytes are no tree, or an alias or its device does not exist or is not disabled.
pub(super) fn with_enabled(bytes: &[u8], aliases: &[&str]) -> Result<Vec<u8>, String> {
    let mut changed = bytes.to_vec();
    for alias in aliases {
        let path = property(bytes, "/aliases", alias)?;
        let path = path.ok_or_else(|| format!("no alias {alias}"))?;
        let path = String::from_utf8_lossy(&bytes[path]);
        let path = path.trim_end_matches('\0');
        let status =
            property(bytes, path, "status")?.filter(|value| &bytes[value.clone()] == DISABLED);
        let Range { start, .. } = status
            .ok_or_else(|| format!("{path}, which has the alias {alias}, is no disabled device"))?;
        // The shorter value needs two words instead of three; the third becomes a token without meaning. The
        // length precedes the value by two words.
        changed[start - 8..start - 4].copy_from_slice(&(OKAY.len() as u32).to_be_bytes());
        changed[start..start + 8].copy_from_slice(b"okay\0\0\0\0");
        changed[start + 8..start + 12].copy_from_slice(&NOTHING.to_be_bytes());
    }
    Ok(changed)
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
    use dtoolkit::fdt::Fdt;
    use dtoolkit::model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty};
    use dtoolkit::{Node as _, Property as _};

    use super::*;

    fn tree() -> Vec<u8> {
        let mut tree = DeviceTree::new();
        let node = DeviceTreeNode::new_unchecked;
        let text = |name: &str, value: &str| DeviceTreeProperty::new_unchecked(name, value);
        let aliases = tree.root.add_child_mut(node("aliases"));
        aliases.add_property(text("serial2", "/bus/serial@0"));
        aliases.add_property(text("serial3", "/bus/serial@2"));
        aliases.add_property(text("serial4", "/bus/serial@3"));
        let bus = tree.root.add_child_mut(node("bus"));
        for (name, status) in [
            ("serial@0", "okay"),
            ("serial@1", "disabled"),
            ("serial@2", "disabled"),
        ] {
            let serial = bus.add_child_mut(node(name));
            serial.add_property(text("status", status));
            serial.add_property(text("compatible", "board,serial"));
        }
        tree.to_dtb()
    }

    #[test]
    fn enables_the_named_device_alone() {
        let bytes = with_enabled(&tree(), &["serial3"]).expect("a tree");
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
    fn reports_what_the_tree_lacks() {
        let error = |alias| with_enabled(&tree(), &[alias]).expect_err("refused");
        assert_eq!(error("serial9"), "no alias serial9");
        for alias in ["serial2", "serial4"] {
            assert!(
                error(alias).contains("no disabled device"),
                "{}",
                error(alias)
            );
        }
        let whole = tree();
        for bytes in 0..whole.len() {
            // No part of a tree makes it panic.
            let _ = with_enabled(&whole[..bytes], &["serial3"]);
        }
        assert!(with_enabled(b"no tree", &["serial3"]).is_err());
    }
}
