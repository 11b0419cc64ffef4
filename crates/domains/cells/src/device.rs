// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls the driver through `/dev/rampart`, as defined in `kernel/rampart/rampart.h`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::Duration;

use rampart_hypervisor_core::configuration::build::append_text;
use rampart_hypervisor_core::configuration::{Configuration, Kind, Refused};
use rampart_hypervisor_core::format::{MAXIMUM_BLOB_BYTES, Platform, Refusal};
use rampart_hypervisor_core::interface::{MAXIMUM_CPUS, Outcome, ROOT, STATUS_BYTES, Status};
use rampart_ring::mapping::SharedMapping;
use rampart_ring::program_header::{self, InterruptController};
use zerocopy::IntoBytes as _;

use crate::names::RegionNames;
use crate::network::{NetworkLink, ROOT_PEER, mac_address};
use crate::scmi::Service;
use crate::shared_memory::SharedMemory;

/// Path of the driver's device.
pub const DEVICE: &str = "/dev/rampart";

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The device cannot be opened.
    #[error("cannot open {path}: {source}; fix: modprobe rampart")]
    Open {
        /// Path of the device.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The driver refused; the kernel log has its reason.
    #[error("{what}: {source}; fix: dmesg shows the reason")]
    Driver {
        /// The failed operation.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The hypervisor refused.
    #[error("{what}: the hypervisor refuses: {}", outcome_text(*.outcome))]
    Hypervisor {
        /// The failed operation.
        what: &'static str,
        /// The hypervisor's answer.
        outcome: Outcome,
    },
    /// The hypervisor refused a configuration.
    #[error("{what}: entry {index} of its table: {}", .refusal.text())]
    Refused {
        /// The failed operation.
        what: &'static str,
        /// The reason.
        refusal: Refusal,
        /// Index of the entry, from 0.
        index: u64,
    },
}

/// Returns why the hypervisor does not do what a call asks for.
#[must_use]
pub fn outcome_text(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Success => "no reason",
        Outcome::NotSupported => "it does not have this call",
        Outcome::NotPermitted => "only the root may make this call",
        Outcome::Invalid => "an argument is out of range",
        Outcome::Busy => "another CPU changes a cell at this time",
        Outcome::Exhausted => "no page for tables, or no number of a cell, is left",
        Outcome::WrongState => "not possible in the present state of the cell",
        Outcome::NoSuchCell => "no cell has this number",
        Outcome::TimedOut => "a CPU did not respond in time",
        Outcome::Refused => "the configuration is refused",
        Outcome::WrongRevision => "image, driver and configuration have different revisions",
        Outcome::CpuInUse => "a CPU of the cell still runs Linux",
        Outcome::Unsuitable => {
            "the machine lacks a requirement: the image's interrupt controller, a size of pages or addresses"
        }
        Outcome::Faulted => "it faulted during the call; its log has the registers",
    }
}

/// `struct rampart_answer`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Answer {
    outcome: i64,
    values: [u64; 3],
}

#[derive(Debug, Default)]
#[repr(C)]
struct Enable {
    memory: u64,
    memory_bytes: u64,
    configuration: u64,
    configuration_bytes: u64,
    answer: Answer,
}

#[derive(Debug, Default)]
#[repr(C)]
struct Create {
    configuration: u64,
    configuration_bytes: u64,
    answer: Answer,
}

#[derive(Debug, Default)]
#[repr(C)]
struct Load {
    cell: u32,
    reserved: u32,
    guest: u64,
    data: u64,
    bytes: u64,
    answer: Answer,
}

#[derive(Debug, Default)]
#[repr(C)]
struct CellArgument {
    cell: u32,
    reserved: u32,
    answer: Answer,
}

/// `struct rampart_resource`.
#[derive(Debug)]
#[repr(C)]
struct ServedResource {
    kind: u32,
    index: u32,
    shared: u32,
    reserved: u32,
    path: u64,
}

/// `struct rampart_scmi`.
#[derive(Debug)]
#[repr(C)]
struct Scmi {
    cell: u32,
    doorbell: u32,
    page: u64,
    resources: u64,
    count: u32,
    reserved: u32,
}

