// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Detached threads on Debian's kernels for x86-64 and arm64, with and without PREEMPT_RT: a control loop under load
//! without an interrupt on its CPU, hostile threads, the CPU given back whatever ends its holder, and another kernel by
//! kexec. The machine is the kernel with a shell (Debian's busybox-static) as its first program, so that QEMU's own log
//! of interrupts, one file for each CPU, belongs to this test alone.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rampart_initramfs::Archive;
use rampart_tests::hypervisor::kernel_errors;
use rampart_tests::limited::Limited as _;
use rampart_tests::packages::{cache_of, fetched_of, unpack};
use rampart_tests::processes::KillAtEnd;
use rampart_tests::programs::{beside_others, directory, left_out};

/// The CPU that is taken.
const CPU: usize = 2;

const RUST_EXAMPLES: [&str; 4] = ["control_loop", "costs", "fixed_work", "system_calls"];

/// How long the machine may be silent.
const SILENCE: Duration = Duration::from_secs(200);

/// `steps` waits for the test, which turns QEMU's log on and off meanwhile.
const BEGIN: &str = r#"#!/bin/busybox sh
for program in mount mkdir insmod rmmod cat dmesg sleep kill seq dd taskset grep sed poweroff true ifconfig tr ls start-stop-daemon; do
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
insmod /detach.ko || echo 'FAILED  not loaded'
dmesg -c >/dev/null
"#;

/// The example under load; then what ends it.
const LOOP: &str = r#"
/control_loop 2 3 && echo 'the example ends'
# The examples in Rust are built for this architecture alone.
if [ -x /rust/system_calls ]; then
    /rust/system_calls 2
    /rust/control_loop 2 3 && echo 'the example in Rust ends'
fi
/control_loop 2 1000 & holder=$!
wait_for /sys/devices/virtual/misc/rampart-detach/running 2
# New processes, memory and page tables, on all CPUs that Linux has.
for worker in 1 2 3; do
    (while :; do dd if=/dev/zero of=/tmp/$worker bs=64k count=50 2>/dev/null; true; done) &
    workers="$workers $!"
done
step detached
sleep 3
step end
kill $workers
rmmod detach 2>/dev/null && echo 'FAILED  unloaded while a CPU is taken'
echo 0 >/sys/devices/system/cpu/cpu3/online && echo 1 >/sys/devices/system/cpu/cpu3/online ||
    echo 'FAILED  another CPU does not go offline and online'
kill -9 $holder
wait_for /sys/devices/system/cpu/online 0-3
wait_for $taken ''
echo 'given back'
step attached
taskset -c 2 sh -c 'for turn in $(seq 20); do true; done; sleep 1'
step end
"#;

/// The command: lists, takes, gives, releases; and a program without privileges.
const COMMAND: &str = r#"
export RAMPART_STATE_DIR=/tmp/state
ulimit -l unlimited
mkdir /etc
echo 'nobody:x:65534:65534::/:/bin/sh' >/etc/passwd
echo 'nogroup:x:65534:' >/etc/group
running=/sys/devices/virtual/misc/rampart-detach/running
/rampart detach
/rampart detach take 2 -- /control_loop 2 1000 & holder=$!
wait_for $running 2
# Without a terminal no line is broken.
/rampart detach | cat
echo "json $(/rampart detach --json | tr -d ' \n')"
/rampart detach take 2 -- /bin/true
/rampart detach give 2
wait_for $taken ''
kill -0 $holder && echo 'the loop goes on under Linux'
kill -9 $holder
/rampart detach take 2 -- /control_loop 2 1000 & holder=$!
wait_for $running 2
/rampart release
wait_for $taken ''
kill -0 $holder && echo 'the loop goes on after the release'
kill -9 $holder
/rampart detach take 2 -- start-stop-daemon -S -c nobody:nogroup -x /control_loop -- -1 2 &&
    echo 'detached without privileges'
wait_for $taken ''
/rampart release
ls /tmp/state/detached/journal | sed 's/^/journal /'
"#;

/// A domain of a plan: checked, applied, its program run and supervised, released.
const PLAN: &str = r#"
export RAMPART_STATE_DIR=/tmp/state
running=/sys/devices/virtual/misc/rampart-detach/running
mount -t cgroup2 none /sys/fs/cgroup
cat >/plan.toml <<END
[machine]
housekeeping = "0-1"
[[domain]]
name = "loop"
kind = "detached"
cpus = "2-3"
run = ["/control_loop", "3", "1000"]
END
/rampart plan check /plan.toml; echo "plan check $?"
/rampart apply /plan.toml >/tmp/applied 2>&1; echo "apply $?"
cat /tmp/applied
/rampart run --list
/rampart run loop -- /control_loop 3 2 && echo 'a program of the domain detaches'
wait_for $taken ''
/rampart run loop --cpus 2 -- /control_loop -1 1 && echo 'and with one CPU'
wait_for $taken ''
/rampart move --to loop 1
/rampart up loop; echo "up $?"
wait_for $running 3
/rampart detach | cat
/rampart status; echo "status $?"
/rampart release && echo 'FAILED  released while a program runs'
/rampart down; echo "down $?"
wait_for $taken ''
/rampart release; echo "release $?"
"#;

