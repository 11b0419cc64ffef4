// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads drivers, and offers the hypervisor's its image through the kernel's firmware loader.
//!
//! Both changes are recorded in a separate journal below the state directory: they are made while
//! the same process may hold a shield, and a loaded driver outlives the release of a plan as long as
//! the hypervisor is enabled. Nothing is written below `/lib/firmware`: the image is copied into the
//! state directory, and the parameter `path` of `firmware_class` names that directory while the
//! driver reads the image (Documentation/driver-api/firmware/fw_search_path.rst).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rampart_model::ReleaseReport;

use crate::changes::Changes;
use crate::journal::{self, Change};
use crate::kernel::{Kernel, RunningKernel};
use crate::lock::Lock;
use crate::release::{Which, release_first, release_those};
use crate::undo::Undone;
use crate::{HostError, StateDirectory};

/// The first directory in which the kernel looks for firmware; empty by default.
const FIRMWARE_PATH: &str = "/sys/module/firmware_class/parameters/path";
/// Length of that parameter with its NUL byte (`fw_path_para` in drivers/base/firmware_loader/main.c).
const FIRMWARE_PATH_BYTES: usize = 256;
/// Longest time that loading a module may take.
const LOAD_LIMIT: Duration = Duration::from_secs(30);
/// Longest wait for descriptors and mappings that keep a module in use to be closed.
const UNLOAD_LIMIT: Duration = Duration::from_secs(2);
/// Directories of the administrator's programs.
const PROGRAM_DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Returns the state directory of the driver's own journal and lock.
fn driver_state(state: &StateDirectory) -> StateDirectory {
    StateDirectory::at(state.path().join("driver"))
}

/// Loads the kernel module `name` from `file`, or the installed one. Does nothing if it is loaded.
///
/// # Errors
/// If the journal cannot be written or the module cannot be loaded.
pub fn load_module(
    state: &StateDirectory,
    name: &str,
    file: Option<&Path>,
) -> Result<(), HostError> {
    load_module_on(&(Arc::new(RunningKernel) as _), state, name, file)
}

fn load_module_on(
    kernel: &Arc<dyn Kernel>,
    state: &StateDirectory,
    name: &str,
    file: Option<&Path>,
) -> Result<(), HostError> {
    if kernel.exists(&module_directory(name)) {
        return Ok(());
    }
    let state = driver_state(state);
    let _lock = Lock::take(&state, false)?;
    release_first(&**kernel, &state)?;
    let (program, argument) = match file {
        Some(file) => ("insmod", file.display().to_string()),
        None => ("modprobe", name.to_owned()),
    };
    let refused = |what: String| HostError::Request {
        location: format!("module {name}"),
        what,
        found: "not loaded".to_owned(),
        expected: "loaded".to_owned(),
        fix: "build the module for the running kernel and install it, or name its file".to_owned(),
    };
    let path = PROGRAM_DIRECTORIES
        .iter()
        .map(|directory| Path::new(directory).join(program))
        .find(|path| kernel.exists(path))
        .ok_or_else(|| refused(format!("the program {program} is not installed")))?;
    let mut changes = Changes::persistent(Arc::clone(kernel), &state);
    changes.prepare(vec![Change::Module {
        name: name.to_owned(),
    }])?;
    changes.step()?;
    let ran = kernel.run(&[path.display().to_string(), argument], LOAD_LIMIT);
    let reason = match ran {
        Ok(ran) if ran.status.is_some_and(|status| status.success()) => return changes.step(),
        Ok(ran) => match ran.status {
            Some(status) => format!("{program} failed ({status}): {}", ran.errors.trim()),
            None => format!("{program} took longer than {} s", LOAD_LIMIT.as_secs()),
        },
        Err(error) => format!("cannot run {program}: {error}"),
    };
    changes.undo()?;
    Err(refused(reason))
}

/// An image that the kernel's firmware loader finds until this value is dropped.
#[derive(Debug)]
pub struct OfferedFirmware {
    changes: Changes,
    _lock: Lock,
}

