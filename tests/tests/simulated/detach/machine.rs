// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated machine with the driver of detached threads: Debian's kernel with a shell (busybox-static) as its first
//! program, so that QEMU's own log of interrupts, one file for each CPU, belongs to its test alone.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rampart_initramfs::Archive;
use rampart_tests::detached_programs::compile;
use rampart_tests::hypervisor::{assert_nothing_failed, kernel_errors};
use rampart_tests::limited::Limited as _;
use rampart_tests::packages::{cache_of, fetched_of, unpack};
use rampart_tests::processes::KillAtEnd;
use rampart_tests::programs::directory;

use super::LOOP;

const RUST_EXAMPLES: [&str; 4] = ["control_loop", "costs", "fixed_work", "system_calls"];

/// How long the machine may be silent.
const SILENCE: Duration = Duration::from_secs(200);

/// `steps` waits for the test, which turns QEMU's log on and off meanwhile.
const BEGIN: &str = r#"#!/bin/busybox sh
for program in mount mkdir insmod rmmod cat dmesg sleep kill seq dd taskset grep sed poweroff true ifconfig tr ls start-stop-daemon \
    mktemp rm cp wc sort gzip cut dirname pidof; do
    /bin/busybox ln -s busybox /bin/$program
done
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
dmesg -n 1
ifconfig lo 127.0.0.1
echo "release $(cat /proc/sys/kernel/osrelease)"
taken=/sys/devices/virtual/misc/rampart-detach/taken
wait_for() {
    for turn in $(seq 300); do
        [ "$(cat $1)" = "$2" ] && return
        sleep 0.1
    done
    echo "FAILED  $1 is $(cat $1), not $2"
}
step() { echo "step $1"; read answer; }
# Starts a program that is linked with the libraries in /lib.
linked() {
    program=$1
    shift
    /lib/loader --library-path /lib /bin/$program "$@"
}
insmod /detach.ko || echo 'FAILED  not loaded'
dmesg -c >/dev/null
"#;

const END: &str = r#"
wait_for /sys/devices/system/cpu/online 0-3
rmmod detach && insmod /detach.ko || echo 'FAILED  not unloaded and loaded again'
dmesg | sed 's/^/log /'
# The machine ends with a taken CPU.
/control_loop 2 1000 & wait_for $taken 2
[ -e /kernel ] && /detach-test kexec /kernel /second "$(cat /proc/cmdline)"
echo finished
poweroff -f
"#;

/// The first program of a kernel that was booted by kexec.
const SECOND: &str = r#"#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
echo "second kernel with CPUs $(/bin/busybox cat /sys/devices/system/cpu/online)"
echo finished
/bin/busybox poweroff -f
"#;

/// A kind of machine.
pub(super) struct Kind {
    architecture: &'static str,
    real_time: bool,
    cpu: &'static str,
    /// QEMU's machine.
    machine: &'static str,
    /// Words of the kernel command line.
    command_line: &'static str,
}

impl Kind {
    /// The end of the releases of its kernels.
    fn flavour(&self) -> &'static str {
        match (self.architecture, self.real_time) {
            ("x86_64", true) => "-rt-amd64",
            ("x86_64", false) => "-amd64",
            (_, true) => "-rt-arm64",
            (_, false) => "-arm64",
        }
    }
}

/// Returns the directory of the modules: `make test-newest` has others, beside their kernels.
fn modules() -> PathBuf {
    std::env::var_os("RAMPART_TEST_MODULES")
        .map_or_else(|| directory().join("modules"), PathBuf::from)
}

/// Returns the release that modules are built for: of several the oldest, which is the distribution's own kernel.
fn release(kind: &Kind) -> String {
    let modules = modules();
    let releases = fs::read_dir(&modules)
        .unwrap_or_else(|error| panic!("{}: {error}; run `make modules`", modules.display()));
    releases
        .flatten()
        .filter(|entry| entry.path().join("detach.ko").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|release| release.ends_with(kind.flavour()))
        .filter(|release| release.contains("-rt-") == kind.real_time)
        .min()
        .unwrap_or_else(|| {
            panic!(
                "no module `detach`; run `kernel/build --out bin/modules {} bookworm bookworm/stock`",
                kind.architecture
            )
        })
}

/// Compiles the examples in Rust for a machine without a C library.
fn compile_rust(architecture: &str, to: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let script = ". scripts/rust-target; use_target $1; \
        cargo build --locked --release --package rampart-detach --examples $target_options >&2; \
        echo ${CARGO_TARGET_DIR:-target}/$target/release/examples";
    let output = Command::new("sh")
        .args(["-euc", script, "sh", architecture])
        .current_dir(&root)
        .finish()
        .expect("sh starts");
    assert!(output.status.success(), "{output:?}");
    let built = root.join(String::from_utf8_lossy(&output.stdout).trim());
    fs::create_dir(to.join("rust")).expect("a new directory");
    for name in RUST_EXAMPLES {
        fs::copy(built.join(name), to.join("rust").join(name)).expect("an example");
    }
}