/// The paper's experiment and the costs.
const EXPERIMENT: &str = r#"
(while :; do dd if=/dev/zero of=/tmp/load bs=64k count=50 2>/dev/null; done) & load=$!
/rust/fixed_work 2 3
kill $load
/rust/costs 2
"#;

const ALL: &str = r#"
/detach-test all 2
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
struct Kind {
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

    /// Returns the C compiler.
    fn compiler(&self) -> &'static str {
        if self.architecture == std::env::consts::ARCH {
            "cc"
        } else {
            "aarch64-linux-gnu-gcc"
        }
    }
}

/// Returns the newest release that modules are built for.
fn release(kind: &Kind) -> String {
    let modules = directory().join("modules");
    let releases = fs::read_dir(&modules)
        .unwrap_or_else(|error| panic!("{}: {error}; run `make modules`", modules.display()));
    releases
        .flatten()
        .filter(|entry| entry.path().join("detach.ko").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|release| release.ends_with(kind.flavour()))
        .filter(|release| release.contains("-rt-") == kind.real_time)
        .max()
        .unwrap_or_else(|| {
            panic!(
                "no module `detach`; run `kernel/build --out bin/modules {} bookworm bookworm/stock`",
                kind.architecture
            )
        })
}

/// Compiles the examples in Rust for a machine without a C library.
fn compile_rust(to: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let script = ". scripts/rust-target; use_target x86_64; \
        cargo build --locked --release --package rampart-detach --examples $target_options >&2; \
        echo ${CARGO_TARGET_DIR:-target}/$target/release/examples";
    let output = Command::new("sh")
        .args(["-euc", script])
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

/// Compiles the examples and the test program.
fn compile(kind: &Kind, to: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let library = root.join("crates/domains/detached/c");
    for (name, source) in [
        ("control_loop", library.join("examples/control_loop.c")),
        (
            "detach-test",
            root.join("kernel/detach/tests/detach-test.c"),
        ),
    ] {
        let output = Command::new(kind.compiler())
            .args([
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
                "-Wno-infinite-recursion",
            ])
            .args(["-Werror", "-O2", "-static", "-pthread", "-I"])
            .arg(&library)
            .arg("-I")
            .arg(root.join("kernel/detach"))
            .arg("-o")
            .arg(to.join(name))
            .arg(source)
            .arg(library.join("detached.c"))
            .finish()
            .expect("the compiler starts");
        assert!(output.status.success(), "{output:?}");
    }
}

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
fn initramfs(script: &str, location: &Path, module: &Path, kernel: Option<&Path>) -> Vec<u8> {
    let first = [BEGIN, script, END].concat();
    let mut archive = small_archive(&first, location);
    let written = |archive: &mut Archive<Vec<u8>>| -> std::io::Result<()> {
        archive.file("detach.ko", 0o644, &read(module))?;
        for program in ["control_loop", "detach-test"] {
            archive.file(program, 0o755, &read(&location.join(program)))?;
        }
        if let Some(kernel) = kernel {
            let second = small_archive(SECOND, location).finish()?;
            archive.file("second", 0o644, &second)?;
            archive.file("kernel", 0o644, &read(kernel))?;
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
struct Machine {
    qemu: KillAtEnd,
    location: tempfile::TempDir,
    lines: Receiver<String>,
    output: String,
}

impl Machine {
    fn boot(script: &str, real_time: bool, cpu: &'static str) -> Self {
        let kind = Kind {
            architecture: "x86_64",
            real_time,
            cpu,
            machine: "pc",
            command_line: "console=ttyS0 no_timer_check",
        };
        Self::boot_kind(script, &kind)
    }

    fn boot_kind(script: &str, kind: &Kind) -> Self {
        let architecture = kind.architecture;
        let release = release(kind);
        let location = tempfile::tempdir().expect("a directory");
        let there = location.path();
        for (name, pattern) in [
            (format!("linux-image-{release}"), "./boot/vmlinuz-*"),
            ("busybox-static".to_owned(), "*/busybox"),
        ] {
            let cache = cache_of(architecture).join("stock-kernel");
            let package = fetched_of(architecture, &name, &cache);
            let package = package.unwrap_or_else(|| panic!("the archive has no {name}"));
            unpack(&package, pattern, there);
        }
        compile(kind, there);
        if architecture == "x86_64" {
            compile_rust(there);
        }
        let module = directory().join("modules").join(&release).join("detach.ko");
        let archive = there.join("initramfs");
        let kernel = there.join(format!("boot/vmlinuz-{release}"));
        // Those that measure the loop also boot another kernel. Debian's 6.1 for arm64 has no kexec_file_load(2).
        let boots_second = script.contains(LOOP) && architecture == "x86_64";
        let second = boots_second.then_some(kernel.as_path());
        fs::write(&archive, initramfs(script, there, &module, second)).expect("written");
        let qemu = Command::new(format!("qemu-system-{architecture}"))
            .args(["-machine", kind.machine, "-accel", "tcg,thread=multi"])
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
    fn wait_for(&mut self, wanted: &str) {
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

    /// Lets the script go on after a step.
    fn go_on(&mut self) {
        let input = self.qemu.0.stdin.as_mut().expect("a pipe");
        input.write_all(b"\n").expect("QEMU reads");
    }

    /// Runs a command of QEMU's monitor and returns its output.
    fn monitor(&self, command: &str) -> String {
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
    fn log_step(&mut self, name: &str) -> [u64; 4] {
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
    fn end(mut self) -> String {
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
        assert!(!self.output.contains("FAILED"), "{}", self.output);
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

/// Few random programs are always the same.
fn repeat(times: u32, fuzz: u32) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = if fuzz == MANY_PROGRAMS {
        now.map_or(0, |time| time.as_secs())
    } else {
        1000
    };
    format!("/detach-test repeat 2 {times}\n/detach-test fuzz 2 {fuzz} {seed}\n")
}

/// EPYC has SMAP and no page-table isolation; Skylake has page-table isolation and protection keys. Without
/// `hypervisor` Linux uses the CPU as on a real machine.
const EPYC: &str = "EPYC,-hypervisor,check=off";
const SKYLAKE: &str = "Skylake-Server,-hypervisor,-smap,check=off";

/// EL2 without VHE, EL1 with PSCI by HVC, and EL2 with VHE, pointer authentication, tags, SVE and SME.
const NO_VHE: Kind = Kind {
    architecture: "aarch64",
    real_time: true,
    cpu: "cortex-a57",
    machine: "virt,gic-version=3,virtualization=on",
    command_line: "console=ttyAMA0",
};
const NO_EL2: Kind = Kind {
    machine: "virt,gic-version=3",
    ..NO_VHE
};
const VHE: Kind = Kind {
    real_time: false,
    cpu: "max,pauth-impdef=on",
    machine: "virt,gic-version=3,virtualization=on,mte=on",
    ..NO_VHE
};

/// Returns whether programs for arm64 can be compiled.
fn has_compiler(test: &str) -> bool {
    let found = Command::new(NO_VHE.compiler()).arg("--version").finish();
    if found.is_err() {
        left_out(&format!(
            "{test}: no {}; run `scripts/setup test`",
            NO_VHE.compiler()
        ));
    }
    found.is_ok()
}

#[test]
fn a_loop_under_load_has_no_interrupt_and_its_cpu_is_given_back() {
    let _machine = beside_others();
    let script = [LOOP, &repeat(12, 10)].concat();
    let output = check_loop(Machine::boot(&script, true, EPYC));
    for expected in [
        "second kernel with CPUs 0-3",
        "the example in Rust ends",
        "proxied: executed, detached",
        "refused: ENOSYS, detached",
        "reattach: executed, attached",
    ] {
        assert!(output.contains(expected), "no {expected:?}:\n{output}");
    }
}

#[test]
fn a_loop_on_arm64_has_no_interrupt_and_its_cpu_is_given_back() {
    let _machine = beside_others();
    if has_compiler("a detached loop on arm64") {
        let script = [LOOP, &repeat(12, 10)].concat();
        check_loop(Machine::boot_kind(&script, &NO_VHE));
    }
}

fn check_loop(mut machine: Machine) -> String {
    let detached = machine.log_step("detached");
    assert_eq!(
        detached[CPU], 0,
        "{detached:?} bytes: interrupts on CPU {CPU}"
    );
    for other in [0, 1, 3] {
        assert!(
            detached[other] > 0,
            "{detached:?} bytes: nothing on CPU {other}"
        );
    }
    // The same log shows the CPU's interrupts when Linux has it again.
    let attached = machine.log_step("attached");
    assert!(
        attached[CPU] > 0,
        "{attached:?} bytes: nothing on CPU {CPU}"
    );
    let output = machine.end();
    for expected in [
        "attached 0 worst",
        "system calls 1 faults 0 kicks ",
        " flushes 0 interrupts 0",
        "the example ends",
        "given back",
        "ok      taken and given back 12 times",
    ] {
        assert!(output.contains(expected), "no {expected:?}:\n{output}");
    }
    output
}

#[test]
fn the_command_lists_takes_and_gives_back() {
    let _machine = beside_others();
    let output = Machine::boot(COMMAND, true, EPYC).end();
    for expected in [
        "No CPU is taken.",
        "running  control_loop (",
        "json [{\"cpu\":2,\"state\":\"running\",\"holders\":[{\"process\":",
        ",\"interrupts\":0}}]",
        "CPU 2: cannot be taken: ",
        "CPU 2 is given back to Linux",
        "the loop goes on under Linux",
        "/sys/devices/system/cpu/cpu2: given back by process",
        "the loop goes on after the release",
        "detached without privileges",
    ] {
        assert!(output.contains(expected), "no {expected:?}:\n{output}");
    }
    assert!(
        !output.contains("\njournal "),
        "a journal is left:\n{output}"
    );
}

#[test]
fn a_plan_gives_a_program_cpus_to_detach_to() {
    let _machine = beside_others();
    let output = Machine::boot(PLAN, true, EPYC).end();
    for expected in [
        "plan check 0",
        "apply 0",
        "detached (taken from Linux)",
        "a program of the domain detaches",
        "and with one CPU",
        "rampart run loop -- PROGRAM",
        "up 0",
        "running  control_loop (",
        "status 0",
        "down 0",
        "release 0",
    ] {
        assert!(output.contains(expected), "no {expected:?}:\n{output}");
    }
}

#[test]
fn the_experiment_counts_interrupts_and_costs() {
    let _machine = beside_others();
    let output = Machine::boot(EXPERIMENT, true, EPYC).end();
    let interrupts = |name: &str| -> u64 {
        let line = output.lines().find(|line| line.starts_with(name));
        let words = line.and_then(|line| line.trim().strip_suffix(" interrupts"));
        let number = words.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        number.unwrap_or_else(|| panic!("no {name:?}:\n{output}"))
    };
    assert!(interrupts("attached: ") > 10, "{output}");
    assert_eq!(interrupts("detached: "), 0, "{output}");
    // 200 calls, and one that attaches the thread after each of both measurements.
    assert!(output.contains("counted: 202 system calls, 20"), "{output}");
    for expected in [
        "times an attached system call",
        "times an attached page fault",
    ] {
        assert!(output.contains(expected), "no {expected:?}:\n{output}");
    }
}

#[test]
fn hostile_threads_harm_neither_kernel_nor_cpu() {
    let _machine = beside_others();
    for (real_time, cpu) in [(true, EPYC), (false, SKYLAKE)] {
        let output = Machine::boot(ALL, real_time, cpu).end();
        assert!(output.contains("\n0 failed"), "{output}");
        assert_eq!(output.contains("far_kernel"), cpu == SKYLAKE, "{output}");
    }
}

#[test]
fn hostile_threads_on_arm64_harm_neither_kernel_nor_cpu() {
    let _machine = beside_others();
    for kind in [NO_EL2, VHE] {
        if has_compiler("hostile threads on arm64") {
            let output = Machine::boot_kind(ALL, &kind).end();
            assert!(output.contains("\n0 failed"), "{output}");
        }
    }
}

/// Random programs of `make test-long`: hours. Others each time; a failure names its seed.
const MANY_PROGRAMS: u32 = 20_000;

#[test]
#[ignore = "it takes hours; make test-long runs it"]
fn a_cpu_is_taken_and_given_back_a_thousand_times() {
    let _machine = beside_others();
    for (real_time, cpu) in [(true, EPYC), (false, SKYLAKE)] {
        check_thousand(Machine::boot(&repeat(1000, MANY_PROGRAMS), real_time, cpu));
    }
}

#[test]
#[ignore = "it takes hours; make test-long runs it"]
fn a_cpu_of_arm64_is_taken_and_given_back_a_thousand_times() {
    let _machine = beside_others();
    for kind in [NO_VHE, NO_EL2, VHE] {
        if has_compiler("a thousand detached threads on arm64") {
            check_thousand(Machine::boot_kind(&repeat(1000, MANY_PROGRAMS), &kind));
        }
    }
}

fn check_thousand(machine: Machine) {
    let output = machine.end();
    for expected in [
        "taken and given back 1000 times".to_owned(),
        format!("{MANY_PROGRAMS} random programs"),
    ] {
        assert!(output.contains(&expected), "no {expected:?}:\n{output}");
    }
}
