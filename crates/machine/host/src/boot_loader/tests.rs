// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of boot loaders on machines in a directory, with real files and fake programs.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use rampart_model::{CpuSet, Severity};

use super::{BootLoader, arguments, plan_boot};
use crate::kernel::Kernel;
use crate::policy::Attributes;
use crate::release::{release_first, release_locked};
use crate::replace_file;
use crate::{CapturedOutput, HostError, MachineRoot, StateDirectory};

const WANTED: &[&str] = &["isolcpus=managed_irq,domain,2-3", "nohz_full=2-3", "nosmt"];

fn wanted() -> Vec<String> {
    WANTED.iter().map(|word| (*word).to_owned()).collect()
}

/// A machine below a directory. Its boot identifier is a file, so that tests can restart it.
#[derive(Debug)]
struct Directory {
    root: tempfile::TempDir,
    /// Steps until the process ends; `None`: never.
    steps: Mutex<Option<u64>>,
    ended: Mutex<bool>,
}

impl Directory {
    fn new(files: &[(&str, &str)]) -> Arc<Self> {
        let root = tempfile::tempdir().expect("directory");
        let machine = Self {
            root,
            steps: Mutex::new(None),
            ended: Mutex::new(false),
        };
        machine.put("/proc/sys/kernel/random/boot_id", "first\n");
        for (path, text) in files {
            machine.put(path, text);
        }
        Arc::new(machine)
    }

    fn path(&self, path: &Path) -> PathBuf {
        self.root
            .path()
            .join(path.strip_prefix("/").unwrap_or(path))
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.path(Path::new(path));
        std::fs::create_dir_all(path.parent().expect("parent")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(Path::new(path))).expect(path)
    }

    fn restart(&self) {
        self.put("/proc/sys/kernel/random/boot_id", "second\n");
        self.end_after(None);
    }

    fn end_after(&self, steps: Option<u64>) {
        *self.steps.lock().expect("steps") = steps;
        *self.ended.lock().expect("ended") = false;
    }

    fn alive(&self) -> io::Result<()> {
        match *self.ended.lock().expect("ended") {
            true => Err(io::Error::other("the process was killed")),
            false => Ok(()),
        }
    }

    /// Returns all files except the boot identifier, and all directories.
    fn all(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        fn walk(directory: &Path, all: &mut BTreeMap<PathBuf, Option<Vec<u8>>>) {
            for entry in std::fs::read_dir(directory).expect("list").flatten() {
                let path = entry.path();
                if path.is_dir() {
                    walk(&path, all);
                    all.insert(path, None);
                } else if !path.ends_with("boot_id") {
                    let bytes = std::fs::read(&path).expect("read");
                    all.insert(path, Some(bytes));
                }
            }
        }
        let mut all = BTreeMap::new();
        walk(self.root.path(), &mut all);
        all
    }

    /// Runs a script that generates a configuration, as the loader's program does.
    fn generate(&self, script: &str) -> io::Result<()> {
        let root = self.root.path().display();
        let output = Command::new("sh")
            .args(["-c", &format!("set -e\nROOT='{root}'\n{script}")])
            .output()?;
        match output.status.success() {
            true => Ok(()),
            false => Err(io::Error::other(
                String::from_utf8_lossy(&output.stderr).into_owned(),
            )),
        }
    }
}

