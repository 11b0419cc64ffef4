// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Huge pages of the running kernel, and full disks, as root. Without root these tests print a note
//! and pass.

use std::path::Path;
use std::sync::Arc;

use rampart_model::StepKind;

use super::apply_on;
use super::tests::{application, apply, changes, file, machine, resolved, restorable, step};
use crate::fake::{FakeKernel, Layout, directory};
use crate::kernel::{Kernel as _, RunningKernel};
use crate::release::release_locked;
use crate::shield::live_tests::{Disk, machine_lock};
use crate::state_directory::is_root;
use crate::{StateDirectory, active_plan};

const PAGES: &str = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages";

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test reports why")]
fn reserves_and_releases_huge_pages() {
    let number = || {
        let text = RunningKernel.read(Path::new(PAGES)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let Some(before) = number().filter(|_| is_root()) else {
        eprintln!("skipped: needs root, and huge pages of 2 MiB on memory node 0");
        return;
    };
    let directory = directory();
    let state = StateDirectory::at(directory.path());
    let _lock = machine_lock(&state);
    let wanted = (before + 2).to_string();
    let mut list = changes();
    list.steps = vec![step(StepKind::Knob, "huge-pages", file(PAGES, &wanted))];
    let resolved = resolved();
    let application = application(&resolved, &list);
    match apply_on(Arc::new(RunningKernel), &state, &application, &mut |_| ()) {
        Ok(_) => assert_eq!(number(), Some(before + 2)),
        // Memory may be fragmented: then the error names the file, and nothing is applied.
        Err(refusal) => assert!(refusal.to_string().contains(PAGES), "{refusal}"),
    }
    let report = release_locked(&RunningKernel, &state).expect("release");
    assert!(report.left.is_empty(), "{:?}", report.left);
    assert_eq!(number(), Some(before));
    assert_eq!(active_plan(&state).expect("read"), None);
}

/// The disk is full at the first byte of the journal, in the middle of a line, or just before the end.
#[test]
#[expect(clippy::print_stderr, reason = "a skipped test reports why")]
fn a_full_disk_leaves_the_machine_unchanged() {
    let before = machine(Layout::V2);
    let (mut refused, mut fitted) = (0, 0);
    for pages in 1..24 {
        let directory = directory();
        let Some(_disk) = Disk::mount(directory.path(), pages * 4096) else {
            eprintln!("skipped: needs root, to mount a disk in memory");
            return;
        };
        let state = StateDirectory::at(directory.path());
        let kernel = Arc::new(FakeKernel::new(before.clone()));
        match apply(&kernel, &state, &changes()) {
            Ok(_) => fitted += 1,
            Err(refusal) => {
                refused += 1;
                let refusal = refusal.to_string();
                assert!(refusal.contains("space"), "{pages} pages: {refusal}");
                assert_eq!(
                    restorable(&kernel.machine()),
                    restorable(&before),
                    "{pages}"
                );
            }
        }
        let report = release_locked(&*kernel, &state).expect("release");
        assert!(report.left.is_empty(), "{pages}: {:?}", report.left);
        assert_eq!(
            restorable(&kernel.machine()),
            restorable(&before),
            "{pages}"
        );
        assert_eq!(active_plan(&state).expect("read"), None);
    }
    assert!(
        refused > 1 && fitted > 1,
        "{refused} refused, {fitted} fitted"
    );
}