#[derive(Debug, Default)]
#[repr(C)]
struct GivenConfiguration {
    cell: u32,
    reserved: u32,
    configuration: u64,
    configuration_bytes: u64,
}

#[derive(Debug, Default)]
#[repr(C)]
struct Network {
    cell: u32,
    doorbell: u32,
    own: u64,
    other: u64,
    cached: u32,
    address: [u8; 6],
    reserved: [u8; 6],
}

/// `struct rampart_state`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct State {
    /// [`rampart_hypervisor_core::interface::REVISION`] of the driver.
    pub revision: u32,
    enabled: u32,
    /// Physical address of the hypervisor's memory; 0 while it is not enabled.
    pub memory: u64,
    /// Size of this memory in bytes.
    pub memory_bytes: u64,
    cells: u64,
}

impl State {
    /// Returns whether the hypervisor is enabled.
    #[must_use]
    pub const fn is_enabled(&self) -> bool {
        self.enabled != 0
    }

    /// Returns the numbers of the existing cells.
    #[must_use]
    pub fn cells(&self) -> Vec<u32> {
        (0..64)
            .filter(|number| self.cells >> number & 1 != 0)
            .collect()
    }
}

/// Returns the number of an ioctl command, `_IOC` of the kernel with type `'R'`.
const fn command(number: u32, direction: u32, bytes: usize) -> u32 {
    direction << 30 | (bytes as u32) << 16 | (b'R' as u32) << 8 | number
}

const READ: u32 = 2;
const WRITE: u32 = 1;
const READ_WRITE: u32 = 3;
const STATE: u32 = command(0xa0, READ, size_of::<State>());
const ENABLE: u32 = command(0xa1, READ_WRITE, size_of::<Enable>());
const DISABLE: u32 = command(0xa2, 0, 0);
const CREATE: u32 = command(0xa3, READ_WRITE, size_of::<Create>());
const LOAD: u32 = command(0xa4, READ_WRITE, size_of::<Load>());
const START: u32 = command(0xa5, READ_WRITE, size_of::<CellArgument>());
const STOP: u32 = command(0xa6, READ_WRITE, size_of::<CellArgument>());
const DESTROY: u32 = command(0xa7, READ_WRITE, size_of::<CellArgument>());
const DOORBELL: u32 = command(0xa9, READ_WRITE, size_of::<CellArgument>());
const NETWORK: u32 = command(0xaa, WRITE, size_of::<Network>());
const SCMI: u32 = command(0xab, WRITE, size_of::<Scmi>());
const CONFIGURATION: u32 = command(0xa8, READ_WRITE, size_of::<GivenConfiguration>());

/// The driver's device, opened.
#[derive(Debug)]
pub struct Device(File);

impl Device {
    /// Opens the device.
    ///
    /// # Errors
    /// Returns an error if the driver is not loaded, or the caller lacks the permission.
    pub fn open() -> Result<Self, DeviceError> {
        Self::open_at(Path::new(DEVICE))
    }

