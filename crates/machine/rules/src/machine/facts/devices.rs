// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facts about devices: runtime power management, random number generators.

use std::collections::BTreeMap;

use rampart_model::CheckLocation;

use super::{Judgement, deviations};
use crate::{Reading, Readings};

/// Random number generators that firmware implements: reading one leaves the kernel for the secure world of Arm, for
/// System Management Mode, or for a TPM (drivers/char/hw_random, drivers/char/tpm).
const IN_FIRMWARE: [&str; 3] = ["smccc_trng", "optee-rng", "tpm-rng"];

const CURRENT: &str = "/sys/class/misc/hw_random/rng_current";
const AVAILABLE: &str = "/sys/class/misc/hw_random/rng_available";
/// How much the kernel trusts the generator; with 0 its thread ends (from 6.2 on).
const QUALITY: &str = "/sys/class/misc/hw_random/rng_quality";

fn is_in_firmware(generator: &str) -> bool {
    IN_FIRMWARE.iter().any(|begin| generator.starts_with(begin))
}

/// Judges the random number generator that a thread of the kernel reads in the background. The fix writes another one,
/// or `none` where the kernel offers it, or no trust in this one.
pub(super) fn random_generator(readings: &Readings) -> Judgement {
    let Some(current) = readings.value(CURRENT) else {
        return Judgement::not_applicable("the kernel has no hardware random number generator");
    };
    if !is_in_firmware(current) {
        return Judgement::is(current, true);
    }
    let quality = readings.value(QUALITY);
    if quality == Some("0") {
        return Judgement::is(format!("{current}, not read in the background"), true);
    }
    let available = readings.value(AVAILABLE).unwrap_or_default();
    let other = available
        .split_whitespace()
        .filter(|name| !is_in_firmware(name))
        // One in hardware before none at all.
        .min_by_key(|name| *name == "none");
    let location = |location: String| CheckLocation {
        location,
        found: current.to_owned(),
        expected: "a generator in hardware, or none".to_owned(),
        satisfied: Some(false),
    };
    let other = other.map(|other| format!("{CURRENT} ({other})"));
    let quality = quality.map(|_| QUALITY.to_owned());
    Judgement::Is {
        found: current.to_owned(),
        satisfied: Some(false),
        locations: other.into_iter().chain(quality).map(location).collect(),
    }
}

/// Returns the kind of a PCI device from its class (PCI Code and ID Assignment Specification); `None` for kinds whose
/// sleep does not delay others.
fn pci_kind(class: &str) -> Option<&'static str> {
    let class = class.trim_start_matches("0x");
    Some(match (class.get(..2)?, class.get(..4)?) {
        ("01", _) => "storage",
        ("02", _) => "network",
        ("03", _) => "display",
        (_, "0c03") => "USB controller",
        _ => return None,
    })
}

/// Judges devices that the kernel suspends while they are idle
/// (Documentation/power/runtime_pm.rst; Documentation/ABI/testing/sysfs-devices-power). Hubs of USB are left out.
pub(super) fn power(readings: &Readings) -> Judgement {
    let values = |template: &str| -> BTreeMap<&str, &str> {
        readings
            .of(template)
            .iter()
            .filter_map(|location| match &location.reading {
                Reading::Value(text) => Some((location.keys.first()?.as_str(), text.as_str())),
                Reading::Refused(_) => None,
            })
            .collect()
    };
    let mut found = Vec::new();
    let mut seen = false;
    for (bus, class) in [("pci", "class"), ("usb", "bDeviceClass")] {
        let directory = format!("/sys/bus/{bus}/devices/{{device}}");
        let classes = values(&format!("{directory}/{class}"));
        let states = values(&format!("{directory}/power/runtime_status"));
        for (device, control) in values(&format!("{directory}/power/control")) {
            let class = classes.get(device).copied().unwrap_or_default();
            let kind = match bus {
                "pci" => pci_kind(class),
                // Interfaces have no class of a device, hubs have 09 (USB 2.0, 11.23.1).
                _ => (!class.is_empty() && class != "09").then_some("USB device"),
            };
            let Some(kind) = kind else { continue };
            seen = true;
            if control == "auto" {
                let state = states.get(device).copied().unwrap_or("state unknown");
                found.push((
                    format!("/sys/bus/{bus}/devices/{device}/power/control"),
                    format!("{device} ({kind}, {state})"),
                ));
            }
        }
    }
    if !seen {
        return Judgement::not_applicable("no device can be suspended");
    }
    deviations(found.into_iter(), "no device is suspended", "on")
}