/// Lets drivers find `image` as the firmware file `name`, before an installed file of that name.
///
/// # Errors
/// If the journal or the copy of the image cannot be written, or the kernel has no firmware loader.
pub fn offer_firmware(
    state: &StateDirectory,
    name: &str,
    image: &[u8],
) -> Result<OfferedFirmware, HostError> {
    offer_firmware_on(&(Arc::new(RunningKernel) as _), state, name, image)
}

fn offer_firmware_on(
    kernel: &Arc<dyn Kernel>,
    state: &StateDirectory,
    name: &str,
    image: &[u8],
) -> Result<OfferedFirmware, HostError> {
    let parameter = Path::new(FIRMWARE_PATH);
    let install = format!("install the image as /lib/firmware/{name}");
    let state = driver_state(state);
    let lock = Lock::take(&state, false)?;
    release_first(&**kernel, &state)?;
    let old = kernel
        .read(parameter)
        .map_err(|cause| HostError::file("read", parameter, cause, &install))?;
    let relative = state.path().join("firmware");
    let directory = std::fs::create_dir_all(&relative)
        .and_then(|()| relative.canonicalize())
        .map_err(|cause| HostError::file("create", &relative, cause, &install))?;
    let length = directory.as_os_str().len();
    if length >= FIRMWARE_PATH_BYTES {
        return Err(HostError::Request {
            location: directory.display().to_string(),
            what: "the path is too long for the kernel's firmware loader".to_owned(),
            found: format!("{length} bytes"),
            expected: format!("{} bytes or fewer", FIRMWARE_PATH_BYTES - 1),
            fix: "name a shorter directory in RAMPART_STATE_DIR".to_owned(),
        });
    }
    let copy = directory.join(name);
    std::fs::write(&copy, image)
        .map_err(|cause| HostError::file("write", &copy, cause, &install))?;
    let mut changes = Changes::new(Arc::clone(kernel), &state);
    changes.prepare(vec![Change::FirmwarePath {
        old: value_of(&old).to_owned(),
        directory: directory.clone(),
    }])?;
    changes.step()?;
    if let Err(cause) = write_path(&**kernel, &directory.display().to_string()) {
        changes.undo()?;
        return Err(HostError::file("write", parameter, cause, &install));
    }
    changes.step()?;
    Ok(OfferedFirmware {
        changes,
        _lock: lock,
    })
}

impl OfferedFirmware {
    /// Restores the kernel's search path and removes the copy of the image.
    ///
    /// # Errors
    /// If the kernel refuses the old value, which stays in the journal then.
    pub fn withdraw(mut self) -> Result<(), HostError> {
        self.changes.undo().map(drop)
    }
}

impl Drop for OfferedFirmware {
    fn drop(&mut self) {
        // If the kernel refuses, the change stays in the journal for a release.
        if self.changes.count() > 0 {
            let _ = self.changes.undo();
        }
    }
}

/// Unloads the driver if [`load_module`] loaded it, and withdraws firmware that an ended process
/// offered. Keeps the driver if the hypervisor `is_enabled`.
///
/// # Errors
/// If another process loads or unloads the driver, or the journal cannot be read.
pub fn release_driver(
    state: &StateDirectory,
    is_enabled: bool,
) -> Result<ReleaseReport, HostError> {
    release_driver_on(&RunningKernel, state, is_enabled)
}

fn release_driver_on(
    kernel: &dyn Kernel,
    state: &StateDirectory,
    is_enabled: bool,
) -> Result<ReleaseReport, HostError> {
    let state = driver_state(state);
    if journal::files(&state).is_empty() {
        return Ok(ReleaseReport::default());
    }
    let _lock = Lock::take(&state, false)?;
    let which = if is_enabled { Which::Ended } else { Which::All };
    release_those(kernel, &state, which)
}

fn module_directory(name: &str) -> PathBuf {
    Path::new("/sys/module").join(name)
}

/// Returns a parameter's value without the line feed that the kernel appends.
fn value_of(text: &str) -> &str {
    text.strip_suffix('\n').unwrap_or(text)
}