/// What a program that is linked dynamically needs: packages, and their libraries.
const LIBRARIES: [(&str, &[&str]); 9] = [
    ("libc6", &["libc.so.6", "libm.so.6"]),
    ("libgcc-s1", &["libgcc_s.so.1"]),
    ("libstdc++6", &["libstdc++.so.6"]),
    ("zlib1g", &["libz.so.1"]),
    ("liblzma5", &["liblzma.so.5"]),
    ("libbz2-1.0", &["libbz2.so.1.0"]),
    ("libelf1", &["libelf.so.1"]),
    ("libdw1", &["libdw.so.1"]),
    ("libzstd1", &["libzstd.so.1"]),
];

/// Adds `eu-stack`, which prints the stacks of another process's threads, as a debugger; the script starts it by `linked`.
fn add_linked(
    archive: &mut Archive<Vec<u8>>,
    architecture: &str,
    location: &Path,
) -> std::io::Result<()> {
    let cache = cache_of(architecture).join("stock-kernel");
    let fetch = |name: &str, pattern: &str| {
        let package = fetched_of(architecture, name, &cache);
        let package = package.unwrap_or_else(|| panic!("the archive has no {name}"));
        unpack(&package, pattern, location);
    };
    let find = |name: &str| {
        let triplet = format!("{architecture}-linux-gnu");
        let directories = ["usr/bin", "sbin", "lib", "lib64"].map(PathBuf::from);
        let of_triplet = ["lib", "usr/lib"].map(|lib| Path::new(lib).join(&triplet));
        let paths = directories
            .into_iter()
            .chain(of_triplet)
            .map(|directory| location.join(directory).join(name));
        let path = paths.into_iter().find(|path| path.exists());
        read(&path.unwrap_or_else(|| panic!("no package has {name}")))
    };
    for (package, libraries) in LIBRARIES {
        fetch(package, "*.so*");
        for name in libraries {
            archive.file(&format!("lib/{name}"), 0o755, &find(name))?;
        }
    }
    let loader = match architecture {
        "x86_64" => "ld-linux-x86-64.so.2",
        _ => "ld-linux-aarch64.so.1",
    };
    archive.file("lib/loader", 0o755, &find(loader))?;
    fetch("elfutils", "*/eu-stack");
    archive.file("bin/eu-stack", 0o755, &find("eu-stack"))?;
    Ok(())
}

/// The module for `/dev/cpu/N/msr`, as it is unpacked.
const MSR: &str = "msr.ko";