const UPDATE_GRUB: &str = r#"
. "$ROOT/etc/default/grub"
for file in "$ROOT"/etc/default/grub.d/*.cfg; do [ ! -e "$file" ] || . "$file"; done
{
    [ ! -e "$ROOT/etc/grub.d/06_other" ] || cat "$ROOT/etc/grub.d/06_other"
    echo "menuentry 'Debian' {"
    echo "	linux	/vmlinuz root=/dev/sda1 ro ${GRUB_CMDLINE_LINUX} ${GRUB_CMDLINE_LINUX_DEFAULT}"
    echo "}"
    echo "	linux	/vmlinuz root=/dev/sda1 ro single ${GRUB_CMDLINE_LINUX}"
} > "$ROOT/boot/grub/grub.cfg.new"
mv "$ROOT/boot/grub/grub.cfg.new" "$ROOT/boot/grub/grub.cfg"
"#;

const U_BOOT_UPDATE: &str = r#"
[ ! -e "$ROOT/etc/default/u-boot" ] || . "$ROOT/etc/default/u-boot"
for file in "$ROOT"/etc/u-boot-menu/conf.d/*.conf; do [ ! -e "$file" ] || . "$file"; done
if [ -z "${U_BOOT_PARAMETERS}" ] && [ -f "$ROOT/etc/kernel/cmdline" ]; then
    U_BOOT_PARAMETERS=$(cat "$ROOT/etc/kernel/cmdline")
fi
U_BOOT_PARAMETERS=${U_BOOT_PARAMETERS:-ro quiet}
{
    printf '## use: u-boot-update\n\ndefault l0\nlabel l0\n\tlinux /vmlinuz\n'
    printf '\tappend root=/dev/sda1 %s\n' "$U_BOOT_PARAMETERS"
} > "$ROOT/boot/extlinux/extlinux.conf"
"#;

impl Kernel for Directory {
    fn read(&self, path: &Path) -> io::Result<String> {
        std::fs::read_to_string(self.path(path))
    }
    fn write(&self, _path: &Path, _value: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn make_directory(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.alive()?;
        std::fs::remove_dir(self.path(path))
    }
    fn names(&self, path: &Path) -> Vec<String> {
        MachineRoot::at(self.root.path())
            .names(path.to_str().expect("text").trim_start_matches('/'))
    }
    fn is_directory(&self, path: &Path) -> bool {
        self.path(path).is_dir()
    }
    fn exists(&self, path: &Path) -> bool {
        self.path(path).exists()
    }
    fn affinity(&self, _thread: u32) -> io::Result<CpuSet> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn set_affinity(&self, _thread: u32, _cpus: &CpuSet) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn attributes(&self, _thread: u32) -> io::Result<Attributes> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn set_attributes(&self, _thread: u32, _attributes: &Attributes) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn replace_file(&self, path: &Path, text: &str) -> io::Result<()> {
        self.alive()?;
        replace_file::replace_in_steps(&self.path(path), text.as_bytes(), &mut || self.step())
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.alive()?;
        replace_file::remove_file(&self.path(path))
    }
    fn remove_temporary_file(&self, path: &Path) -> io::Result<()> {
        self.alive()?;
        replace_file::remove_temporary(&self.path(path))
    }
    fn run(&self, words: &[String], _limit: Duration) -> io::Result<CapturedOutput> {
        self.alive()?;
        let answer = match words.first().map(String::as_str) {
            Some("/usr/sbin/update-grub") => self.generate(UPDATE_GRUB),
            Some("/usr/sbin/u-boot-update") => self.generate(U_BOOT_UPDATE),
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        let code = if answer.is_ok() { 0 } else { 1 << 8 };
        Ok(CapturedOutput {
            status: Some(ExitStatus::from_raw(code)),
            output: String::new(),
            errors: answer
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default(),
        })
    }
    fn step(&self) -> io::Result<()> {
        let mut steps = self.steps.lock().expect("steps");
        if let Some(left) = steps.as_mut() {
            *left = left.saturating_sub(1);
            if *left == 0 {
                *self.ended.lock().expect("ended") = true;
                return Err(io::Error::other("the process was killed"));
            }
        }
        Ok(())
    }
}

const DEBIAN: &[(&str, &str)] = &[
    ("/usr/sbin/update-grub", ""),
    (
        "/etc/default/grub",
        "GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet isolcpus=1\"\nGRUB_CMDLINE_LINUX=\"nohz_full=1 console=ttyS0\"\n",
    ),
    (
        "/etc/default/grub.d/50-cloud.cfg",
        "GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT crashkernel=384M\"\n",
    ),
    (
        "/boot/grub/grub.cfg",
        "# generated at installation\n\tlinux\t/vmlinuz root=/dev/sda1 ro quiet\n",
    ),
];

const FEDORA: &[(&str, &str)] = &[
    (
        "/etc/default/grub",
        "GRUB_CMDLINE_LINUX=\"rhgb quiet\"\nGRUB_ENABLE_BLSCFG=true\n",
    ),
    ("/usr/sbin/grub2-mkconfig", ""),
    ("/boot/grub2/grub.cfg", "blscfg\n"),
    (
        "/boot/loader/entries/abc-0-rescue.conf",
        "title Rescue\nlinux /vmlinuz-0-rescue\noptions root=/dev/sda3 ro\n",
    ),
    (
        "/boot/loader/entries/abc-6.8.0.conf",
        "title Fedora\nlinux /vmlinuz-6.8.0\noptions root=/dev/sda3 ro rhgb isolcpus=5\n",
    ),
    ("/etc/kernel/cmdline", "root=/dev/sda3 ro rhgb\n"),
];

const SYSTEMD_BOOT: &[(&str, &str)] = &[
    ("/efi/loader/loader.conf", "timeout 3\n"),
    (
        "/efi/loader/entries/arch.conf",
        "title Arch\nlinux /vmlinuz-linux\ninitrd /initramfs.img\noptions root=PARTUUID=x rw\n",
    ),
    (
        "/efi/loader/entries/memtest.conf",
        "title Memtest\nefi /memtest.efi\n",
    ),
];

const MENU: &[(&str, &str)] = &[
    ("/usr/sbin/u-boot-update", ""),
    ("/etc/default/u-boot", "#U_BOOT_PARAMETERS=\"ro quiet\"\n"),
    (
        "/boot/extlinux/extlinux.conf",
        "## do not edit, use: u-boot-update\nlabel l0\n\tlinux /vmlinuz\n\tappend root=/dev/sda1 ro quiet\n",
    ),
];

const MENU_WITH_LINE: &[(&str, &str)] = &[
    ("/usr/sbin/u-boot-update", ""),
    ("/etc/kernel/cmdline", "root=/dev/sda1 ro\n"),
    (
        "/boot/extlinux/extlinux.conf",
        "## do not edit, use: u-boot-update\nlabel l0\n\tlinux /vmlinuz\n\tappend root=/dev/sda1 ro\n",
    ),
];

const EXTLINUX: &[(&str, &str)] = &[(
    "/boot/extlinux/extlinux.conf",
    "default a\nlabel a\n  kernel /Image\n  append root=/dev/mmcblk0p1 nohz-full=3\n",
)];

const RASPBERRY_PI: &[(&str, &str)] = &[
    ("/boot/firmware/config.txt", "arm_64bit=1\n"),
    (
        "/boot/firmware/cmdline.txt",
        "console=serial0,115200 root=PARTUUID=x rootwait\n",
    ),
];

const MACHINES: &[&[(&str, &str)]] = &[
    DEBIAN,
    FEDORA,
    SYSTEMD_BOOT,
    MENU,
    MENU_WITH_LINE,
    EXTLINUX,
    RASPBERRY_PI,
];

fn prepare(
    machine: &Arc<Directory>,
    state: &StateDirectory,
) -> Result<super::BootReport, HostError> {
    super::prepare(Arc::clone(machine) as Arc<dyn Kernel>, state, &wanted())
}

fn state() -> (tempfile::TempDir, StateDirectory) {
    let directory = tempfile::tempdir().expect("directory");
    let state = StateDirectory::at(directory.path().join("state"));
    (directory, state)
}

fn loader(files: &[(&str, &str)]) -> Option<BootLoader> {
    super::find(&MachineRoot::at(Directory::new(files).root.path()))
}

#[test]
fn finds_each_loader() {
    let extlinux = || PathBuf::from("/boot/extlinux/extlinux.conf");
    let menu = || BootLoader::UBootMenu {
        configuration: extlinux(),
    };
    let expected = [
        BootLoader::Grub {
            configuration: "/boot/grub/grub.cfg".into(),
            command: vec!["/usr/sbin/update-grub".to_owned()],
        },
        BootLoader::GrubEntries,
        BootLoader::SystemdBoot {
            partition: "/efi".into(),
        },
        menu(),
        menu(),
        BootLoader::Extlinux {
            configuration: extlinux(),
        },
        BootLoader::RaspberryPi {
            line: "/boot/firmware/cmdline.txt".into(),
        },
    ];
    for (files, expected) in MACHINES.iter().zip(expected) {
        assert_eq!(loader(files), Some(expected));
    }
    assert_eq!(loader(&[]), None);
    // The EFI variable has priority.
    let mut both = DEBIAN.to_vec();
    both.extend(SYSTEMD_BOOT);
    assert!(matches!(loader(&both), Some(BootLoader::Grub { .. })));
    both.push((
        super::LOADER_INFO,
        "\u{6}\0\0\0s\0y\0s\0t\0e\0m\0d\0-\0b\0o\0o\0t\0 \x002\x005\x004\x00",
    ));
    assert!(matches!(
        loader(&both),
        Some(BootLoader::SystemdBoot { .. })
    ));
}

#[test]
fn without_a_known_loader_the_fix_has_the_arguments() {
    let machine = Directory::new(&[]);
    let (_directory, state) = state();
    let error = prepare(&machine, &state).expect_err("none").to_string();
    assert!(
        error.contains("nohz_full=2-3") && error.contains("fix"),
        "{error}"
    );
    assert!(!state.path().exists());
}

/// Returns the possible kernel command lines of the next boot.
fn next_lines(machine: &Directory) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, bytes) in machine.all() {
        let Some(bytes) = bytes else { continue };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let name = path
            .file_name()
            .expect("name")
            .to_string_lossy()
            .into_owned();
        match name.as_str() {
            "grub.cfg" => lines.extend(super::grub::lines(&text)),
            "extlinux.conf" => lines.extend(super::extlinux::lines(&text)),
            "cmdline.txt" => lines.push(text),
            _ if name.ends_with(".conf") && !name.contains("rescue") => lines.extend(
                text.lines()
                    .filter_map(|line| line.strip_prefix("options "))
                    .map(str::to_owned),
            ),
            _ => {}
        }
    }
    lines
}

#[test]
fn every_loader_gets_the_arguments_and_release_restores_it_after_a_restart() {
    for files in MACHINES {
        let machine = Directory::new(files);
        let (_directory, state) = state();
        let before = machine.all();
        let report = prepare(&machine, &state).expect("prepared");
        assert!(report.changed);
        let lines = next_lines(&machine);
        assert!(!lines.is_empty());
        for line in &lines {
            assert!(arguments::has_all(line, &wanted()), "{line}");
            assert_eq!(line.matches("isolcpus=").count(), 1, "{line}");
        }
        // A second call changes nothing.
        let prepared = machine.all();
        assert!(!prepare(&machine, &state).expect("prepared").changed);
        assert_eq!(machine.all(), prepared);
        machine.restart();
        // Other commands keep the change.
        release_first(&*machine, &state).expect("nothing to release");
        assert_eq!(machine.all(), prepared);
        let report = release_locked(&*machine, &state).expect("released");
        assert!(report.left.is_empty(), "{:?}", report.left);
        assert_eq!(report.journals.len(), 1);
        assert_eq!(machine.all(), before);
    }
}

/// The firmware of a Raspberry Pi reads the first line; generators of entries read all lines as one.
#[test]
fn reads_lines_as_each_loader_does() {
    for (loader, path, old, new) in [
        (
            RASPBERRY_PI,
            "/boot/firmware/cmdline.txt",
            "a\nnosmt\n",
            "a nosmt\nnosmt\n",
        ),
        (
            MENU_WITH_LINE,
            "/etc/kernel/cmdline",
            "a nosmt=force\nb\n",
            "a b nosmt\n",
        ),
        (
            FEDORA,
            "/etc/kernel/cmdline",
            "a nosmt=force\nb",
            "a b nosmt\n",
        ),
        (FEDORA, "/etc/kernel/cmdline", "a\nnosmt", "a\nnosmt"),
    ] {
        let machine = Directory::new(loader);
        machine.put(path, old);
        let root = MachineRoot::at(machine.root.path());
        let plan = plan_boot(&root, &["nosmt".to_owned()]).expect("plan");
        let change = plan
            .files
            .iter()
            .find(|change| change.path == Path::new(path));
        assert_eq!(change.map_or(old, |change| &change.new), new, "{path}");
    }
}

#[test]
fn later_arguments_replace_the_first() {
    for files in MACHINES {
        let machine = Directory::new(files);
        let (_directory, state) = state();
        let before = machine.all();
        prepare(&machine, &state).expect("prepared");
        let other = vec!["isolcpus=1".to_owned()];
        let kernel = Arc::clone(&machine) as Arc<dyn Kernel>;
        super::prepare(kernel, &state, &other).expect("prepared");
        for line in next_lines(&machine) {
            assert!(arguments::has_all(&line, &other), "{line}");
        }
        let report = release_locked(&*machine, &state).expect("released");
        assert_eq!(report.journals.len(), 2);
        assert_eq!(machine.all(), before);
    }
}

#[test]
fn release_restores_the_machine_after_an_end_at_any_step() {
    for files in MACHINES {
        for end in 1.. {
            let machine = Directory::new(files);
            let (_directory, state) = state();
            let before = machine.all();
            machine.end_after(Some(end));
            let answer = prepare(&machine, &state);
            machine.restart();
            if answer.is_ok() {
                assert!(end > 8, "{end} steps are too few");
                break;
            }
            // Release may be ended as well, at any step.
            for second in 1.. {
                machine.end_after(Some(second));
                let done = release_locked(&*machine, &state).is_ok();
                let is_alive = machine.alive().is_ok();
                if done && is_alive {
                    break;
                }
            }
            machine.end_after(None);
            let report = release_locked(&*machine, &state).expect("released");
            assert!(report.left.is_empty(), "{:?}", report.left);
            assert_eq!(
                machine.all(),
                with_generated(before, &machine),
                "step {end}"
            );
        }
    }
}

/// After an end between the run of a loader's program and the record of its output, the program is run
/// again, and its output may differ from the old one.
fn with_generated(
    mut before: BTreeMap<PathBuf, Option<Vec<u8>>>,
    machine: &Directory,
) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    for name in ["/boot/grub/grub.cfg", "/boot/extlinux/extlinux.conf"] {
        let path = machine.path(Path::new(name));
        let is_generated = machine.exists(Path::new("/usr/sbin/update-grub"))
            || machine.exists(Path::new("/usr/sbin/u-boot-update"));
        if is_generated && let Some(old) = before.get_mut(&path) {
            let text = std::fs::read(&path).expect("read");
            assert!(!String::from_utf8_lossy(&text).contains("nosmt"));
            *old = Some(text);
        }
    }
    before
}

#[test]
fn keeps_and_reports_a_file_that_another_process_changed() {
    let machine = Directory::new(EXTLINUX);
    let (_directory, state) = state();
    prepare(&machine, &state).expect("prepared");
    machine.put("/boot/extlinux/extlinux.conf", "label mine\n");
    let report = release_locked(&*machine, &state).expect("released");
    assert_eq!(machine.text("/boot/extlinux/extlinux.conf"), "label mine\n");
    let left = report.left.first().expect("a finding");
    assert_eq!(left.severity, Severity::Warning);
    assert!(left.to_string().contains("extlinux.conf"), "{left}");
}

#[test]
fn a_configuration_generated_meanwhile_is_generated_again() {
    let machine = Directory::new(DEBIAN);
    let (_directory, state) = state();
    prepare(&machine, &state).expect("prepared");
    // As after the installation of a kernel.
    let made = machine.text("/boot/grub/grub.cfg");
    machine.put("/boot/grub/grub.cfg", &format!("{made}# another entry\n"));
    let report = release_locked(&*machine, &state).expect("released");
    assert!(report.left.is_empty(), "{:?}", report.left);
    let line = next_lines(&machine).join("\n");
    assert!(
        !line.contains("nosmt") && line.contains("isolcpus=1"),
        "{line}"
    );
}

/// The first entry may be that of another system, or one with the same arguments.
#[test]
fn searches_written_arguments_in_every_entry() {
    for line in ["root=/dev/sdb1 quiet".to_owned(), wanted().join(" ")] {
        let mut files = DEBIAN.to_vec();
        let other = format!("\tlinux /vmlinuz {line}\n");
        files.push(("/etc/grub.d/06_other", &other));
        let machine = Directory::new(&files);
        let (_directory, state) = state();
        assert!(prepare(&machine, &state).expect("prepared").changed);
        machine.restart();
        assert!(
            !prepare(&machine, &state).expect("present").changed,
            "{line}"
        );
        release_locked(&*machine, &state).expect("released");
    }
    // If nothing is written yet, the default entry decides.
    for (line, changed) in [("quiet", true), ("quiet nosmt", false)] {
        let mut files = DEBIAN.to_vec();
        let made = format!("\tlinux /vmlinuz {line}\n\tlinux /vmlinuz nosmt\n");
        files.push(("/boot/grub/grub.cfg", &made));
        let machine = Directory::new(&files);
        let plan = plan_boot(&MachineRoot::at(machine.root.path()), &["nosmt".to_owned()]);
        assert_eq!(plan.expect("plan").is_as_wanted(), !changed, "{line}");
    }
}

#[test]
fn undoes_changes_that_do_not_reach_the_configuration() {
    let mut files = DEBIAN.to_vec();
    // Read after Rampart's file, and replaces its value.
    files.push((
        "/etc/default/grub.d/zzz.cfg",
        "GRUB_CMDLINE_LINUX_DEFAULT=quiet\n",
    ));
    let machine = Directory::new(&files);
    let (_directory, state) = state();
    let before = machine.all();
    let error = prepare(&machine, &state).expect_err("lost").to_string();
    assert!(error.contains("without the arguments"), "{error}");
    assert_eq!(machine.all(), before);
    assert!(crate::journal::files(&state).is_empty());
}

#[test]
fn quotes_arguments_with_spaces_for_grub() {
    let machine = Directory::new(DEBIAN);
    let (_directory, state) = state();
    let wanted = vec!["dyndbg=\"file a.c +p; x\"".to_owned()];
    let kernel = Arc::clone(&machine) as Arc<dyn Kernel>;
    super::prepare(kernel, &state, &wanted).expect("prepared");
    let made = machine.text("/boot/grub/grub.cfg");
    assert!(made.contains("'dyndbg=file a.c +p; x'"), "{made}");
}

#[test]
fn without_drop_ins_the_lines_are_appended_to_the_defaults() {
    let files = [
        ("/etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=quiet"),
        ("/usr/bin/grub-mkconfig", ""),
        ("/boot/grub/grub.cfg", "\tlinux /vmlinuz quiet\n"),
    ];
    let machine = Directory::new(&files);
    let plan = plan_boot(&MachineRoot::at(machine.root.path()), &wanted()).expect("plan");
    let change = plan.files.first().expect("a change");
    assert_eq!(change.path, Path::new("/etc/default/grub"));
    assert!(
        change
            .new
            .starts_with("GRUB_CMDLINE_LINUX_DEFAULT=quiet\n# Written by")
    );
    // And only once.
    machine.put("/etc/default/grub", &change.new);
    let other = vec!["nosmt".to_owned()];
    let plan = plan_boot(&MachineRoot::at(machine.root.path()), &other).expect("plan");
    let new = &plan.files.first().expect("a change").new;
    assert_eq!(new.matches("# Written by").count(), 1);
    assert!(!new.contains("nohz"));
}

#[test]
fn keeps_a_file_that_is_not_text() {
    let machine = Directory::new(RASPBERRY_PI);
    let path = machine.path(Path::new("/boot/firmware/cmdline.txt"));
    std::fs::write(&path, b"root=\xff\n").expect("written");
    let (_directory, state) = state();
    let error = prepare(&machine, &state).expect_err("no text").to_string();
    assert!(error.contains("cmdline.txt"), "{error}");
    assert_eq!(std::fs::read(&path).expect("read"), b"root=\xff\n");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn release_undoes_prepare(
        machine in 0..MACHINES.len(),
        text in "[a-z =\"\\n_-]{0,60}",
        words in proptest::collection::vec("[a-z_]{1,8}(=[0-9a-z,-]{1,8})?", 1..4),
    ) {
        let files = MACHINES.get(machine).copied().unwrap_or_default();
        let machine = Directory::new(files);
        for path in ["/boot/firmware/cmdline.txt", "/efi/loader/entries/arch.conf", "/etc/kernel/cmdline"] {
            if machine.exists(Path::new(path)) {
                let old = machine.text(path);
                machine.put(path, &format!("{old}{text}"));
            }
        }
        let (_directory, state) = state();
        let before = machine.all();
        let kernel = Arc::clone(&machine) as Arc<dyn Kernel>;
        // A refused change is undone too.
        let _ = super::prepare(kernel, &state, &words);
        machine.restart();
        let report = release_locked(&*machine, &state).expect("released");
        prop_assert!(report.left.is_empty());
        prop_assert_eq!(machine.all(), before);
    }
}
