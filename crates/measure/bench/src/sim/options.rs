// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of a simulated machine, and its kernel command line.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use rampart_model::{CpuId, CpuSet};

use super::architecture::{Architecture, Devices, Firmware};
use super::error::SimError;
use super::init::Init;

/// Most CPUs. More are useless with software emulation; the machine type ends at 255.
pub(super) const MOST_CPUS: u32 = 64;

/// Least memory for the kernel, the programs of an evaluation and a guest, in MiB.
const LEAST_MEBIBYTES: u64 = 512;

/// Default number of CPUs: one for ordinary work, and one for each kind of measured domain.
pub const USUAL_CPUS: u32 = 5;

/// Default memory in MiB: enough for an evaluation with guests.
pub const USUAL_MEBIBYTES: u64 = 3072;

/// Default time limit of the boot.
pub const USUAL_BOOT_TIMEOUT: Duration = Duration::from_secs(180);

/// A port of this machine that is forwarded to a port of the simulated machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    /// Port on this machine's loopback address.
    pub here: u16,
    /// Port inside.
    pub there: u16,
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is not a pair of ports; fix: write HERE:THERE, for example 2222:22")
        };
        let (here, there) = text.split_once(':').ok_or_else(wrong)?;
        Ok(Self {
            here: here.parse().map_err(|_| wrong())?,
            there: there.parse().map_err(|_| wrong())?,
        })
    }
}

/// A file of this machine that is copied into the simulated one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedFile {
    /// Path on this machine.
    pub here: PathBuf,
    /// Absolute path inside. It replaces a file of the image.
    pub there: String,
}

impl FromStr for CopiedFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pair = text.rsplit_once(':');
        let (here, there) = pair
            .filter(|(here, there)| !here.is_empty() && is_file_name(there))
            .ok_or_else(|| {
                format!(
                    "`{text}` is not a pair of files; fix: write HERE:THERE with the absolute path \
                     inside, for example image.bin:/usr/lib/firmware/image.bin"
                )
            })?;
        let directory = there.split('/').nth(1).unwrap_or_default();
        if MOUNTED.contains(&directory) {
            return Err(format!(
                "`{there}`: the machine mounts another file system on /{directory}, which hides the \
                 file; fix: name another directory, for example {here}:/opt/{}",
                there.rsplit('/').next().unwrap_or_default()
            ));
        }
        Ok(Self {
            here: PathBuf::from(here),
            there: there.to_owned(),
        })
    }
}

/// Directories on which the agent mounts a file system of its own when the machine has started.
const MOUNTED: [&str; 5] = ["dev", "proc", "run", "sys", "tmp"];

/// Returns whether a text is the absolute path of a file without `..`.
fn is_file_name(text: &str) -> bool {
    text.strip_prefix('/')
        .is_some_and(|rest| rest.split('/').all(|part| !["", ".", ".."].contains(&part)))
}

/// The options of a simulated machine.
#[derive(Debug, Clone)]
pub struct SimOptions {
    /// Its architecture.
    pub architecture: &'static Architecture,
    /// Its number of CPUs.
    pub cpus: u32,
    /// CPUs that its kernel isolates (`isolcpus`, `nohz_full`, `rcu_nocbs`, and `irqaffinity` on the
    /// rest); may be empty.
    pub real_time: CpuSet,
    /// Whether its processors have two security states, as on boards with firmware at EL3.
    pub two_security_states: bool,
    /// Whether its interrupt controller is a GICv2.
    pub gicv2: bool,
    /// Whether its CPUs run in turn, and each instruction is one tick of their counter.
    pub count_instructions: bool,
    /// Its memory in MiB.
    pub mebibytes: u64,
    /// Further words for the kernel command line.
    pub append: Option<String>,
    /// The file of a disk that outlives the machine; created if it does not exist. It holds
    /// `/var/lib/rampart` and `/boot/extlinux`, and with them the kernel command line: first that of
    /// these options, later what the machine wrote.
    pub disk: Option<PathBuf>,
    /// Its process 1.
    pub init: Init,
    /// Forwarded ports. Without any, it has no network.
    pub forwards: Vec<Forward>,
    /// Files that are copied into it before its programs start and its modules are loaded: programs,
    /// firmware. They keep their permissions.
    pub files: Vec<CopiedFile>,
    /// `rampart-meter`, statically linked for its architecture: its first process.
    pub meter: PathBuf,
    /// The directory that holds Rampart's own modules in one directory per kernel release.
    pub own_modules: Option<PathBuf>,
    /// The directory with firmware; `None` if none was built.
    pub firmware: Option<PathBuf>,
    /// Whether it may continue from a saved machine, and be saved, instead of only booting.
    pub snapshot: bool,
    /// The time limit of the boot.
    pub boot_timeout: Duration,
    /// How long it continues after a panic of its kernel, to see which domains survive.
    pub after_panic: Duration,
}

