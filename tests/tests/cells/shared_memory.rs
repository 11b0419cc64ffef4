// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Named shared regions, doorbells, watchdog and registers of cells by the command; and a Linux cell with a
//! device, by a plan and by the library. In one boot of the simulated arm64 machine.

use std::time::Duration;

use rampart_tests::cell_script::ScriptOutput;
use rampart_tests::hypervisor::{assert_nothing_failed, kernel_errors, run_with_command};
use serde_json::Value;

const SCRIPT: &str = r#"
set -u
mkdir /tmp/cells && tar -x -C /tmp/cells && cd /tmp/cells || exit 9
# The CPUs are isolated; what is done here goes everywhere.
taskset -p -c 0-3 $$ >/dev/null
# The machine loads the modules that it finds.
grep -q '^rampart ' /proc/modules && rmmod rampart
mkdir -p /lib/firmware && cp rampart.bin /lib/firmware/ || exit 9
insmod modules/$(uname -r)/rampart.ko || exit 9
dmesg -C
export RAMPART_STATE_DIR=/tmp/state
run() {
    word=$1; shift
    echo "<$word>"
    ./rampart "$@" 2>&1
    echo "</$word> is $?"
}
# The first word of 64 bits of a region.
word() { ./rampart cell read "$1" --bytes 8B | od -An -tu8 | tr -d ' '; }
# Whether a region's first word grows.
grows() {
    before=$(word "$1")
    for wait in $(seq 50); do
        [ "$(word "$1")" -gt "$before" ] && echo "grows $1" && return
        sleep 0.1
    done
    echo "FAILED  $1 stays at $before"
}
run enable cell enable
run describe cell describe --json

# Two cells and the root find a region by its name. Their memory is one range, by colours of the cache.
run greet cell create greet --cpus 3 --cache-percent 25 --shared greeting=4KiB --image rampart-cell-names --json
run echo cell create echo --cpus 2 --cache-percent 70 --argument 1 --shared echo=4KiB --shared-of greet:greeting --image rampart-cell-names
run share-too-large cell create other --cpus 1 --cache-percent 25
run no-share cell create other --cpus 1 --dry-run
run name-twice cell create other --cpus 1 --shared a=4KiB --shared a=4KiB
run name-taken cell create other --cpus 1 --shared greeting=4KiB --shared-of greet:greeting
run no-region cell create other --cpus 1 --shared-of greet:farewell
run not-the-writer cell write greet:greeting /etc/hostname
run start cell start greet echo
grows greet:greeting
grows echo:echo
grows echo:greeting
run list cell list --json
run verbose cell list --verbose
run read-nothing cell read greet:farewell
# Who looks at a region while its cell is destroyed gets an end, and no signal.
./rampart cell read greet:greeting >/dev/null; echo "read is $?"
run destroy cell destroy echo greet

# A bell that one cell has and another rings; the root orders it through a region of its own.
bell=$(./rampart cell create rung --cpus 3 --shared said=4KiB --shared orders=4KiB:root --shared spare=4KiB --bells 1 --dry-run --json |
    tr -d '\n ' | sed -n 's/.*"bells":\[\([0-9]*\).*/\1/p')
run rung cell create rung --cpus 3 --argument "$bell" --shared said=4KiB --shared orders=4KiB:root --shared spare=4KiB --bells 1 --image rampart-cell-bell
own=$(./rampart cell create ringer --cpus 2 --bells 1 --dry-run --json | tr -d '\n ' | sed -n 's/.*"bells":\[\([0-9]*\).*/\1/p')
run ringer cell create ringer --cpus 2 --argument "$own" --shared said=4KiB --shared orders=4KiB:root --shared-of heard=rung:said --bells 1 --rings rung --image rampart-cell-bell
run no-bell cell create other --cpus 1 --rings missing
run start-bells cell start rung ringer
sleep 1
# Word 5 of its page: the number of rings.
rung() { ./rampart cell read rung:said --bytes 48B | od -An -v -w8 -tu8 | sed -n '6s/ //gp'; }
echo "rung before $(rung)"
printf '\1\0\0\0\0\0\0\0' | ./rampart cell write ringer:orders --at 8
for wait in $(seq 50); do [ "$(rung)" -gt 10 ] && break; sleep 0.1; done
echo "rung after $(rung)"
run write-beyond cell write ringer:orders /bin/true --at 4096
run destroy-bells cell destroy rung ringer

