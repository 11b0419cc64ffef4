// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks by the kernel module: `/dev/blocksys`, as defined in `kernel/blocksys/blocksys.h`.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use rampart_model::{
    BlockSettings, BlockSpan, BlockSpread, CpuId, CpuSet, Finding, Nanos, Refusal, RefusalKind,
    Severity,
};

use crate::linux::{checked, diagnosis};

const DEVICE: &str = "/dev/blocksys";

/// `BLOCKSYS_VERSION`.
const VERSION: u32 = 1;
/// `BLOCKSYS_RANDOM`.
const RANDOM: u32 = 1;
/// `BLOCKSYS_CUT`.
const CUT: u32 = 1;

/// `struct blocksys_plan`.
#[repr(C)]
struct Plan {
    length: u64,
    pause: u64,
    seed: u64,
    cpus: u64,
    cpus_bytes: u32,
    count: u32,
    flags: u32,
    reserved: u32,
}

/// `struct blocksys_state`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct State {
    version: u32,
    running: u32,
    longest: u64,
    shortest_pause: u64,
    most_blocks: u32,
    share: u32,
    made: u64,
    lost: u64,
    skipped: u64,
}

/// `struct blocksys_record`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Record {
    cpu: u32,
    sequence: u32,
    flags: u32,
    reserved: u32,
    planned: u64,
    start: u64,
    end: u64,
    start_counter: u64,
    end_counter: u64,
}

/// Returns the number of an ioctl request: `_IO`, `_IOR` (2) and `_IOW` (1) of asm-generic/ioctl.h,
/// which x86 and Arm use.
const fn request(direction: u64, number: u64, size: usize) -> u64 {
    direction << 30 | (size as u64) << 16 | 0xb5 << 8 | number
}
const QUERY: u64 = request(2, 0, size_of::<State>());
const START: u64 = request(1, 1, size_of::<Plan>());
const STOP: u64 = request(0, 2, 0);

/// The device, opened exclusively.
#[derive(Debug)]
pub(super) struct Module {
    device: OwnedFd,
    state: State,
    cut: u64,
    latest: Nanos,
}

/// The reason why the module cannot be used.
#[derive(Debug)]
pub(super) enum Missing {
    /// The module is not loaded or not accessible; a weaker kind can replace it.
    Unavailable(Refusal),
    /// The module works but refuses the request; a weaker kind would hide that.
    Refused(Refusal),
}

fn refusal(kind: RefusalKind, finding: Finding) -> Refusal {
    Refusal { kind, finding }
}

fn problem(what: &str) -> Finding {
    Finding::new(Severity::Error, DEVICE, what)
}

impl Module {
    /// Opens the device and reads its limits.
    pub(super) fn open() -> Result<Self, Missing> {
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC;
        // SAFETY: the path ends with a zero byte.
        let opened =
            checked(unsafe { libc::open(c"/dev/blocksys".as_ptr(), flags) as libc::c_long });
        let device = match opened {
            // SAFETY: just opened and not owned elsewhere.
            Ok(descriptor) => unsafe { OwnedFd::from_raw_fd(descriptor as i32) },
            Err(cause) => return Err(not_opened(&cause)),
        };
        let mut module = Self {
            device,
            state: State::default(),
            cut: 0,
            latest: Nanos::ZERO,
        };
        module.query().map_err(|cause| {
            Missing::Refused(diagnosis::system(
                DEVICE,
                "the module does not answer",
                &cause,
            ))
        })?;
        if module.state.version != VERSION {
            return Err(Missing::Refused(refusal(
                RefusalKind::System,
                problem("the loaded module is of another version")
                    .values(module.state.version.to_string(), VERSION.to_string())
                    .fix("load the module of this version of Rampart"),
            )));
        }
        Ok(module)
    }

    /// Returns the length of the longest block that the module makes.
    pub(super) const fn longest(&self) -> Nanos {
        Nanos(self.state.longest)
    }

    /// Returns the largest share of time that blocks may take, in percent.
    pub(super) const fn share(&self) -> u32 {
        self.state.share
    }

    fn query(&mut self) -> io::Result<()> {
        let mut state = State::default();
        // SAFETY: the structure is valid for writing and has the size that the request names.
        unsafe { self.ask(QUERY, (&raw mut state).cast()) }?;
        self.state = state;
        Ok(())
    }

    /// # Safety
    /// `argument` has to be valid for what `request` reads or writes.
    unsafe fn ask(&self, request: u64, argument: *mut libc::c_void) -> io::Result<()> {
        // The raw system call, because the C libraries disagree on the type of a request. SAFETY:
        // the descriptor is open; the caller guarantees the argument.
        checked(unsafe {
            libc::syscall(libc::SYS_ioctl, self.device.as_raw_fd(), request, argument)
        })
        .map(drop)
    }

    /// Starts the blocks.
    pub(super) fn go(&mut self, settings: &BlockSettings) -> Result<(), Refusal> {
        let mask = mask(&settings.cpus);
        let mut asked = Plan {
            length: settings.length.0,
            pause: settings.pause.0,
            seed: settings.seed,
            cpus: mask.as_ptr() as u64,
            cpus_bytes: size_of_val(mask.as_slice()) as u32,
            count: settings.count,
            flags: match settings.spread {
                BlockSpread::Even => 0,
                BlockSpread::Random => RANDOM,
            },
            reserved: 0,
        };
        // SAFETY: the structure is valid for reading, and so is the mask whose address it contains.
        let started = unsafe { self.ask(START, (&raw mut asked).cast()) };
        started.map_err(|cause| match cause.raw_os_error() {
            Some(libc::ENODEV) => refusal(
                RefusalKind::CpuOffline,
                Finding::new(
                    Severity::Error,
                    format!("CPUs {}", settings.cpus),
                    "a CPU to stop is offline",
                ),
            ),
            Some(libc::EPERM) => no_privilege(),
            _ => diagnosis::system(DEVICE, "the module refuses the settings", &cause),
        })
    }