impl SimOptions {
    /// Creates options with [`Architecture::usual_cpus`], of which all but the first are isolated, and
    /// [`USUAL_MEBIBYTES`].
    #[must_use]
    pub fn new(
        architecture: &'static Architecture,
        meter: PathBuf,
        own_modules: Option<PathBuf>,
    ) -> Self {
        Self {
            architecture,
            cpus: architecture.usual_cpus(),
            real_time: (1..architecture.usual_cpus()).map(CpuId).collect(),
            two_security_states: false,
            gicv2: false,
            count_instructions: false,
            mebibytes: USUAL_MEBIBYTES,
            append: None,
            disk: None,
            init: Init::default(),
            forwards: Vec::new(),
            files: Vec::new(),
            own_modules,
            firmware: None,
            meter,
            snapshot: true,
            boot_timeout: USUAL_BOOT_TIMEOUT,
            after_panic: Duration::from_secs(1),
        }
    }

    /// Sets the number of CPUs and isolates all but the first.
    #[must_use]
    pub fn with_cpus(self, cpus: u32) -> Self {
        Self {
            cpus,
            real_time: (1..cpus).map(CpuId).collect(),
            ..self
        }
    }

    /// Returns whether Rampart's modules are installed, but none for this kernel: the image is older
    /// or newer than they are.
    #[must_use]
    pub fn lacks_modules_for(&self, kernel_release: &str) -> bool {
        self.own_modules
            .as_ref()
            .is_some_and(|all| !all.join(kernel_release).is_dir())
    }

    /// Returns whether a machine with these options is saved and restored. One with a disk is not, because the disk
    /// changes without it. Counts of instructions are those of a boot, and a board's memory is a file that this process
    /// shares.
    pub(super) fn can_be_saved(&self) -> bool {
        self.snapshot
            && self.disk.is_none()
            && !self.count_instructions
            && matches!(self.architecture.devices, Devices::Virtio(_))
    }

    /// Returns the path of the machine's firmware.
    ///
    /// # Errors
    /// Returns an error if it was not built.
    pub(super) fn firmware_file(&self, firmware: Firmware) -> Result<PathBuf, SimError> {
        let file = firmware.file;
        let path = self.firmware.as_ref().map(|all| all.join(file));
        path.filter(|path| path.is_file()).ok_or_else(|| {
            SimError::Options(format!(
                "{}: its firmware, firmware/{file}, is not among the files of rampart; fix: run scripts/firmware in \
                 the source tree, or use --architecture {}",
                self.architecture,
                self.architecture.processor()
            ))
        })
    }