# A watchdog, and a bit of a register of a device that Linux has.
run kicks cell create kicks --cpus 3 --argument 4294968296 --shared 4KiB --shared 4KiB:root --watchdog 2s --image rampart-cell-irq
run silent cell create silent --cpus 2 --argument 1000 --watchdog 500ms --register 0x9030400:4:0x1:0x1 --image rampart-cell-irq
run register-taken cell create other --cpus 1 --register 0x9030400:4:0x3:0x3 --image rampart-cell-irq
run start-dogs cell start kicks silent
for wait in $(seq 100); do ./rampart cell list | grep -q 'silent.*failed' && break; sleep 0.1; done
sleep 3
run dogs cell list --json
run destroy-dogs cell destroy kicks silent
run disable cell disable
./cells_agent refused || echo 'FAILED  cells_agent'

# A Linux with a clock of the machine, under a plan.
echo 9010000.pl031 >/sys/bus/amba/drivers/rtc-pl031/unbind || echo 'FAILED  Linux keeps the clock'
./linux_agent initramfs rampart-meter >initramfs.cpio || echo 'FAILED  initramfs'
cat >plan.toml <<PLAN
[machine]
housekeeping = "0-1"
policy = "warn"

[[domain]]
name = "guest"
kind = "cell"
cpus = "3"
memory = { size = "128MiB" }
image = "/boot/vmlinuz-$(uname -r)"
initramfs = "/tmp/cells/initramfs.cpio"
devices = ["pl031@9010000"]
cell = { cache-percent = 50, shared = [{ name = "records", size = "64KiB" }] }

[[domain]]
name = "hung"
kind = "cell"
cpus = "2"
memory = { size = "128MiB" }
image = "/boot/vmlinuz-$(uname -r)"
initramfs = "/tmp/cells/initramfs.cpio"
cell = { arguments = "mem=1M", starts-within = "5s" }

[host]
default = "skip"
PLAN
run apply apply plan.toml
run up up --json
for wait in $(seq 600); do
    ./rampart cell console guest 2>/dev/null | grep -q 'Run /init' && break
    sleep 0.2
done
./rampart cell console guest --follow >followed 2>&1 &
follower=$!
for wait in $(seq 300); do grep -q 'did not start' /tmp/state/domains/hung.json && break; sleep 0.2; done
grep -h 'did not start' /tmp/state/domains/hung.json | sed 's/^/hung record /'
sed 's/^/hung log /' /tmp/state/domains/hung.log
run hung-down down hung
run guest cell list --json
run guest-stats cell stats guest --json
sleep 1
run down down --json
wait $follower; echo "follow is $?"
sed 's/^/cell /' followed
run release release

run enable-again cell enable
./linux_agent device /boot/vmlinuz-$(uname -r) rampart-meter || echo 'FAILED  linux_agent'
run disable-again cell disable
echo "online $(cat /sys/devices/system/cpu/online)"
rmmod rampart || echo 'FAILED  not unloaded'
echo finished
dmesg | sed 's/^/log /'
"#;

#[test]
fn cells_share_named_regions_and_a_linux_cell_uses_a_device() {
    let text = run_with_command(SCRIPT, Duration::from_secs(1800));
    assert_nothing_failed(&text);
    let output = ScriptOutput::new(&text);
    named(&output, &text);
    rung(&output, &text);
    watched(&output);
    planned(&output, &text);
    for wanted in [
        "ok  refused: CpuTwice of entry 4",
        "ok  refused: MemoryReserved of entry",
        "of a table of the system's configuration: the CPU is listed twice (9)",
        "ok  device: the device and its clock are available",
        "ok  device: its interrupts arrive",
        "ok  device: no exit except to mask its interrupt",
        "\nonline 0-3\n",
        "\nfinished\n",
    ] {
        assert!(text.contains(wanted), "no {wanted:?}: {text}");
    }
    let errors = kernel_errors(&text, &["log ", "cell "]);
    assert!(errors.is_empty(), "{errors:#?}\n{text}");
}

/// Returns the writer of a cell's shared region with this name.
fn writer<'a>(cell: &'a Value, name: &str) -> &'a Value {
    let regions = cell["memory"].as_array().expect("its memory");
    let found = regions.iter().find(|region| region["name"] == name);
    &found.unwrap_or_else(|| panic!("no {name}: {cell:#}"))["writer"]
}

