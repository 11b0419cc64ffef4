// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PCI functions in a Linux cell with the drivers of the distribution, beside a Linux root whose own devices are behind
//! the SMMU of the hypervisor. The driver of this test is `crates/domains/cells/examples/pci_agent.rs`.

use std::time::Duration;

use rampart_tests::hypervisor::{
    BEGIN, END, assert_nothing_failed, kernel_errors, run_behind_smmu,
};

/// Takes the root's driver from the function of virtio. Names the modules of the drivers, with those that they need, in the
/// order in which they are loaded.
const RUN: &str = r#"
echo 0000:01:00.0 >/sys/bus/pci/drivers/virtio-pci/unbind
modules=$(for driver in e1000e virtio_pci virtio_net; do
    modprobe --show-depends $driver | awk '$1 == "insmod" { print $2 }'
done | awk '!seen[$0]++')
./pci_agent run /boot/vmlinuz-$(uname -r) rampart-meter network_agent $modules || echo 'FAILED  pci_agent'
"#;

#[test]
fn a_linux_cell_has_pci_functions_beside_a_root_behind_the_smmu() {
    let text = run_behind_smmu(&[BEGIN, RUN, END].concat(), Duration::from_secs(1800));
    assert_nothing_failed(&text);
    for wanted in [
        "ok  enabled: the root's disk",
        "ok  described: []",
        "ok  e1000e drives the function",
        "ok  intel: ping",
        "ok  intel: no exit for an interrupt or an access",
        "ok  the root reads no function of a cell: 0000:00:04.0",
        "ok  intel: a second start is refused",
        "ok  intel, after the attacks: ping",
        "ok  intel: neither side moved it",
        "ok  refused: 0000:01:00.0",
        "ok  virtio_net drives the function",
        "ok  the root reads no function of a cell: 0000:00:03.0",
        "ok  the root reads no function of a cell: 0000:01:00.0",
        "ok  virtio: ping",
        "ok  virtio, after the attacks: ping",
        "ok  again: ping",
        "ok  disabled: the root's disk",
        "ok  virtio: no event of the SMMU",
        "ok  again: refused DMA is listed",
        // In the kernel's log, and by the command.
        "the SMMU refused DMA of stream 0x20, cell 1: read of address 0x7000000",
        "by a device of cell again: stream 0x20, read of address 0x7000000",
        "finished",
    ] {
        assert!(text.contains(wanted), "no {wanted:?}: {text}");
    }
    let errors = kernel_errors(&text, &["log ", "cell "]);
    assert!(errors.is_empty(), "{errors:#?}\n{text}");
}
