// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The OCI bundle of a meter: a root file system that contains only the meter, and a configuration
//! that grants only the lock on its memory.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rampart_model::{CpuSet, Nanos};
use serde_json::{Value, json};

use super::engine::MemoryGrant;
use super::seccomp;
use crate::DomainError;

/// Path of the meter in its root file system.
pub(super) const METER_PATH: &str = "/rampart-meter";
/// The user `nobody` of every distribution: it owns no file that the meter could write to.
const NOBODY: u32 = 65_534;

/// The values that differ between bundles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Contents {
    /// Its control group, relative to the root of each hierarchy.
    pub(super) control_group: String,
    /// The CPUs of that group; `None` for those of the group above it.
    pub(super) cpus: Option<CpuSet>,
    /// Real-time budget of that group per second; `None` if it needs none, or gets it from the
    /// shield around it.
    pub(super) real_time: Option<Nanos>,
    /// How the meter may lock its memory.
    pub(super) memory: MemoryGrant,
    /// Whether the runtime can filter system calls.
    pub(super) seccomp: bool,
    /// The architecture of the meter, as [`std::env::consts::ARCH`] names it.
    pub(super) architecture: String,
}

/// Returns the configuration (OCI runtime specification 1.0, which every common runtime supports).
pub(super) fn configuration(contents: &Contents) -> Value {
    let mut linux = json!({
        "namespaces": [
            { "type": "pid" },
            { "type": "ipc" },
            { "type": "uts" },
            { "type": "mount" },
            { "type": "network" },
            { "type": "cgroup" }
        ],
        "cgroupsPath": contents.control_group,
        "resources": {
            "devices": [{ "allow": false, "access": "rwm" }]
        },
        "maskedPaths": [
            "/proc/acpi",
            "/proc/asound",
            "/proc/kcore",
            "/proc/keys",
            "/proc/latency_stats",
            "/proc/sched_debug",
            "/proc/scsi",
            "/proc/timer_list",
            "/proc/timer_stats",
            "/sys/firmware"
        ],
        "readonlyPaths": [
            "/proc/bus",
            "/proc/fs",
            "/proc/irq",
            "/proc/sys",
            "/proc/sysrq-trigger"
        ]
    });
    if let Some(cpus) = &contents.cpus {
        linux["resources"]["cpu"] = json!({ "cpus": cpus.to_string() });
    }
    if let Some(runtime) = contents.real_time {
        linux["resources"]["cpu"]["realtimePeriod"] = json!(1_000_000);
        linux["resources"]["cpu"]["realtimeRuntime"] = json!(runtime.0 / 1_000);
    }
    if contents.seccomp {
        linux["seccomp"] = seccomp::filter(&contents.architecture);
    }
    let (capabilities, limits) = match contents.memory {
        MemoryGrant::Nothing => (json!([]), json!([])),
        MemoryGrant::Limit => (
            json!([]),
            json!([{ "type": "RLIMIT_MEMLOCK", "soft": u64::MAX, "hard": u64::MAX }]),
        ),
        MemoryGrant::Capability => (json!(["CAP_IPC_LOCK"]), json!([])),
    };
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": NOBODY, "gid": NOBODY },
            "args": [METER_PATH],
            "env": [],
            "cwd": "/",
            "capabilities": {
                "bounding": capabilities,
                "effective": capabilities,
                "inheritable": capabilities,
                "permitted": capabilities,
                // It is not root inside, so only an ambient capability survives execve(2).
                "ambient": capabilities
            },
            "rlimits": limits,
            "noNewPrivileges": true
        },
        "root": { "path": "rootfs", "readonly": true },
        "hostname": "rampart-meter",
        "mounts": [
            {
                "destination": "/proc",
                "type": "proc",
                "source": "proc",
                "options": ["nosuid", "noexec", "nodev"]
            },
            {
                "destination": "/dev",
                "type": "tmpfs",
                "source": "tmpfs",
                "options": ["nosuid", "noexec", "mode=755", "size=64k"]
            },
            {
                "destination": "/sys",
                "type": "sysfs",
                "source": "sysfs",
                "options": ["nosuid", "noexec", "nodev", "ro"]
            }
        ],
        "linux": linux
    })
}