fn named(output: &ScriptOutput<'_>, text: &str) {
    output.assert_success("enable");
    // The device tree of QEMU's `virt` has no caches: the driver reads that of the processor.
    let cache = &output.json("describe")["last-cache"];
    assert_eq!(cache["source"], "processor", "{cache:#}");
    let bytes = ["sets", "ways", "line-bytes"].map(|name| cache[name].as_u64().unwrap_or(0));
    let bytes: u64 = bytes.iter().product();
    assert!(bytes >= 256 << 10 && bytes.is_power_of_two(), "{cache:#}");
    assert_eq!(output.json("greet")["shared"][0]["name"], "greeting");
    output.refused(
        "share-too-large",
        &["share of the cache", "25 %", "--cache-percent"],
    );
    let alone = output.of("no-share", 0);
    assert!(
        alone.contains("takes lines of the cache from cell greet"),
        "{alone}"
    );
    assert!(output.of("echo", 0).contains("name greeting"));
    output.refused("name-twice", &["name a", "a unique name"]);
    output.refused("name-taken", &["name greeting"]);
    output.refused("no-region", &["farewell", "named greeting"]);
    output.refused("not-the-writer", &["the root cannot write to it"]);
    output.assert_success("start");
    let list = output.json("list");
    let own = |cell: usize| &list[cell]["memory"][0]["start"];
    assert_eq!(own(0), own(1), "one range: {list:#}");
    assert_eq!(writer(&list[0], "greeting"), "cell", "{list:#}");
    assert_eq!(writer(&list[1], "greeting"), "another cell", "{list:#}");
    assert_eq!(writer(&list[1], "echo"), "cell", "{list:#}");
    let verbose = output.of("verbose", 0);
    assert!(verbose.contains("written by cell, name echo"), "{verbose}");
    let nothing = output.of("read-nothing", 2);
    assert!(nothing.contains("one of greeting"), "{nothing}");
    assert!(text.contains("\nread is 0\n"), "{text}");
    output.assert_success("destroy");
}

fn rung(output: &ScriptOutput<'_>, text: &str) {
    for word in ["rung", "ringer", "start-bells", "destroy-bells"] {
        output.assert_success(word);
    }
    output.refused("no-bell", &["missing", "no such cell"]);
    assert!(
        output
            .of("write-beyond", 2)
            .contains("whole words of 8 bytes")
    );
    assert!(text.contains("\nrung before 0\n"), "{text}");
    let after = text
        .lines()
        .find_map(|line| line.strip_prefix("rung after "));
    let after: u64 = after.and_then(|count| count.parse().ok()).unwrap_or(0);
    assert!(after > 10, "{text}");
}

fn watched(output: &ScriptOutput<'_>) {
    for word in ["kicks", "silent", "start-dogs", "destroy-dogs", "disable"] {
        output.assert_success(word);
    }
    let taken = output.of("register-taken", 4);
    assert!(taken.contains("bits of the register"), "{taken}");
    let dogs = output.json("dogs");
    assert_eq!(dogs[0]["state"], "running", "{dogs:#}");
    assert_eq!(dogs[1]["state"], "failed", "{dogs:#}");
    let reason = &dogs[1]["stop-reason"];
    assert_eq!(reason, "silent for longer than its watchdog allows");
}

fn planned(output: &ScriptOutput<'_>, text: &str) {
    output.assert_success("apply");
    assert_eq!(output.json("up")[0]["outcome"], "running");
    let list = output.json("guest");
    assert_eq!(writer(&list[0], "records"), "cell", "{list:#}");
    assert_eq!(list[0]["interrupts"][0], 34, "{list:#}");
    let stats = output.json("guest-stats");
    assert_eq!(stats[0]["by-cpu"][0]["interrupt-exits"], 0, "{stats:#}");
    assert_eq!(output.json("down")[0]["outcome"], "ended");
    // The process that follows its console ends without being killed.
    assert!(text.contains("\nfollow is 0\n"), "{text}");
    // A kernel that hangs before its console: the log is read from its memory.
    let record = text.lines().find(|line| line.starts_with("hung record"));
    let record = record.unwrap_or_else(|| panic!("no record of the cell that hangs: {text}"));
    assert!(
        record.contains("the last line of its kernel log: ["),
        "{record}"
    );
    let memory =
        |line: &str| line.starts_with("hung log") && line.contains("Memory limited to 1MB");
    assert!(text.lines().any(memory), "{text}");
    output.assert_success("hung-down");
    for wanted in [
        "Run /init as init process",
        "rtc-pl031 9010000.pl031: registered as rtc0",
    ] {
        let is_it = |line: &str| line.starts_with("cell ") && line.contains(wanted);
        assert!(text.lines().any(is_it), "no {wanted:?}: {text}");
    }
    output.assert_success("release");
}
