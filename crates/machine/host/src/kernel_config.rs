// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration that the kernel was built with.

use std::collections::BTreeMap;
use std::io::Read as _;

use crate::root::MachineRoot;

/// Options and their values; empty if the configuration cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KernelConfig(BTreeMap<String, String>);

impl KernelConfig {
    /// Reads `/proc/config.gz`, `/boot/config-RELEASE` or `/lib/modules/RELEASE/config`.
    pub(crate) fn read(root: &MachineRoot) -> Self {
        let release = root.line("proc/sys/kernel/osrelease").unwrap_or_default();
        let packed = root.bytes("proc/config.gz").and_then(|bytes| {
            let mut text = String::new();
            flate2::read::GzDecoder::new(bytes.as_slice())
                .read_to_string(&mut text)
                .ok()?;
            Some(text)
        });
        packed
            .or_else(|| root.text(&format!("boot/config-{release}")))
            .or_else(|| root.text(&format!("lib/modules/{release}/config")))
            .map(|text| Self::parse(&text))
            .unwrap_or_default()
    }

    fn parse(text: &str) -> Self {
        let options = text.lines().filter_map(|line| {
            if let Some(off) = line.strip_prefix("# ") {
                let name = off.strip_suffix(" is not set")?;
                return Some((name.to_owned(), "n".to_owned()));
            }
            let (name, value) = line.split_once('=')?;
            Some((name.to_owned(), value.trim_matches('"').to_owned()))
        });
        Self(options.collect())
    }

    /// Returns all options, or `None` if the configuration is unknown.
    pub(crate) fn into_options(self) -> Option<BTreeMap<String, String>> {
        (!self.0.is_empty()).then_some(self.0)
    }

    /// Returns the value of an option.
    pub(crate) fn value(&self, option: &str) -> Option<&str> {
        self.0.get(option).map(String::as_str)
    }

    /// Returns whether an option such as `CONFIG_CPUSETS` is set, or `None` if the configuration is
    /// unknown.
    pub(crate) fn is_set(&self, option: &str) -> Option<bool> {
        if self.0.is_empty() {
            return None;
        }
        // The file does not contain options whose dependencies are not met.
        Some(matches!(self.value(option), Some("y" | "m")))
    }
}