/// The values that differ between the containers of a plan.
#[derive(Debug, Clone)]
pub(super) struct PlannedContents<'a> {
    /// Name of its domain, which becomes its host name.
    pub(super) name: &'a str,
    /// Its root directory.
    pub(super) root: &'a Path,
    /// Program and arguments inside.
    pub(super) run: &'a [String],
    /// The CPUs of its group.
    pub(super) cpus: &'a CpuSet,
    /// Its control group, relative to the root of each hierarchy.
    pub(super) control_group: String,
    /// How it may lock its memory.
    pub(super) memory: MemoryGrant,
}

/// Capabilities of root in a container of a plan: files of its own root directory, its own
/// processes.
const PLANNED_CAPABILITIES: [&str; 8] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETGID",
    "CAP_SETUID",
];

/// Returns the configuration of a container of a plan: that of a meter, but with a writable root
/// directory, root inside with few capabilities, and without a filter of system calls. Its only
/// network is a loopback device.
pub(super) fn planned_configuration(contents: &PlannedContents<'_>) -> Value {
    let mut all = configuration(&Contents {
        control_group: contents.control_group.clone(),
        cpus: Some(contents.cpus.clone()),
        real_time: None,
        memory: contents.memory,
        seccomp: false,
        architecture: String::new(),
    });
    let process = &mut all["process"];
    process["user"] = json!({ "uid": 0, "gid": 0 });
    process["args"] = json!(contents.run);
    process["env"] = json!(["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]);
    let mut capabilities = PLANNED_CAPABILITIES.to_vec();
    if contents.memory == MemoryGrant::Capability {
        capabilities.push("CAP_IPC_LOCK");
    }
    for set in ["bounding", "effective", "permitted"] {
        process["capabilities"][set] = json!(capabilities);
    }
    process["capabilities"]["inheritable"] = json!([]);
    process["capabilities"]["ambient"] = json!([]);
    all["root"] = json!({ "path": contents.root, "readonly": false });
    all["hostname"] = json!(contents.name);
    all
}

/// Writes the configuration of a container of a plan into `directory`.
pub(super) fn write_planned(
    directory: &Path,
    contents: &PlannedContents<'_>,
) -> Result<(), DomainError> {
    let path = directory.join("config.json");
    let text = format!("{:#}\n", planned_configuration(contents));
    fs::write(&path, text).map_err(DomainError::file("write the configuration", path))
}

/// Creates the root file system below `directory` and returns its path.
pub(super) fn write_root(directory: &Path, meter: &Path) -> Result<PathBuf, DomainError> {
    let root = directory.join("rootfs");
    for name in ["proc", "dev", "sys"] {
        let path = root.join(name);
        fs::create_dir_all(&path).map_err(DomainError::file("make the directory", path))?;
    }
    // A copy, not a link: the container must not contain a name of the file that others run.
    let target = root.join(METER_PATH.trim_start_matches('/'));
    let copied = fs::copy(meter, &target)
        .and_then(|_| fs::set_permissions(&target, fs::Permissions::from_mode(0o555)));
    copied.map_err(|source| {
        let missing = source.kind() == io::ErrorKind::NotFound;
        let path = if missing { meter } else { &target };
        DomainError::file("copy the meter into the container", path)(source)
    })?;
    Ok(root)
}

/// Writes the configuration of a meter's bundle into `directory`.
pub(super) fn write_configuration(
    directory: &Path,
    contents: &Contents,
) -> Result<(), DomainError> {
    let path = directory.join("config.json");
    let text = format!("{:#}\n", configuration(contents));
    fs::write(&path, text).map_err(DomainError::file("write the configuration", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents() -> Contents {
        Contents {
            control_group: "/rampart-1-0/meter-1-0".to_owned(),
            cpus: Some("2-3".parse().expect("cpus")),
            real_time: None,
            memory: MemoryGrant::Limit,
            seccomp: false,
            architecture: "x86_64".to_owned(),
        }
    }

    #[test]
    fn writes_the_configuration() {
        // The order of keys depends on the features of the JSON library that other crates enable.
        insta::with_settings!({ sort_maps => true }, {
            insta::assert_json_snapshot!(configuration(&contents()));
        });
    }

    #[test]
    fn runs_a_planned_program_in_its_root_directory() {
        let cpus = "3".parse().expect("cpus");
        let all = planned_configuration(&PlannedContents {
            name: "logger",
            root: Path::new("/srv/logger"),
            run: &["/bin/log".to_owned(), "-v".to_owned()],
            cpus: &cpus,
            control_group: "/rampart-logger/c".to_owned(),
            memory: MemoryGrant::Limit,
        });
        assert_eq!(all["process"]["args"], json!(["/bin/log", "-v"]));
        assert_eq!(
            all["root"],
            json!({ "path": "/srv/logger", "readonly": false })
        );
        assert_eq!(all["linux"]["resources"]["cpu"]["cpus"], "3");
        let capabilities = &all["process"]["capabilities"];
        assert!(!capabilities.to_string().contains("SYS_"), "{capabilities}");
        assert_eq!(capabilities["ambient"], json!([]));
    }

    #[test]
    fn writes_a_budget_of_its_own() {
        let with = Contents {
            real_time: Some(Nanos::from_millis(900)),
            ..contents()
        };
        let cpu = &configuration(&with)["linux"]["resources"]["cpu"];
        assert_eq!(cpu["realtimeRuntime"], 900_000);
        assert_eq!(cpu["realtimePeriod"], 1_000_000);
        assert!(
            configuration(&contents())
                .to_string()
                .find("realtime")
                .is_none()
        );
    }

    #[test]
    fn writes_a_filter_if_the_runtime_supports_it() {
        let with = Contents {
            seccomp: true,
            ..contents()
        };
        insta::with_settings!({ sort_maps => true }, {
            insta::assert_json_snapshot!(configuration(&with)["linux"]["seccomp"]);
        });
        assert!(configuration(&contents())["linux"].get("seccomp").is_none());
    }

    #[test]
    fn grants_only_the_lock_on_memory() {
        let of = |memory| {
            configuration(&Contents {
                memory,
                cpus: None,
                ..contents()
            })
        };
        let capability = of(MemoryGrant::Capability);
        assert_eq!(capability["process"]["rlimits"], json!([]));
        for set in [
            "bounding",
            "effective",
            "inheritable",
            "permitted",
            "ambient",
        ] {
            let of_kind = &capability["process"]["capabilities"][set];
            assert_eq!(*of_kind, json!(["CAP_IPC_LOCK"]), "{set}");
        }
        assert!(capability["linux"]["resources"].get("cpu").is_none());
        let nothing = of(MemoryGrant::Nothing);
        assert_eq!(nothing["process"]["rlimits"], json!([]));
        assert_eq!(nothing["process"]["capabilities"]["permitted"], json!([]));
    }

    #[test]
    fn creates_a_root_with_only_the_meter() {
        let directory = tempfile::tempdir().expect("directory");
        let meter = directory.path().join("some-meter");
        fs::write(&meter, "program").expect("write");
        let root = write_root(directory.path(), &meter).expect("root");
        let mut names: Vec<_> = fs::read_dir(&root)
            .expect("list")
            .map(|entry| entry.expect("entry").file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["dev", "proc", "rampart-meter", "sys"]);
        let mode = fs::metadata(root.join("rampart-meter")).expect("metadata");
        assert_eq!(mode.permissions().mode() & 0o777, 0o555);
    }

    #[test]
    fn names_a_missing_meter() {
        let directory = tempfile::tempdir().expect("directory");
        let error = write_root(directory.path(), Path::new("/nowhere/rampart-meter"));
        let message = error.expect_err("must fail").to_string();
        assert!(message.contains("/nowhere/rampart-meter"), "{message}");
    }
}
