// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration that the kernel was built with, where it can be read.

use std::collections::BTreeMap;
use std::io::Read as _;

use crate::root::MachineRoot;

/// Options and their values; empty where the configuration cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelConfig(BTreeMap<String, String>);

impl KernelConfig {
    /// Reads `/proc/config.gz`, `/boot/config-RELEASE` or `/lib/modules/RELEASE/config`.
    #[must_use]
    pub fn read(root: &MachineRoot) -> Self {
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

    /// All options; none where the configuration is unknown.
    pub(crate) fn into_options(self) -> Option<BTreeMap<String, String>> {
        (!self.0.is_empty()).then_some(self.0)
    }

    /// The value of an option.
    pub(crate) fn value(&self, option: &str) -> Option<&str> {
        self.0.get(option).map(String::as_str)
    }

    /// Whether an option such as `CONFIG_CPUSETS` is on; none where the configuration is unknown.
    #[must_use]
    pub fn is_set(&self, option: &str) -> Option<bool> {
        if self.0.is_empty() {
            return None;
        }
        // An option whose dependencies are not met is not in the file at all.
        Some(matches!(self.value(option), Some("y" | "m")))
    }
}
