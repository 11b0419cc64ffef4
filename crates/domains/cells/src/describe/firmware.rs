// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls of the firmware that the nodes of a device tree name (Arm DEN 0028, section 6, has their numbers).

use super::Sources;
use super::nodes::Nodes;

/// Calls of the silicon vendor (owner 2), fast, with 32 and 64 bits.
const OF_VENDOR: &[(u32, u32)] = &[(0x8200_0000, 0x8200_ffff), (0xc200_0000, 0xc200_ffff)];
/// Calls of trusted operating systems (owners 50 to 63), fast and yielding, with 32 and 64 bits.
const OF_TRUSTED_SYSTEM: &[(u32, u32)] = &[
    (0x3200_0000, 0x3fff_ffff),
    (0x7200_0000, 0x7fff_ffff),
    (0xb200_0000, 0xbfff_ffff),
    (0xf200_0000, 0xffff_ffff),
];
/// Nodes by `compatible` (the kernel's bindings in firmware/ and arm/firmware/).
const NODES: [(&str, &[(u32, u32)]); 7] = [
    ("linaro,optee-tz", OF_TRUSTED_SYSTEM),
    ("xlnx,zynqmp-firmware", OF_VENDOR),
    ("xlnx,versal-firmware", OF_VENDOR),
    ("qcom,scm", OF_VENDOR),
    ("amlogic,meson-gxbb-sm", OF_VENDOR),
    ("intel,stratix10-svc", OF_VENDOR),
    ("intel,agilex-svc", OF_VENDOR),
];
/// Nodes whose only call is in `arm,smc-id`.
const SCMI: [&str; 3] = ["arm,scmi-smc", "arm,scmi-smc-param", "qcom,scmi-smc"];

/// Returns the ranges of functions, in ascending order.
pub(crate) fn calls(sources: &Sources) -> Vec<(u32, u32)> {
    let nodes: &Nodes = &sources.nodes;
    let mut found = Vec::new();
    for node in (1..nodes.len()).filter(|node| nodes.is_enabled(*node)) {
        // Without the property the binding has only SMC.
        if nodes
            .string(node, "method")
            .is_some_and(|method| method != "smc")
        {
            continue;
        }
        if nodes.is_compatible(node, &SCMI) {
            found.extend(nodes.word(node, "arm,smc-id").map(|call| (call, call)));
        }
        for (compatible, calls) in NODES {
            if nodes.is_compatible(node, &[compatible]) {
                found.extend(calls);
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}
