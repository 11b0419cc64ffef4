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
use rampart_tests::guest_cases::{END as END_OF_CASES, case_line};
use rampart_tests::hypervisor::kernel_errors;
use rampart_tests::limited::Limited as _;
use rampart_tests::processes::KillAtEnd;
use rampart_tests::programs::directory;

use super::LOOP;
use crate::unpacked::unpacked;

const RUST_EXAMPLES: [&str; 4] = ["control_loop", "costs", "fixed_work", "system_calls"];

/// How long the machine may be silent.
const SILENCE: Duration = Duration::from_secs(200);

/// The scripts of the first program; those of the cases are between both.
const BEGIN: &str = include_str!("../../../../kernel/detach/tests/begin.sh");
const END: &str = include_str!("../../../../kernel/detach/tests/end.sh");
/// The first program of a kernel that was booted by kexec.
const SECOND: &str = include_str!("../../../../kernel/detach/tests/second-kernel.sh");

/// A kind of machine.
pub(super) struct Kind {
    architecture: &'static str,
    real_time: bool,
    pub(super) cpu: &'static str,
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
fn add_linked(archive: &mut Archive<Vec<u8>>, architecture: &str) -> std::io::Result<()> {
    let triplet = format!("{architecture}-linux-gnu");
    let find = |location: &Path, name: &str| {
        let directories = ["usr/bin", "sbin", "lib", "lib64"].map(PathBuf::from);
        let of_triplet = ["lib", "usr/lib"].map(|lib| Path::new(lib).join(&triplet));
        let paths = directories
            .into_iter()
            .chain(of_triplet)
            .map(|directory| location.join(directory).join(name));
        paths.into_iter().find(|path| path.exists())
    };
    let mut locations = Vec::new();
    for (package, libraries) in LIBRARIES {
        let location = unpacked(architecture, package, &["*.so*"]);
        for name in libraries {
            let path = find(&location, name);
            let path = path.unwrap_or_else(|| panic!("{package} has no {name}"));
            archive.file(&format!("lib/{name}"), 0o755, &read(&path))?;
        }
        locations.push(location);
    }
    let loader = match architecture {
        "x86_64" => "ld-linux-x86-64.so.2",
        _ => "ld-linux-aarch64.so.1",
    };
    // Of the C library.
    let loader = find(&locations[0], loader).expect("the loader");
    archive.file("lib/loader", 0o755, &read(&loader))?;
    let location = unpacked(architecture, "elfutils", &["*/eu-stack"]);
    let debugger = find(&location, "eu-stack").expect("the debugger");
    archive.file("bin/eu-stack", 0o755, &read(&debugger))?;
    Ok(())
}

/// Modules of Debian's kernel for x86-64 that a script may load from `/`: for `/dev/cpu/N/msr`, and for guests.
const MODULES: [&str; 5] = ["msr", "irqbypass", "kvm", "ccp", "kvm-amd"];

/// Returns an archive with a shell and this first program.
fn small_archive(first: &str, architecture: &str) -> Archive<Vec<u8>> {
    let location = unpacked(architecture, "busybox-static", &["*/busybox"]);
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

/// Returns names and paths of unpacked modules.
fn find_modules(directory: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        if path.is_dir() {
            found.extend(find_modules(&path));
        } else if path.extension() == Some(OsStr::new("ko")) {
            found.push((name.to_string_lossy().into_owned(), path));
        }
    }
    found
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
    debian: Option<&Path>,
    second_kernel: Option<&Path>,
) -> Vec<u8> {
    let first = [BEGIN, script, END].concat();
    let mut archive = small_archive(&first, architecture);
    let written = |archive: &mut Archive<Vec<u8>>| -> std::io::Result<()> {
        archive.file("detach.ko", 0o644, &read(module))?;
        let loads = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../crates/domains/detached/c/examples/beside_loads.sh");
        archive.file("beside_loads", 0o755, &read(&loads))?;
        for program in ["control_loop", "detach-test"] {
            archive.file(program, 0o755, &read(&location.join(program)))?;
        }
        if let Some(kernel) = second_kernel {
            let second = small_archive(SECOND, architecture).finish()?;
            archive.file("second", 0o644, &second)?;
            archive.file("kernel", 0o644, &read(kernel))?;
        }
        if script.contains("linked ") {
            add_linked(archive, architecture)?;
        }
        if let Some(debian) = debian {
            for (name, path) in find_modules(&debian.join("lib/modules")) {
                archive.file(&name, 0o644, &read(&path))?;
            }
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
        let mut kernel = modules().join(&release).join("vmlinuz");
        let mut debian = None;
        if !kernel.exists() {
            let loaded: Vec<String> = MODULES
                .iter()
                .filter(|module| architecture == "x86_64" && script.contains(*module))
                .map(|module| format!("*/{module}.ko"))
                .collect();
            let mut patterns = vec!["./boot/vmlinuz-*"];
            patterns.extend(loaded.iter().map(String::as_str));
            let name = format!("linux-image-{release}");
            let directory = unpacked(architecture, &name, &patterns);
            kernel = directory.join(format!("boot/vmlinuz-{release}"));
            debian = Some(directory);
        }
        compile(architecture, there);
        compile_rust(architecture, there);
        let module = modules().join(&release).join("detach.ko");
        let archive = there.join("initramfs");
        // Those that measure the loop also boot another kernel.
        let second = script.contains(LOOP).then_some(kernel.as_path());
        let content = initramfs(
            script,
            there,
            architecture,
            &module,
            debian.as_deref(),
            second,
        );
        fs::write(&archive, content).expect("written");
        let mut qemu = Command::new(format!("qemu-system-{architecture}"));
        if kind.cpu == EPYC_WITH_GUESTS {
            qemu.args(["-smbios", "type=1,serial=VMware-42 35"]);
        }
        qemu.args(["-machine", kind.machine])
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
            .stdout(Stdio::piped());
        let mut qemu = KillAtEnd(qemu.spawn().expect("QEMU starts"));
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
        self.wait_for(END_OF_CASES);
        let limit = Instant::now() + SILENCE;
        while self.qemu.0.try_wait().expect("a child").is_none() {
            assert!(
                Instant::now() < limit,
                "the machine does not end:\n{}",
                self.output
            );
            thread::sleep(Duration::from_millis(20));
        }
        // What Linux prints for the signals of hostile threads is no error of the kernel.
        let log = self
            .output
            .replace("general protection fault ip:", "signal ip:");
        let errors = kernel_errors(&log, &["log "]);
        let seen = format!("{errors:?}");
        self.report("the_kernel_log_has_no_error", errors.is_empty(), &seen);
        self.output
    }

    /// Adds a case that the test checks itself to the output.
    pub(super) fn report(&mut self, case: &str, passed: bool, seen: &str) {
        self.output += &case_line(case, passed, seen);
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
/// Debian's KVM with PREEMPT_RT needs a clock that is constant, which Linux believes VMware.
pub(super) const EPYC_WITH_GUESTS: &str = "EPYC,-hypervisor,+svm,+npt,check=off";
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