    fn open_at(path: &Path) -> Result<Self, DeviceError> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        file.map(Self).map_err(|source| DeviceError::Open {
            path: path.display().to_string(),
            source,
        })
    }

    fn call<T>(
        &self,
        what: &'static str,
        command: u32,
        request: &mut T,
        answer: impl Fn(&T) -> Answer,
    ) -> Result<Answer, DeviceError> {
        // SAFETY: the command encodes the size of the request, which matches the driver; the memory
        // that it points to lives until the call returns.
        let result = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                command as _,
                std::ptr::from_mut(request),
            )
        };
        let source = io::Error::last_os_error();
        let answer = answer(request);
        if result == 0 {
            return Ok(answer);
        }
        let outcome = Outcome::try_from(answer.outcome).unwrap_or(Outcome::NotSupported);
        // A request without an answer, that to disable, has no outcome.
        if source.raw_os_error() != Some(libc::EREMOTEIO) || outcome == Outcome::Success {
            return Err(DeviceError::Driver { what, source });
        }
        let [refusal, index, _] = answer.values;
        let refusal = u32::try_from(refusal)
            .ok()
            .and_then(|refusal| Refusal::try_from(refusal).ok());
        Err(match (outcome, refusal) {
            (Outcome::Refused, Some(refusal)) => DeviceError::Refused {
                what,
                refusal,
                index,
            },
            _ => DeviceError::Hypervisor { what, outcome },
        })
    }

    /// Enables the hypervisor in physical memory that Linux does not use.
    ///
    /// # Errors
    /// Returns the refusal of the driver or of the hypervisor; the machine is then unchanged.
    pub fn enable(&self, memory: u64, bytes: u64, configuration: &[u8]) -> Result<(), DeviceError> {
        let mut request = Enable {
            memory,
            memory_bytes: bytes,
            configuration: configuration.as_ptr() as u64,
            configuration_bytes: configuration.len() as u64,
            answer: Answer::default(),
        };
        self.call("enable", ENABLE, &mut request, |request| request.answer)?;
        Ok(())
    }

    /// Disables the hypervisor.
    ///
    /// # Errors
    /// Returns an error while cells exist.
    pub fn disable(&self) -> Result<(), DeviceError> {
        self.call("disable", DISABLE, &mut (), |()| Answer::default())?;
        Ok(())
    }

    /// Creates a cell, whose CPUs leave Linux, and returns its number.
    ///
    /// # Errors
    /// Returns the refusal of the driver or of the hypervisor; Linux then has the CPUs again.
    pub fn create(&self, configuration: &[u8]) -> Result<u32, DeviceError> {
        self.create_named(configuration, &RegionNames::default())
    }

    /// Creates a cell with names for its shared regions, the root's end of its network with the root, and the service
    /// of its clocks.
    ///
    /// # Errors
    /// As [`Self::create`]; EINVAL if configuration and names are longer than [`MAXIMUM_BLOB_BYTES`]. If the root's end
    /// cannot be created, the cell is destroyed again.
    pub fn create_named(
        &self,
        configuration: &[u8],
        names: &RegionNames,
    ) -> Result<u32, DeviceError> {
        let with_root = names.networks.iter().find(|link| link.peer == ROOT_PEER);
        let name = Configuration::read(configuration, Kind::Cell)
            .map_or_else(|_| String::new(), |read| read.name().to_owned());
        let service = names.service.as_ref();
        let mut configuration = configuration.to_vec();
        let text = names.bytes();
        if !text.is_empty() {
            append_text(&mut configuration, &text);
        }
        let mut request = Create {
            configuration: configuration.as_ptr() as u64,
            configuration_bytes: configuration.len() as u64,
            answer: Answer::default(),
        };
        let answer = self.call("create", CREATE, &mut request, |request| request.answer)?;
        let cell = answer.values[0] as u32;
        let network = with_root.map_or(Ok(()), |link| self.network(cell, &name, link));
        let served = network.and_then(|()| service.map_or(Ok(()), |one| self.serve(cell, one)));
        if let Err(error) = served {
            // The first error is the one to return.
            let _ = self.destroy(cell);
            return Err(error);
        }
        Ok(cell)
    }

    /// Serves clocks, resets and power domains to a cell by SCMI, until it is destroyed.
    ///
    /// # Errors
    /// Returns an error if the cell has no such page, or a resource is not available.
    pub fn serve(&self, cell: u32, service: &Service) -> Result<(), DeviceError> {
        let paths = service.resources.iter();
        let paths: Vec<Vec<u8>> = paths
            .map(|one| format!("{}\0", one.path).into_bytes())
            .collect();
        let resources = service.resources.iter().zip(&paths);
        let resources: Vec<ServedResource> = resources
            .map(|(one, path)| ServedResource {
                kind: one.kind as u32,
                index: one.index,
                shared: one.shared.into(),
                reserved: 0,
                path: path.as_ptr() as u64,
            })
            .collect();
        let mut request = Scmi {
            cell,
            doorbell: service.root_doorbell,
            page: service.page,
            resources: resources.as_ptr() as u64,
            count: resources.len() as u32,
            reserved: 0,
        };
        self.call("clocks of its devices", SCMI, &mut request, |_| {
            Answer::default()
        })?;
        Ok(())
    }

    /// Creates the root's end of a network with a cell.
    ///
    /// # Errors
    /// Returns an error if the cell has no such sections. EEXIST if the end exists.
    pub fn network(&self, cell: u32, name: &str, link: &NetworkLink) -> Result<(), DeviceError> {
        let mut request = Network {
            cell,
            doorbell: link.root_doorbell,
            own: link.other,
            other: link.own,
            cached: link.cached.into(),
            address: mac_address(ROOT_PEER, name),
            reserved: [0; 6],
        };
        self.call("network", NETWORK, &mut request, |_| Answer::default())?;
        Ok(())
    }

    /// Returns the devices that the hypervisor itself uses: those of its configuration. Returns `None` if
    /// this is invalid.
    ///
    /// # Errors
    /// ENODEV while the hypervisor is not enabled.
    pub fn platform(&self) -> Result<Option<Platform>, DeviceError> {
        let system = self.configuration(ROOT)?;
        let read = system.read(Kind::System);
        Ok(read.ok().and_then(|read| read.platform.copied()))
    }

    /// Writes to loadable memory at an address in the cell's address space. Fills in the header of a program
    /// without an operating system (`rampart_ring::program_header`).
    ///
    /// # Errors
    /// Returns an error if the cell runs, or has no such memory.
    pub fn load(&self, cell: u32, guest: u64, data: &[u8]) -> Result<(), DeviceError> {
        if !program_header::is_present(data) {
            return self.load_as_it_is(cell, guest, data);
        }
        let mut program = data.to_vec();
        if let Some(platform) = self.platform()? {
            let controller = InterruptController {
                distributor: platform.distributor,
                cpu_frames: platform.cpu_frames,
            };
            program_header::fill_in(&mut program, controller);
        }
        self.load_as_it_is(cell, guest, &program)
    }

    fn load_as_it_is(&self, cell: u32, guest: u64, data: &[u8]) -> Result<(), DeviceError> {
        let mut request = Load {
            cell,
            reserved: 0,
            guest,
            data: data.as_ptr() as u64,
            bytes: data.len() as u64,
            answer: Answer::default(),
        };
        self.call("load", LOAD, &mut request, |request| request.answer)?;
        Ok(())
    }

    fn cell(&self, what: &'static str, command: u32, cell: u32) -> Result<(), DeviceError> {
        let mut request = CellArgument {
            cell,
            ..CellArgument::default()
        };
        self.call(what, command, &mut request, |request| request.answer)?;
        Ok(())
    }

    /// Starts a cell at its entry.
    ///
    /// # Errors
    /// Returns an error if the cell runs or was never loaded.
    pub fn start(&self, cell: u32) -> Result<(), DeviceError> {
        self.cell("start", START, cell)
    }

    /// Stops a cell: parks its CPUs and keeps its memory.
    ///
    /// # Errors
    /// Returns an error if a CPU does not stop in time.
    pub fn stop(&self, cell: u32) -> Result<(), DeviceError> {
        self.cell("stop", STOP, cell)
    }

    /// Destroys a cell; its CPUs return to Linux.
    ///
    /// # Errors
    /// As [`Device::stop`].
    pub fn destroy(&self, cell: u32) -> Result<(), DeviceError> {
        self.cell("destroy", DESTROY, cell)
    }

    /// Returns the state of the driver.
    ///
    /// # Errors
    /// Returns an error if the driver has another revision.
    pub fn state(&self) -> Result<State, DeviceError> {
        let mut state = State::default();
        self.call("state", STATE, &mut state, |_| Answer::default())?;
        Ok(state)
    }

    /// Returns the configuration and the names that a cell was created with, or for
    /// [`rampart_hypervisor_core::interface::ROOT`] the system's configuration, as bytes aligned
    /// for [`rampart_hypervisor_core::configuration::Configuration::read`].
    ///
    /// # Errors
    /// ENODEV while the hypervisor is not enabled, ENOENT if there is no such cell.
    pub fn configuration(&self, cell: u32) -> Result<GivenBlob, DeviceError> {
        let mut words = vec![0_u64; MAXIMUM_BLOB_BYTES / 8];
        let mut request = GivenConfiguration {
            cell,
            reserved: 0,
            configuration: words.as_mut_ptr() as u64,
            configuration_bytes: MAXIMUM_BLOB_BYTES as u64,
        };
        self.call("configuration", CONFIGURATION, &mut request, |_| {
            Answer::default()
        })?;
        let bytes = request.configuration_bytes.min(MAXIMUM_BLOB_BYTES as u64) as usize;
        Ok(GivenBlob { words, bytes })
    }

    /// Maps memory that a cell shares with the root (`SHARED` and `ROOT_READ` in its configuration;
    /// `writable` needs `ROOT_WRITE`): whole pages of 4 KiB within one region. After the cell is
    /// destroyed, an access raises SIGBUS.
    ///
    /// # Errors
    /// EACCES if no cell shares that memory with these permissions.
    pub fn map_shared(
        &self,
        physical: u64,
        bytes: usize,
        writable: bool,
    ) -> io::Result<SharedMemory> {
        SharedMemory::map(&self.0, physical, bytes, writable)
    }

    /// Makes the interrupt pending that has this index in the doorbells of the system's
    /// configuration.
    ///
    /// # Errors
    /// Returns an error if there is no such doorbell, or no cell uses the interrupt as a bell.
    pub fn ring(&self, index: u32) -> Result<(), DeviceError> {
        // The request has the format of a request about a cell.
        self.cell("ring", DOORBELL, index)
    }

    /// Waits until the state of a cell changes or a cell rings the root's doorbell, at most
    /// `limit`. Returns whether one of these happened.
    ///
    /// # Errors
    /// Returns the errors of poll(2) and read(2).
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let limit = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one open descriptor; the structure lives until the call returns.
        match unsafe { libc::poll(&raw mut poll, 1, limit) } {
            0 => Ok(false),
            1 => {
                let mut count = [0; 8];
                io::Read::read_exact(&mut &self.0, &mut count)?;
                Ok(true)
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Maps the hypervisor's status pages.
    ///
    /// # Errors
    /// Returns an error while the hypervisor is not enabled.
    pub fn status(&self) -> io::Result<StatusPages> {
        SharedMapping::new(&self.0, 0, STATUS_BYTES, false).map(StatusPages)
    }
}

/// A configuration that the driver returned.
#[derive(Debug, Clone)]
pub struct GivenBlob {
    /// Whole words, because the entries of a configuration must be aligned.
    words: Vec<u64>,
    bytes: usize,
}

impl GivenBlob {
    /// Returns the bytes, aligned to eight.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.words.as_bytes()[..self.bytes]
    }

    /// Returns the text of the program that created the cell: that of [`RegionNames`].
    #[must_use]
    pub fn text(&self, read: &Configuration<'_>) -> &[u8] {
        self.bytes()
            .get(read.bytes_before_text()..)
            .unwrap_or_default()
    }

    /// Parses the configuration.
    ///
    /// # Errors
    /// Returns an error only if driver and program have different revisions.
    pub fn read(&self, kind: Kind) -> Result<Configuration<'_>, Refused> {
        Configuration::read(self.bytes(), kind)
    }
}

/// The hypervisor's status pages, mapped until this is dropped.
#[derive(Debug)]
pub struct StatusPages(SharedMapping);

impl StatusPages {
    /// Returns the pages. They are mapped read-only: a store faults.
    #[must_use]
    pub fn get(&self) -> &Status {
        // SAFETY: mapped as long as `self` lives, whole and page-aligned, and all fields are atomic.
        unsafe { &*self.0.words().as_ptr().cast::<Status>() }
    }

    /// Returns the exits of one CPU by kind, since its cell was created.
    #[must_use]
    pub fn exits(&self, cpu: usize) -> Vec<u64> {
        let cpu = &self.get().cpus[cpu.min(MAXIMUM_CPUS - 1)];
        let load = |counter: &std::sync::atomic::AtomicU64| {
            counter.load(std::sync::atomic::Ordering::Relaxed)
        };
        cpu.exits.iter().map(load).collect()
    }
}