/// Writes the search path, ended by a NUL byte: the kernel ignores what follows, so an empty path can
/// be written, and the line feed at the end does not become part of the path as before Linux 5.18.
fn write_path(kernel: &dyn Kernel, value: &str) -> io::Result<()> {
    kernel.write(Path::new(FIRMWARE_PATH), &format!("{value}\0"))
}

/// Unloads a module if it is loaded.
pub(crate) fn undo_module(kernel: &dyn Kernel, name: &str, undone: &mut Undone) -> io::Result<()> {
    let location = module_directory(name);
    let begin = Instant::now();
    while kernel.exists(&location) {
        kernel.step()?;
        match kernel.remove_module(name) {
            Ok(()) => undone.restored(&location, "unloaded"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy
                ) && begin.elapsed() < UNLOAD_LIMIT =>
            {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            Err(error) => undone.failed(
                &location,
                format!("cannot unload the module: {error}"),
                match name {
                    "detach" => "end the programs that have it open: fuser -v /dev/rampart-detach",
                    _ => "rampart cell disable --destroy-cells",
                },
            ),
        }
        break;
    }
    Ok(())
}

/// Restores the kernel's search path, unless another process changed it, and removes the image's copy.
pub(crate) fn undo_firmware_path(
    kernel: &dyn Kernel,
    old: &str,
    directory: &Path,
    undone: &mut Undone,
) {
    let parameter = Path::new(FIRMWARE_PATH);
    let fix = format!("printf '{old}\\0' > {FIRMWARE_PATH}");
    match kernel.read(parameter) {
        Ok(present) if Path::new(value_of(&present)) != directory => {}
        Ok(_) => match write_path(kernel, old) {
            Ok(()) => undone.restored(parameter, format!("restored to `{old}`")),
            Err(error) => {
                return undone.failed(parameter, format!("cannot write `{old}`: {error}"), &fix);
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return undone.failed(parameter, format!("cannot read: {error}"), &fix),
    }
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => undone.failed(
            directory,
            format!("cannot remove the copy of the image: {error}"),
            &format!("rm -r {}", directory.display()),
        ),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeKernel, Layout, Machine, directory};

    const MODULE: &str = "rampart";

    fn machine(path: &str) -> Machine {
        let mut machine = Machine::new(4, Layout::V2);
        for (file, text) in [
            ("/usr/sbin/insmod", ""),
            ("/sbin/modprobe", ""),
            (FIRMWARE_PATH, path),
        ] {
            machine.files.insert(file.into(), text.to_owned());
        }
        machine
    }

    fn kernel(machine: &Machine) -> (Arc<FakeKernel>, Arc<dyn Kernel>) {
        let kernel = Arc::new(FakeKernel::new(machine.clone()));
        (Arc::clone(&kernel), kernel)
    }

    /// Loads the driver, offers it an image, and returns the search path that it would use.
    fn enable(kernel: &Arc<dyn Kernel>, state: &StateDirectory) -> Result<PathBuf, HostError> {
        load_module_on(kernel, state, MODULE, Some(Path::new("/tmp/rampart.ko")))?;
        let offered = offer_firmware_on(kernel, state, "rampart.bin", b"image")?;
        let path = kernel.read(Path::new(FIRMWARE_PATH)).expect("a path");
        let path = PathBuf::from(value_of(&path));
        assert_eq!(
            std::fs::read(path.join("rampart.bin")).expect("copy"),
            b"image"
        );
        offered.withdraw()?;
        Ok(path)
    }

    #[test]
    fn offers_the_image_and_unloads_the_module_that_it_loaded() {
        for path in ["\n", "/opt/firmware\n"] {
            let before = machine(path);
            let (fake, kernel) = kernel(&before);
            let temporary = directory();
            let state = StateDirectory::at(temporary.path());
            let offered = enable(&kernel, &state).expect("enabled");
            assert!(offered.starts_with(temporary.path().canonicalize().expect("a path")));
            assert!(!offered.exists(), "the copy is removed");
            assert_eq!(kernel.read(Path::new(FIRMWARE_PATH)).expect("path"), path);
            assert!(kernel.exists(&module_directory(MODULE)));

            let kept = release_driver_on(&*kernel, &state, true).expect("released");
            assert_eq!(kept, ReleaseReport::default(), "the hypervisor is enabled");
            let report = release_driver_on(&*kernel, &state, false).expect("released");
            assert_eq!(report.restored.len(), 1, "{report:?}");
            assert_eq!(*fake.machine(), before);
        }
    }

    #[test]
    fn leaves_a_module_that_was_loaded_before() {
        let mut before = machine("\n");
        let loaded = module_directory(MODULE).join("refcnt");
        before.files.insert(loaded, "0\n".to_owned());
        let (fake, kernel) = kernel(&before);
        let temporary = directory();
        let state = StateDirectory::at(temporary.path());
        enable(&kernel, &state).expect("enabled");
        release_driver_on(&*kernel, &state, false).expect("released");
        assert_eq!(*fake.machine(), before);
    }

    #[test]
    fn a_module_that_cannot_be_loaded_leaves_no_journal() {
        let (fake, kernel) = kernel(&machine("\n"));
        let temporary = directory();
        let state = StateDirectory::at(temporary.path());
        let error = load_module_on(&kernel, &state, "unknown", None).expect_err("unknown");
        let text = error.to_string();
        assert!(
            text.contains("modprobe failed") && text.contains("not found"),
            "{text}"
        );
        fake.machine().files.remove(Path::new("/sbin/modprobe"));
        let error = load_module_on(&kernel, &state, MODULE, None).expect_err("no modprobe");
        assert!(error.to_string().contains("not installed"), "{error}");
        assert!(journal::files(&driver_state(&state)).is_empty());
    }

    #[test]
    fn keeps_the_journal_of_a_module_in_use() {
        let (fake, kernel) = kernel(&machine("\n"));
        let temporary = directory();
        let state = StateDirectory::at(temporary.path());
        load_module_on(&kernel, &state, MODULE, None).expect("loaded");
        let used = module_directory(MODULE).join("refcnt");
        fake.machine().files.insert(used.clone(), "1\n".to_owned());
        let report = release_driver_on(&*kernel, &state, false).expect("released");
        let left = report.left.first().expect("a finding").to_string();
        assert!(left.contains("rampart cell disable"), "{left}");
        fake.machine().files.insert(used, "0\n".to_owned());
        release_driver_on(&*kernel, &state, false).expect("released");
        assert!(!kernel.exists(&module_directory(MODULE)));
    }

    #[test]
    fn keeps_a_search_path_that_another_process_set_meanwhile() {
        let (fake, kernel) = kernel(&machine("\n"));
        let temporary = directory();
        let state = StateDirectory::at(temporary.path());
        let offered = offer_firmware_on(&kernel, &state, "rampart.bin", b"").expect("offered");
        let other = "/opt/firmware\n".to_owned();
        fake.machine().files.insert(FIRMWARE_PATH.into(), other);
        drop(offered);
        assert_eq!(
            fake.machine().files[Path::new(FIRMWARE_PATH)],
            "/opt/firmware\n"
        );
    }

    #[test]
    fn restores_the_machine_after_an_end_at_any_step() {
        let before = machine("/opt/firmware\n");
        for end in 1.. {
            let (fake, kernel) = kernel(&before);
            let temporary = directory();
            let state = StateDirectory::at(temporary.path());
            fake.end_after(Some(end));
            if enable(&kernel, &state).is_ok() {
                assert!(end > 10, "{end} steps are too few");
                return;
            }
            fake.end_after(Some(end % 5 + 1));
            let _ = release_driver_on(&*kernel, &state, false);
            fake.end_after(None);
            let report = release_driver_on(&*kernel, &state, false).expect("released");
            assert!(report.left.is_empty(), "{:?}", report.left);
            assert_eq!(*fake.machine(), before, "step {end}");
        }
    }
}
