// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest's share of the cache and of memory bandwidth (`cachetune` and `memorytune` of libvirt's
//! document `formatdomain`).

use std::io;

use rampart_model::{Cache, CacheKind, Finding, Severity};

use super::gaps::Gaps;
use super::libvirt::Guest;
use super::libvirt_elements::{XmlWriter as Output, empty};

/// Writes the share, or adds a finding with the reason why it cannot be written.
pub(super) fn cache(writer: &mut Output, guest: &Guest<'_>, gaps: &mut Gaps) -> io::Result<()> {
    let Some(share) = &guest.planned.cache else {
        return Ok(());
    };
    let name = &guest.planned.name;
    let mut lost = |what: &str, fix: &str| {
        let location = format!("domain `{name}`, cache");
        let finding = Finding::new(Severity::Warning, location, what);
        gaps.add(Some(name), finding.fix(fix));
    };
    // libvirt names a cache by the kernel's id, which the topology does not contain; the id of a
    // single cache is 0.
    let caches: Vec<&Cache> = guest
        .subject
        .machine
        .topology
        .caches
        .iter()
        .filter(|cache| cache.level == 3 && cache.kind == CacheKind::Unified)
        .collect();
    let [_] = caches.as_slice() else {
        lost(
            "the machine does not have exactly one level-3 cache, and the ids by which libvirt names \
             caches are unknown",
            "write cachetune and memorytune manually, with the numbers that virsh capabilities prints",
        );
        return Ok(());
    };
    if share.ways.is_some() {
        lost(
            "libvirt divides a cache by bytes, not by ways",
            "write the share as `bytes` in the plan",
        );
    }
    let last = guest.resolved.virtual_cpus.len().saturating_sub(1);
    let all = if last == 0 {
        "0".to_owned()
    } else {
        format!("0-{last}")
    };
    if let Some(bytes) = share.bytes {
        // Shares of libvirt never overlap, so each is exclusive.
        writer
            .create_element("cachetune")
            .with_attribute(("vcpus", all.as_str()))
            .write_inner_content(|writer| {
                let size = bytes.0.div_ceil(1024).to_string();
                let attributes = [
                    ("id", "0"),
                    ("level", "3"),
                    ("type", "both"),
                    ("size", size.as_str()),
                    ("unit", "KiB"),
                ];
                empty(writer, "cache", &attributes)
            })?;
    }
    if let Some(percent) = share.bandwidth_percent {
        writer
            .create_element("memorytune")
            .with_attribute(("vcpus", all.as_str()))
            .write_inner_content(|writer| {
                let percent = percent.to_string();
                empty(writer, "node", &[("id", "0"), ("bandwidth", &percent)])
            })?;
    }
    Ok(())
}
