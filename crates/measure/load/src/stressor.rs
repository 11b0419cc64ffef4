// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Defines the options of each load: of `stress-ng`, all of them in version 0.13 and later, so that a
//! load is the same on every supported distribution; and of the meter's own loads.

use std::path::Path;

use rampart_model::{Condition, CpuId, LoadKind};

use crate::LoadError;

/// Memory of a memory stressor, more than most last-level caches hold.
const MEMORY_WANTED: u64 = 256 << 20;
/// Least memory; a stressor with less would be a cache stressor.
const MEMORY_NEEDED: u64 = 32 << 20;
/// Size of the file of a file stressor.
const FILE_SIZE: &str = "64M";

/// Returns the bytes for each of `stressors` memory stressors, so that all together use at most a
/// quarter of the free memory.
pub(crate) fn memory_each(
    condition: Condition,
    available: u64,
    stressors: usize,
) -> Result<u64, LoadError> {
    let stressors = stressors.max(1) as u64;
    // Use whole mebibytes; stress-ng rounds down to pages anyway.
    let each = (available / 4 / stressors).min(MEMORY_WANTED) >> 20 << 20;
    if each < MEMORY_NEEDED {
        return Err(LoadError::NoMemory {
            condition,
            available,
            needed: MEMORY_NEEDED * 4 * stressors,
        });
    }
    Ok(each)
}

/// Returns the options of the stressor of one CPU.
pub(crate) fn options(load: LoadKind, cpu: CpuId, scratch: &Path, memory: u64) -> Vec<String> {
    let stressor: &[&str] = match load {
        LoadKind::Idle => return Vec::new(),
        LoadKind::Cpu => &["--cpu", "1", "--cpu-method", "matrixprod"],
        // Without --vm-keep the memory is mapped, faulted in and unmapped in each turn.
        LoadKind::Memory => &["--vm", "1", "--vm-method", "write64", "--vm-bytes"],
        // By default the stressor migrates from CPU to CPU.
        LoadKind::Cache => &["--cache", "1", "--cache-level", "3", "--cache-no-affinity"],
        // fsync brings each write to the disk, and the disk's interrupts with it.
        LoadKind::Io => &[
            "--hdd",
            "1",
            "--hdd-bytes",
            FILE_SIZE,
            "--hdd-opts",
            "wr-rnd,rd-rnd,fsync",
        ],
    };
    let mut options: Vec<String> = stressor.iter().map(|&option| option.to_owned()).collect();
    if load == LoadKind::Memory {
        options.push(memory.to_string());
    }
    options.extend([
        "--taskset".to_owned(),
        cpu.to_string(),
        // It ends on request, or when its parent ends.
        "--timeout".to_owned(),
        "0".to_owned(),
        "--temp-path".to_owned(),
        scratch.display().to_string(),
    ]);
    options
}

/// Returns the options of the meter's own load on one CPU. `memory` and `cache` access `bytes` of
/// memory. Unlike `stress-ng`, the load `memory` maps and unmaps nothing while it runs.
pub(crate) fn meter_options(
    load: LoadKind,
    cpu: CpuId,
    scratch: &Path,
    bytes: Option<u64>,
) -> Vec<String> {
    let mut options = vec!["load", load.word(), "--cpu"];
    let cpu = cpu.to_string();
    options.push(&cpu);
    let bytes = bytes.map(|bytes| bytes.to_string());
    if let Some(bytes) = &bytes {
        options.extend(["--bytes", bytes]);
    }
    let scratch = scratch.display().to_string();
    if load == LoadKind::Io {
        options.extend(["--directory", &scratch]);
    }
    options.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(load: LoadKind) -> String {
        options(load, CpuId(3), Path::new("/scratch"), 64 << 20).join(" ")
    }

    #[test]
    fn options_are_as_documented() {
        let end = "--taskset 3 --timeout 0 --temp-path /scratch";
        assert_eq!(line(LoadKind::Idle), "");
        assert_eq!(
            line(LoadKind::Cpu),
            format!("--cpu 1 --cpu-method matrixprod {end}")
        );
        assert_eq!(
            line(LoadKind::Memory),
            format!("--vm 1 --vm-method write64 --vm-bytes 67108864 {end}")
        );
        assert_eq!(
            line(LoadKind::Cache),
            format!("--cache 1 --cache-level 3 --cache-no-affinity {end}")
        );
        assert_eq!(
            line(LoadKind::Io),
            format!("--hdd 1 --hdd-bytes 64M --hdd-opts wr-rnd,rd-rnd,fsync {end}")
        );
    }

    #[test]
    fn options_of_the_meter_are_as_documented() {
        let line =
            |load, bytes| meter_options(load, CpuId(3), Path::new("/scratch"), bytes).join(" ");
        assert_eq!(line(LoadKind::Cpu, None), "load cpu --cpu 3");
        let memory = "load memory --cpu 3 --bytes 4096";
        assert_eq!(line(LoadKind::Memory, Some(4096)), memory);
        let io = "load io --cpu 3 --directory /scratch";
        assert_eq!(line(LoadKind::Io, None), io);
    }

    proptest! {
        #[test]
        fn limits_or_refuses_memory(available in 0u64..1 << 45, stressors in 0usize..10_000) {
            match memory_each(Condition::IDLE, available, stressors) {
                Ok(each) => {
                    prop_assert!((MEMORY_NEEDED..=MEMORY_WANTED).contains(&each));
                    prop_assert!(each * stressors as u64 <= available / 4);
                }
                Err(LoadError::NoMemory { needed, .. }) => prop_assert!(available < needed),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}
