// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The initramfs: the first process, the modules needed to mount the root file system, and the files
//! that are laid over it. It is written for each boot, because it contains the programs of this
//! build.

use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rampart_agent::{CARRIED, INIT, MODULE_LIST};
use rampart_initramfs::Archive;

use super::error::SimError;
use super::image::Image;
use super::modules::Dependencies;
use super::options::SimOptions;

/// Path of the agent's program in the root file system.
pub(super) const METER: &str = "/usr/bin/rampart-meter";

/// Restarts the machine. Without a disk, this ends it.
const REBOOT: &str = "#!/bin/sh\nsync\necho b > /proc/sysrq-trigger\n";

/// Writes the archive for one boot to a file.
pub(super) fn write(to: &Path, image: &Image, options: &SimOptions) -> Result<(), SimError> {
    let architecture = options.architecture;
    let failed = || SimError::file("write", to);
    let release = &image.record().kernel_release;
    let dependencies = Dependencies::read(&image.modules())?;
    let ordered = |names: &[&'static str]| {
        dependencies
            .order(names.iter().copied())
            .map(|paths| paths.into_iter().map(str::to_owned).collect::<Vec<_>>())
            .map_err(|name| SimError::Image(format!("its kernel has no module {name}")))
    };
    let meter = fs::read(&options.meter).map_err(SimError::file("read", &options.meter))?;
    let output = File::create(to).map_err(failed())?;
    let mut archive = Archive::new(BufWriter::new(output));
    let mut file = |path: &str, permissions, content: &[u8]| {
        archive.file(path, permissions, content).map_err(failed())
    };
    file(INIT, 0o755, &meter)?;
    file(&format!("{CARRIED}{METER}"), 0o755, &meter)?;
    // For interactive use; an evaluation copies its own programs.
    let beside = options.meter.with_file_name("rampart");
    if let Ok(rampart) = fs::read(beside) {
        file(&format!("{CARRIED}/usr/bin/rampart"), 0o755, &rampart)?;
    }

    file(
        &format!("{CARRIED}/usr/sbin/reboot"),
        0o755,
        REBOOT.as_bytes(),
    )?;
    for copied in &options.files {
        let here = &copied.here;
        let metadata = fs::metadata(here).map_err(SimError::file("read", here))?;
        let content = fs::read(here).map_err(SimError::file("read", here))?;
        let path = format!("{CARRIED}{}", copied.there);
        file(&path, metadata.permissions().mode() & 0o777, &content)?;
    }

    for (path, text) in options.init.files(&architecture.devices) {
        file(&format!("{CARRIED}{path}"), 0o644, text.as_bytes())?;
    }

    let early = ordered(architecture.early_modules)?;
    let mut list = String::new();
    for module in &early {
        let path = image.modules().join(module);
        let content = fs::read(&path).map_err(SimError::file("read", &path))?;
        file(&format!("/modules/{module}"), 0o644, &content)?;
        list.push_str(&format!("/modules/{module}\n"));
    }
    file(MODULE_LIST, 0o644, list.as_bytes())?;

    let mut names = architecture.late_modules.to_vec();
    if !options.forwards.is_empty() {
        names.push("virtio_net");
    }
    if options.disk.is_some() {
        names.extend(["crc32c_generic", "ext4"]);
    }
    let below = format!("/usr/lib/modules/{release}");
    let mut list: String = ordered(&names)?
        .iter()
        .filter(|module| !early.contains(module))
        .map(|module| format!("{below}/{module}\n"))
        .collect();
    for (name, content) in own_modules(options, release)? {
        let path = format!("{below}/extra/{name}");
        file(&format!("{CARRIED}{path}"), 0o644, &content)?;
        list.push_str(&path);
        list.push('\n');
    }
    file(&format!("{CARRIED}{MODULE_LIST}"), 0o644, list.as_bytes())?;
    archive.finish().map_err(failed())?;
    Ok(())
}

/// Returns the names and contents of Rampart's own modules for this kernel.
fn own_modules(options: &SimOptions, release: &str) -> Result<Vec<(String, Vec<u8>)>, SimError> {
    let Some(directory) = options.own_modules.as_ref().map(|all| all.join(release)) else {
        return Ok(Vec::new());
    };
    let Ok(entries) = fs::read_dir(&directory) else {
        return Ok(Vec::new());
    };
    let mut modules = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|end| end == "ko")
            && let Some(name) = path.file_name().and_then(|name| name.to_str())
        {
            let content = fs::read(&path).map_err(SimError::file("read", &path))?;
            modules.push((name.to_owned(), content));
        }
    }
    modules.sort();
    Ok(modules)
}