    /// Returns an error if the options contradict each other.
    pub(super) fn check(&self) -> Result<(), SimError> {
        let most = self.architecture.most_cpus;
        if !(1..=most).contains(&self.cpus) {
            return Err(SimError::Options(format!(
                "--cpus is {}, expected 1 to {most}",
                self.cpus
            )));
        }
        if !matches!(self.architecture.devices, Devices::Virtio(_)) {
            let unavailable = [
                ("--disk", self.disk.is_some()),
                ("--forward", !self.forwards.is_empty()),
                ("--init", self.init != Init::Agent),
            ];
            if let Some((option, _)) = unavailable.into_iter().find(|(_, is_set)| *is_set) {
                return Err(SimError::Options(format!(
                    "{option}: {} has no virtio devices; fix: use --architecture {}",
                    self.architecture,
                    self.architecture.processor()
                )));
            }
        }
        let least = match self.architecture.devices {
            Devices::Virtio(_) => LEAST_MEBIBYTES,
            Devices::Board { memory, .. } => memory.least_bytes().div_ceil(1 << 20),
        };
        if self.mebibytes < least {
            return Err(SimError::Options(format!(
                "--memory is {} MiB, expected at least {least}",
                self.mebibytes
            )));
        }
        if self.two_security_states && self.architecture.two_security_states.is_none() {
            return Err(SimError::Options(format!(
                "--two-security-states: {} has only one security state; fix: add --architecture \
                 aarch64",
                self.architecture
            )));
        }
        if self.gicv2 && self.architecture.gicv2.is_none() {
            return Err(SimError::Options(format!(
                "--gicv2: {} has no GIC; fix: add --architecture aarch64",
                self.architecture
            )));
        }
        if self.count_instructions && self.architecture.processor != "aarch64" {
            return Err(SimError::Options(format!(
                "--count-instructions: the counter of {} has another frequency; fix: add --architecture aarch64",
                self.architecture
            )));
        }
        if let Some(cpu) = self.real_time.iter().find(|cpu| cpu.0 >= self.cpus) {
            return Err(SimError::Options(format!(
                "--real-time-cpus contains CPU {cpu}, but the machine has CPUs 0-{}; fix: raise \
                 --cpus to {}",
                self.cpus - 1,
                cpu.0 + 1
            )));
        }
        if self.real_time.contains(CpuId(0)) {
            return Err(SimError::Options(
                "--real-time-cpus contains CPU 0, which boots the machine and runs its ordinary \
                 work; fix: leave CPU 0 out"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Returns the kernel command line of these options.
    pub(super) fn kernel_command_line(&self) -> String {
        self.with_append(&self.machine_line())
    }

    /// Returns a kernel command line with the words of `--append`.
    pub(super) fn with_append(&self, line: &str) -> String {
        match &self.append {
            Some(words) => format!("{line} {words}"),
            None => line.to_owned(),
        }
    }

    /// Returns the kernel command line without the words of `--append`.
    ///
    /// `panic=-1`: an early panic, before it can be reported otherwise, resets the machine at once,
    /// and QEMU reports the reset; the first process sets it to 0. The isolation parameters are from
    /// Documentation/admin-guide/kernel-parameters.txt. `nohz_full` equals `isolcpus`, because either
    /// without the other leaves work on the CPU.
    pub(super) fn machine_line(&self) -> String {
        let architecture = self.architecture;
        let mut words: Vec<String> = vec![
            format!("console={}", architecture.console),
            "quiet".to_owned(),
            "panic=-1".to_owned(),
        ];
        words.extend(
            architecture
                .kernel_command_line
                .iter()
                .map(|word| (*word).to_owned()),
        );
        if !self.real_time.is_empty() {
            let real_time = &self.real_time;
            let rest: CpuSet = (0..self.cpus)
                .map(CpuId)
                .filter(|cpu| !real_time.contains(*cpu))
                .collect();
            words.push(format!("isolcpus=managed_irq,domain,{real_time}"));
            words.push(format!("nohz_full={real_time}"));
            words.push(format!("rcu_nocbs={real_time}"));
            words.push(format!("irqaffinity={rest}"));
        }
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options_of(architecture: &str) -> SimOptions {
        let architecture = Architecture::named(architecture).expect("known");
        SimOptions::new(architecture, PathBuf::from("/nowhere/rampart-meter"), None)
    }

    fn options() -> SimOptions {
        options_of("x86_64")
    }

    #[test]
    fn kernel_command_line_isolates_the_real_time_cpus() {
        let mut options = options();
        options.append = Some("hugepages=64".to_owned());
        insta::assert_snapshot!(
            options.kernel_command_line(),
            @"console=ttyS0 quiet panic=-1 no_timer_check i8042.noaux i8042.nopnp isolcpus=managed_irq,domain,1-4 nohz_full=1-4 rcu_nocbs=1-4 irqaffinity=0 hugepages=64"
        );
        options.real_time = CpuSet::default();
        assert!(!options.kernel_command_line().contains("isolcpus"));
        insta::assert_snapshot!(
            options_of("aarch64").with_cpus(4).kernel_command_line(),
            @"console=ttyAMA0 quiet panic=-1 nokaslr isolcpus=managed_irq,domain,1-3 nohz_full=1-3 rcu_nocbs=1-3 irqaffinity=0"
        );
    }

    #[test]
    fn refuses_contradicting_options() {
        assert!(options().check().is_ok());
        assert!(options().with_cpus(1).check().is_ok());
        for wrong in [
            options().with_cpus(0),
            options().with_cpus(65),
            SimOptions {
                two_security_states: true,
                ..options()
            },
            SimOptions {
                gicv2: true,
                ..options()
            },
            SimOptions {
                count_instructions: true,
                ..options()
            },
            SimOptions {
                mebibytes: 64,
                ..options()
            },
            SimOptions {
                cpus: 2,
                ..options()
            },
            SimOptions {
                real_time: (0..2).map(CpuId).collect(),
                ..options()
            },
        ] {
            let error = wrong.check().expect_err("refused");
            assert!(matches!(error, SimError::Options(_)), "{error:?}");
        }
    }

    #[test]
    fn finds_the_firmware_or_reports_how_it_is_built() {
        let location = tempfile::tempdir().expect("a directory");
        let mut options = options_of("aarch64-firmware");
        let firmware = options.architecture.firmware.expect("firmware");
        for directory in [None, Some(location.path().to_owned())] {
            options.firmware = directory;
            let error = options.firmware_file(firmware).expect_err("missing");
            assert!(error.to_string().contains("scripts/firmware"), "{error}");
        }
        let path = location.path().join("virt.bin");
        std::fs::write(&path, "").expect("written");
        assert_eq!(options.firmware_file(firmware).expect("there"), path);
    }

    #[test]
    fn parses_a_pair_of_ports() {
        assert_eq!(
            "2222:22".parse(),
            Ok(Forward {
                here: 2222,
                there: 22
            })
        );
        for wrong in ["2222", "a:22", "70000:22", ""] {
            assert!(wrong.parse::<Forward>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn parses_a_pair_of_files() {
        let file: CopiedFile = "a:b/c.bin:/usr/lib/firmware/c.bin".parse().expect("a pair");
        assert_eq!(file.here, PathBuf::from("a:b/c.bin"));
        assert_eq!(file.there, "/usr/lib/firmware/c.bin");
        for wrong in [
            "", "a", "a:", ":/a", "a:b", "a:/", "a:/b/", "a:/../b", "a:/b//c", "a:/tmp/b",
        ] {
            assert!(wrong.parse::<CopiedFile>().is_err(), "{wrong}");
        }
    }
}