    /// Stops making blocks; blocks made so far can still be taken.
    pub(super) fn stop(&self) {
        // SAFETY: the request takes no argument. It cannot fail.
        let _ = unsafe { self.ask(STOP, std::ptr::null_mut()) };
    }

    /// Returns the blocks since the last call, and whether they were the last.
    pub(super) fn take(&mut self) -> Result<(Vec<BlockSpan>, bool), Refusal> {
        let mut spans = Vec::new();
        let mut records = [Record::default(); 64];
        loop {
            // SAFETY: the records are valid for writing of their whole length, and any bytes are
            // valid numbers.
            let read = checked(unsafe {
                libc::read(
                    self.device.as_raw_fd(),
                    records.as_mut_ptr().cast(),
                    size_of_val(&records),
                ) as libc::c_long
            });
            let bytes = match read {
                Ok(0) => return Ok((spans, true)),
                Ok(bytes) => bytes as usize,
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {
                    return Ok((spans, false));
                }
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => continue,
                Err(cause) => {
                    return Err(diagnosis::system(DEVICE, "cannot read", &cause));
                }
            };
            for record in records.iter().take(bytes / size_of::<Record>()) {
                self.cut += u64::from(record.flags & CUT);
                let late = Nanos(record.start.saturating_sub(record.planned));
                self.latest = self.latest.max(late);
                spans.push(BlockSpan {
                    cpu: CpuId(record.cpu),
                    sequence: record.sequence,
                    start: Nanos(record.start),
                    end: Nanos(record.end),
                });
            }
        }
    }

    /// Returns the largest lateness of a block.
    pub(super) const fn latest(&self) -> Nanos {
        self.latest
    }

    /// Returns the findings at the end; `stopped` is whether an early end was requested.
    pub(super) fn findings(&mut self, stopped: bool) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut warn = |count: u64, what: &str| {
            if count > 0 {
                findings.push(
                    Finding::new(Severity::Warning, DEVICE, what).values(count.to_string(), "0"),
                );
            }
        };
        warn(self.cut, "blocks that the request to stop cut short");
        if self.query().is_ok() {
            warn(
                self.state.lost,
                "blocks that are missing from the report because they were not read in time",
            );
            let skipped = if stopped { 0 } else { self.state.skipped };
            warn(
                skipped,
                "blocks that were not made because their CPU went offline",
            );
        }
        findings
    }
}

fn not_opened(cause: &io::Error) -> Missing {
    match cause.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => Missing::Unavailable(refusal(
            RefusalKind::System,
            problem("the kernel module blocksys is not loaded")
                .values("absent", "the device")
                .fix("modprobe blocksys"),
        )),
        Some(libc::EPERM | libc::EACCES) => Missing::Unavailable(no_privilege()),
        Some(libc::EBUSY) => Missing::Refused(refusal(
            RefusalKind::System,
            problem("another program uses the module")
                .values("opened", "free")
                .fix("wait for the other program (fuser /dev/blocksys shows it)"),
        )),
        _ => Missing::Refused(diagnosis::system(DEVICE, "cannot open", cause)),
    }
}

fn no_privilege() -> Refusal {
    refusal(
        RefusalKind::System,
        problem("the privilege to stop CPUs is missing")
            .values("no CAP_SYS_RAWIO", "CAP_SYS_RAWIO and access to the device")
            .fix("run as root"),
    )
}

/// Returns the CPUs as the module expects them: one bit each, up to the highest.
fn mask(cpus: &CpuSet) -> Vec<u64> {
    let mut mask = Vec::new();
    for cpu in cpus.iter() {
        let word = cpu.0 as usize / 64;
        if mask.len() <= word {
            mask.resize(word + 1, 0);
        }
        mask[word] |= 1 << (cpu.0 % 64);
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_and_requests_match_the_header() {
        // As compiled by the C compiler on x86-64 and arm64.
        assert_eq!(size_of::<Plan>(), 48);
        assert_eq!(size_of::<State>(), 56);
        assert_eq!(size_of::<Record>(), 56);
        assert_eq!(
            (QUERY, START, STOP),
            (0x8038_b500, 0x4030_b501, 0x0000_b502)
        );
    }

    #[test]
    fn mask_ends_with_the_highest_cpu() {
        let cpus: CpuSet = [CpuId(1), CpuId(65)].into_iter().collect();
        assert_eq!(mask(&cpus), [2, 2]);
        assert_eq!(mask(&CpuSet::new()), [0; 0]);
    }

    #[test]
    fn only_a_missing_module_is_replaced_by_another_kind() {
        let missing = |number| not_opened(&io::Error::from_raw_os_error(number));
        for number in [libc::ENOENT, libc::EPERM] {
            assert!(matches!(missing(number), Missing::Unavailable(_)));
        }
        for number in [libc::EBUSY, libc::EMFILE] {
            assert!(matches!(missing(number), Missing::Refused(_)));
        }
    }
}