/// Returns an archive with a shell and this first program.
fn small_archive(first: &str, location: &Path) -> Archive<Vec<u8>> {
    let shells = ["bin/busybox", "usr/bin/busybox"].map(|path| location.join(path));
    let shell = shells.iter().find(|path| path.exists()).expect("busybox");
    let written = |archive: &mut Archive<Vec<u8>>| -> std::io::Result<()> {
        for directory in ["proc", "sys", "dev", "tmp", "rust"] {
            archive.directory(directory)?;
        }
        archive.character_device("dev/console", 0o600, (5, 1))?;
        archive.file("init", 0o755, first.as_bytes())?;
        archive.file("bin/busybox", 0o755, &read(shell))?;
        archive.file(
            "bin/sh",
            0o755,
            b"#!/bin/busybox sh\nexec /bin/busybox sh \"$@\"\n",
        )
    };
    let mut archive = Archive::new(Vec::new());
    written(&mut archive).expect("an archive in memory");
    archive
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the archive of a machine, with a second kernel if there is one.
fn initramfs(
    script: &str,
    location: &Path,
    architecture: &str,
    module: &Path,
    kernel: Option<&Path>,
) -> Vec<u8> {
    let first = [BEGIN, script, END].concat();
    let mut archive = small_archive(&first, location);
    let written = |archive: &mut Archive<Vec<u8>>| -> std::io::Result<()> {
        archive.file("detach.ko", 0o644, &read(module))?;
        let loads = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../crates/domains/detached/c/examples/beside_loads.sh");
        archive.file("beside_loads", 0o755, &read(&loads))?;
        for program in ["control_loop", "detach-test"] {
            archive.file(program, 0o755, &read(&location.join(program)))?;
        }
        if let Some(kernel) = kernel {
            let second = small_archive(SECOND, location).finish()?;
            archive.file("second", 0o644, &second)?;
            archive.file("kernel", 0o644, &read(kernel))?;
        }
        if script.contains("linked ") {
            add_linked(archive, architecture, location)?;
        }
        let registers = location.join(MSR);
        if registers.exists() {
            archive.file("msr.ko", 0o644, &read(&registers))?;
        }
        if script.contains("/rampart ") {
            archive.file("rampart", 0o755, &read(&directory().join("rampart")))?;
        }
        let examples = RUST_EXAMPLES
            .iter()
            .map(|name| Path::new("rust").join(name));
        for program in examples.filter(|program| location.join(program).exists()) {
            let content = read(&location.join(&program));
            archive.file(&program.to_string_lossy(), 0o755, &content)?;
        }
        Ok(())
    };
    written(&mut archive).expect("an archive in memory");
    archive.finish().expect("an archive in memory")
}

/// A running machine.
pub(super) struct Machine {
    qemu: KillAtEnd,
    location: tempfile::TempDir,
    lines: Receiver<String>,
    output: String,
}

impl Machine {
    pub(super) fn boot(script: &str, real_time: bool, cpu: &'static str) -> Self {
        let kind = Kind {
            architecture: "x86_64",
            real_time,
            cpu,
            machine: "pc",
            command_line: "console=ttyS0 no_timer_check",
        };
        Self::boot_kind(script, &kind)
    }

    pub(super) fn boot_kind(script: &str, kind: &Kind) -> Self {
        Self::boot_with(script, kind, &[])
    }

    /// Boots a machine with a plugin of QEMU.
    pub(super) fn boot_counted(script: &str, plugin: &OsStr) -> Self {
        let kind = Kind {
            architecture: "x86_64",
            real_time: true,
            cpu: EPYC,
            machine: "pc",
            command_line: "console=ttyS0 no_timer_check",
        };
        Self::boot_with(script, &kind, &[OsStr::new("-plugin"), plugin])
    }

    fn boot_with(script: &str, kind: &Kind, more: &[&OsStr]) -> Self {
        let architecture = kind.architecture;
        let release = release(kind);
        let location = tempfile::tempdir().expect("a directory");
        let there = location.path();
        let fetch = |name: &str, pattern: &str| {
            let cache = cache_of(architecture).join("stock-kernel");
            let package = fetched_of(architecture, name, &cache);
            let package = package.unwrap_or_else(|| panic!("the archive has no {name}"));
            unpack(&package, pattern, there);
        };
        fetch("busybox-static", "*/busybox");
        let mut kernel = modules().join(&release).join("vmlinuz");
        if !kernel.exists() {
            fetch(&format!("linux-image-{release}"), "./boot/vmlinuz-*");
            kernel = there.join(format!("boot/vmlinuz-{release}"));
            if architecture == "x86_64" {
                fetch(&format!("linux-image-{release}"), "*/msr.ko");
                let unpacked = format!("lib/modules/{release}/kernel/arch/x86/kernel/msr.ko");
                fs::rename(there.join(unpacked), there.join(MSR)).expect("a module of the kernel");
            }
        }
        compile(architecture, there);
        compile_rust(architecture, there);
        let module = modules().join(&release).join("detach.ko");
        let archive = there.join("initramfs");
        // Those that measure the loop also boot another kernel.
        let second = script.contains(LOOP).then_some(kernel.as_path());
        let content = initramfs(script, there, architecture, &module, second);
        fs::write(&archive, content).expect("written");
        let qemu = Command::new(format!("qemu-system-{architecture}"))
            .args(["-machine", kind.machine])
            .args(["-accel", "tcg,thread=multi"])
            .args(more)
            .args(["-cpu", kind.cpu, "-smp", "4", "-m", "1024", "-nodefaults"])
            .args(["-display", "none"])
            .args(["-no-reboot", "-serial", "stdio", "-d", "tid", "-D"])
            .arg(there.join("interrupts.%d"))
            .arg("-monitor")
            .arg(format!(
                "unix:{},server=on,wait=off",
                there.join("monitor").display()
            ))
            .arg("-kernel")
            .arg(&kernel)
            .arg("-initrd")
            .arg(&archive)
            .arg("-append")
            .arg(format!("quiet panic=-1 {}", kind.command_line))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("QEMU starts");
        let mut qemu = KillAtEnd(qemu);
        let lines = read_lines(&mut qemu.0);
        let mut machine = Self {
            qemu,
            location,
            lines,
            output: String::new(),
        };
        machine.wait_for(&format!("release {release}"));
        machine
    }

    /// Reads until a line with this content.
    pub(super) fn wait_for(&mut self, wanted: &str) {
        loop {
            let line = self.lines.recv_timeout(SILENCE);
            let line =
                line.unwrap_or_else(|error| panic!("no {wanted:?}: {error}\n{}", self.output));
            let found = line.trim_end().ends_with(wanted);
            self.output += &line;
            self.output.push('\n');
            if found {
                return;
            }
        }
    }

    /// Lets the script continue after a step.
    pub(super) fn go_on(&mut self) {
        let input = self.qemu.0.stdin.as_mut().expect("a pipe");
        input.write_all(b"\n").expect("QEMU reads");
    }

    /// Runs a command of QEMU's monitor and returns its output.
    pub(super) fn monitor(&self, command: &str) -> String {
        let mut stream = UnixStream::connect(self.location.path().join("monitor")).expect("QEMU");
        stream
            .set_read_timeout(Some(SILENCE))
            .expect("a time limit");
        read_prompt(&mut stream);
        stream
            .write_all(format!("{command}\n").as_bytes())
            .expect("QEMU reads");
        read_prompt(&mut stream)
    }

    /// Returns the file of a CPU's log of interrupts.
    fn log_of(&self, cpu: usize) -> PathBuf {
        let text = self.monitor("info cpus");
        let head = format!("CPU #{cpu}: thread_id=");
        let thread = text.lines().find_map(|line| line.split(&head).nth(1));
        let thread = thread.unwrap_or_else(|| panic!("no CPU {cpu}: {text}"));
        self.location
            .path()
            .join(format!("interrupts.{}", thread.trim()))
    }

    /// Runs a step of the script with QEMU's log of interrupts and exceptions, and returns how many bytes
    /// each CPU logged.
    pub(super) fn log_step(&mut self, name: &str) -> [u64; 4] {
        let bytes = |machine: &Self| {
            [0, 1, 2, 3].map(|cpu| fs::metadata(machine.log_of(cpu)).map_or(0, |file| file.len()))
        };
        self.wait_for(&format!("step {name}"));
        let before = bytes(self);
        self.monitor("log int,tid");
        self.go_on();
        self.wait_for("step end");
        self.monitor("log tid");
        let after = bytes(self);
        self.go_on();
        [0, 1, 2, 3].map(|cpu: usize| after[cpu] - before[cpu])
    }

    /// Waits for the end of the machine and returns its output.
    pub(super) fn end(mut self) -> String {
        self.wait_for("finished");
        let limit = Instant::now() + SILENCE;
        while self.qemu.0.try_wait().expect("a child").is_none() {
            assert!(
                Instant::now() < limit,
                "the machine does not end:\n{}",
                self.output
            );
            thread::sleep(Duration::from_millis(20));
        }
        assert_nothing_failed(&self.output);
        // What Linux prints for the signals of hostile threads is no error of the kernel.
        let log = self
            .output
            .replace("general protection fault ip:", "signal ip:");
        let errors = kernel_errors(&log, &["log "]);
        assert!(errors.is_empty(), "{errors:#?}\n{}", self.output);
        self.output
    }
}

fn read_lines(child: &mut Child) -> Receiver<String> {
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in output.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).replace('\r', "");
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Reads until QEMU's monitor waits for a command.
fn read_prompt(stream: &mut UnixStream) -> String {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\n(qemu) ") && text != b"(qemu) " {
        stream.read_exact(&mut byte).expect("QEMU answers");
        text.push(byte[0]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// EPYC has SMAP and no page-table isolation; Skylake has page-table isolation and protection keys. Without
/// `hypervisor` Linux uses the CPU as on a real machine. `max` has page tables of five levels.
pub(super) const EPYC: &str = "EPYC,-hypervisor,check=off";
pub(super) const SKYLAKE: &str = "Skylake-Server,-hypervisor,-smap,check=off";
/// The same without AVX: QEMU 7.2 ends at some invalid instructions of it, which random programs have.
pub(super) const EPYC_TO_FUZZ: &str = "EPYC,-hypervisor,-avx,-avx2,-fma,-f16c,check=off";
pub(super) const SKYLAKE_TO_FUZZ: &str =
    "Skylake-Server,-hypervisor,-smap,-avx,-avx2,-fma,-f16c,check=off";
pub(super) const FIVE_LEVELS: &str = "max,-hypervisor,check=off";

/// EL2 without VHE, EL1 with PSCI by HVC, and EL2 with VHE, pointer authentication, tags, SVE and SME. The first one has no
/// interrupt translation service: Linux leaves it on at kexec, with tables in memory that the next kernel uses. The second one
/// has page-table isolation, because its kernel is at a random address; without, QEMU is much faster.
pub(super) const NO_VHE: Kind = Kind {
    architecture: "aarch64",
    real_time: true,
    cpu: "cortex-a57",
    machine: "virt,gic-version=3,virtualization=on,its=off",
    command_line: "console=ttyAMA0 nokaslr",
};
pub(super) const NO_EL2: Kind = Kind {
    machine: "virt,gic-version=3",
    command_line: "console=ttyAMA0",
    ..NO_VHE
};
pub(super) const VHE: Kind = Kind {
    real_time: false,
    cpu: "max,pauth-impdef=on",
    machine: "virt,gic-version=3,virtualization=on,mte=on",
    ..NO_VHE
};
