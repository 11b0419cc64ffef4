// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart cell`, and a plan with a cell, in one boot of the simulated arm64 machine.

use std::time::Duration;

use rampart_tests::cell_script::ScriptOutput;
use rampart_tests::hypervisor::{assert_nothing_failed, kernel_errors, run_with_command};
use serde_json::Value;

/// In the script, `run WORD COMMAND…` prints the output of the command between two lines with the word, and its
/// exit code.
const SCRIPT: &str = r#"
set -u
mkdir /tmp/cells && tar -x -C /tmp/cells && cd /tmp/cells || exit 9
# The CPUs are isolated; what is done here goes everywhere.
taskset -p -c 0-3 $$ >/dev/null
# The machine loads the modules that it finds.
grep -q '^rampart ' /proc/modules && rmmod rampart
dmesg -C
export RAMPART_STATE_DIR=/tmp/state
run() {
    word=$1; shift
    echo "<$word>"
    ./rampart "$@" 2>&1
    echo "</$word> is $?"
}
run list-early cell list
run describe cell describe --json
run enable-without-image cell enable --module modules/$(uname -r)/rampart.ko
run enable cell enable --module modules/$(uname -r)/rampart.ko --image rampart.bin
run enable-again cell enable --json
run disable-unused cell disable
grep -q '^rampart ' /proc/modules && echo 'FAILED  not unloaded'
[ -e /lib/firmware/rampart.bin ] && echo 'FAILED  the image was installed'
[ -z "$(cat /sys/module/firmware_class/parameters/path)" ] || echo 'FAILED  the search path of firmware'
run enable-anew cell enable --module modules/$(uname -r)/rampart.ko --image rampart.bin
run dry cell create press --cpus 3 --argument 1000 --dry-run --json
run create cell create press --cpus 3 --argument 1000 --image rampart-cell-irq --json
run start cell start press
sleep 2
run stats cell stats --json
run cpu-taken cell create other --cpus 3
run cpu-of-linux cell create other --cpus 0
run name-taken cell create press --cpus 2
run too-much cell create other --cpus 2 --memory 1GiB
run driver-bound cell create other --cpus 2 --device pl061
run shared-page cell create other --cpus 2 --device virtio_mmio@a000000
run no-device cell create other --cpus 2 --device moon
run load-running cell load press rampart-cell-irq
run no-console cell console press
run create-attack cell create attack --cpu-count 1 --argument 1 --image rampart-cell-attack
run start-attack cell start attack
for wait in $(seq 100); do
    ./rampart cell list | grep -q 'attack.*failed' && break
    sleep 0.1
done
run standby-no-kernel cell standby spare --kernel rampart-meter --initramfs rampart-meter
run standby cell standby spare --kernel /boot/vmlinuz-$(uname -r) --initramfs rampart-meter --memory 128MiB
run standby-twice cell standby spare --kernel /boot/vmlinuz-$(uname -r) --initramfs rampart-meter --memory 512MiB
run standby-list cell list --json
run standby-destroy cell destroy spare
run list cell list --json
run verbose cell list --verbose
run stop cell stop press
run stop-again cell stop press
run start-again cell start press
run disable-with-cells cell disable
run some cell destroy attack missing
run unknown cell start missing
run destroy cell destroy press
run disable cell disable
run disable-again cell disable

# What is installed is used, and left.
mkdir -p /lib/firmware && cp rampart.bin /lib/firmware/ || exit 9
insmod modules/$(uname -r)/rampart.ko || exit 9
cat >plan.toml <<'PLAN'
[machine]
housekeeping = "0-1"
policy = "warn"

[[domain]]
name = "press"
kind = "cell"
cpus = "3"
memory = { size = "2MiB" }
image = "/tmp/cells/rampart-cell-irq"
cell = { argument = 1000 }

[[standby]]
name = "spare"
kernel = "KERNEL"
initramfs = "/tmp/cells/rampart-meter"
memory = "128MiB"

[host]
default = "skip"
PLAN
sed -i "s|KERNEL|/boot/vmlinuz-$(uname -r)|" plan.toml
run apply apply plan.toml
run enter-cell run press -- true
run up up --json
run up-again up
run up-list cell list --json
run status status --json
run release-under-it release
pid=$(sed -n 's/.*"supervisor": *{[^}]*"process": *\([0-9]*\).*/\1/p' /tmp/state/domains/press.json)
[ -n "$pid" ] || pid=$(tr -d '\n ' </tmp/state/domains/press.json | sed -n 's/.*"supervisor":{"process":\([0-9]*\).*/\1/p')
kill -KILL "$pid"
sleep 1
run list-orphan cell list --json
run up-orphan up
run down-orphan down
run list-down cell list
run up-anew up
run down down press --json
run standby-left cell list --json
run release release
run disabled cell list
echo "online $(cat /sys/devices/system/cpu/online)"
rmmod rampart || echo 'FAILED  not unloaded'
echo finished
dmesg | sed 's/^/log /'
"#;

#[test]
fn cells_are_managed_by_command_and_by_plan() {
    let text = run_with_command(SCRIPT, Duration::from_secs(1800));
    let output = ScriptOutput::new(&text);
    described(&output);
    launched(&output);
    made(&output);
    refused(&output);
    watched(&output);
    kept(&output);
    ended(&output);
    planned(&output);
    assert!(text.contains("\nonline 0-3\n"), "CPUs are missing: {text}");
    assert_nothing_failed(&text);
    assert!(text.contains("\nfinished\n"), "{text}");
    let errors = kernel_errors(&text, &["log "]);
    assert!(errors.is_empty(), "{errors:#?}\n{text}");
}

fn described(output: &ScriptOutput<'_>) {
    let description = output.json("describe");
    let problems = description["findings"].as_array().expect("findings");
    let problem = problems
        .iter()
        .find(|finding| finding["severity"] == "error");
    assert_eq!(problem, None, "{description:#}");
    assert_eq!(description["cpus"].as_array().expect("CPUs").len(), 4);
    assert_eq!(description["interrupt-controller"]["version"], 3);
    // mem=768M leaves the rest.
    let kept = &description["kept"];
    assert_eq!(kept[0]["start"], 0x7000_0000_u64, "{kept}");
    assert_eq!(kept[0]["bytes"], 0x2000_0000_u64, "{kept}");
    let devices = description["devices"].as_array().expect("devices");
    let serial = devices
        .iter()
        .find(|device| device["path"] == "/pl011@9000000");
    let serial = serial.expect("the serial port");
    assert_eq!(serial["interrupts"][0]["number"], 33, "{serial:#}");
    assert_eq!(serial["linux"]["driver"], "uart-pl011", "{serial:#}");
}

fn launched(output: &ScriptOutput<'_>) {
    output.refused("list-early", &["/dev/rampart"]);
    output.refused("enable-without-image", &["rampart.bin", "--image"]);
    assert!(
        output
            .of("enable", 0)
            .contains("enabled, memory 0x8f800000")
    );
    assert_eq!(output.json("enable-again")["already"], true);
    let disabled = output.of("disable-unused", 0);
    assert!(
        disabled.contains("disabled") && disabled.contains("unloaded"),
        "{disabled}"
    );
    output.assert_success("enable-anew");
}

fn made(output: &ScriptOutput<'_>) {
    let dry = output.json("dry");
    assert_eq!(dry["number"], Value::Null);
    let created = output.json("create");
    assert_eq!(created["number"], 1, "{created:#}");
    assert_eq!(created["cpus"], "3");
    assert_eq!(created["memory"]["start"], 0x7000_0000_u64);
    assert_eq!(created["memory"]["guest"], 0x4000_0000_u64);
    assert_eq!(created["shared"], dry["shared"]);
    output.assert_success("start");
    let stats = output.json("stats");
    let cpu = &stats[0]["by-cpu"][0];
    assert_eq!(stats[0]["state"], "running", "{stats:#}");
    assert_eq!(cpu["number"], 3, "{stats:#}");
    assert_eq!(cpu["interrupt-exits"], 0, "{stats:#}");
    assert!(cpu["exits"].as_u64() > Some(0), "{stats:#}");
}

fn refused(output: &ScriptOutput<'_>) {
    output.refused("cpu-taken", &["CPU 3", "owned by cell press"]);
    output.refused(
        "cpu-of-linux",
        &["CPU 0", "housekeeping", "use CPUs of 1-2"],
    );
    output.refused("name-taken", &["rampart cell destroy press"]);
    output.refused("too-much", &["memory", "512MiB", "1GiB"]);
    output.refused("driver-bound", &["pl061_gpio", "unbind"]);
    output.refused("shared-page", &["virtio_mmio@a000200", "pages of its own"]);
    output.refused("no-device", &["moon", "rampart cell describe"]);
    output.refused("load-running", &["running", "rampart cell stop press"]);
    output.refused("no-console", &["console"]);
}

fn watched(output: &ScriptOutput<'_>) {
    let list = output.json("list");
    let attack = &list[1];
    assert_eq!(attack["name"], "attack", "{list:#}");
    assert_eq!(attack["state"], "failed", "{list:#}");
    assert_eq!(attack["stop-reason"], "read outside its memory");
    assert_eq!(attack["cpus"], "2");
    let failure = &attack["failure"];
    assert_eq!(failure["registers"].as_array().map(Vec::len), Some(31));
    assert_eq!(failure["guest-address"], "0x70000000", "{failure:#}");
    let verbose = output.of("verbose", 0);
    assert!(
        verbose.contains("latest failure: read outside"),
        "{verbose}"
    );
    assert!(verbose.contains("x30 0x"), "{verbose}");
}

fn kept(output: &ScriptOutput<'_>) {
    output.refused(
        "standby-no-kernel",
        &["unusable kernel image", "arm64 Image"],
    );
    let standby = output.of("standby", 0);
    assert!(standby.contains("spare"), "{standby}");
    output.refused("standby-twice", &["spare"]);
    let list = output.json("standby-list");
    assert_eq!(list[2]["name"], "spare", "{list:#}");
    assert_eq!(list[2]["cpus"], "", "{list:#}");
    output.assert_success("standby-destroy");
}

fn ended(output: &ScriptOutput<'_>) {
    for word in ["stop", "stop-again", "start-again", "destroy", "disable"] {
        output.assert_success(word);
    }
    output.refused("disable-with-cells", &["press", "--destroy-cells"]);
    let some = output.of("some", 5);
    assert!(some.contains("cell attack is destroyed"), "{some}");
    assert!(some.contains("missing"), "{some}");
    assert!(output.of("unknown", 2).contains("no such cell"));
    assert!(output.of("disable-again", 0).contains("was not enabled"));
}

fn planned(output: &ScriptOutput<'_>) {
    output.assert_success("apply");
    assert!(
        output
            .of("enter-cell", 2)
            .contains("a cell runs no process of this Linux")
    );
    let up = output.json("up");
    assert_eq!(up[0]["outcome"], "running", "{up:#}");
    assert_eq!(
        (&up[1]["name"], &up[1]["outcome"]),
        (&"spare".into(), &"kept".into())
    );
    let again = output.of("up-again", 0);
    assert!(
        again.contains("is up") && again.contains("is kept"),
        "{again}"
    );
    let list = output.json("up-list");
    assert_eq!(list[0]["name"], "press", "{list:#}");
    assert_eq!(list[0]["state"], "running", "{list:#}");
    assert_eq!(list[1]["state"], "kept", "{list:#}");
    let status: Value = output.json("status");
    let offline = status["findings"].as_array().map(|findings| {
        let about = |finding: &&Value| finding["kind"] == "cpu-offline";
        findings.iter().filter(about).count()
    });
    assert_eq!(offline, Some(0), "{status:#}");
    output.refused("release-under-it", &["press", "rampart down"]);
    // Its supervisor is killed: the cell continues, and is found by its name.
    assert_eq!(output.json("list-orphan")[0]["state"], "running");
    let orphan = output.of("up-orphan", 5);
    assert!(
        orphan.contains("rampart down") && orphan.contains("is kept"),
        "{orphan}"
    );
    let down = output.of("down-orphan", 0);
    assert!(
        down.contains("destroyed") && down.contains("removed"),
        "{down}"
    );
    assert!(output.of("list-down", 0).contains("No cell exists"));
    output.assert_success("up-anew");
    assert_eq!(output.json("down")[0]["outcome"], "ended");
    let left = output.json("standby-left");
    assert_eq!(
        (&left[0]["name"], &left[0]["state"]),
        (&"spare".into(), &"kept".into())
    );
    // The standby and the hypervisor that `up` started end with the plan.
    let released = output.of("release", 0);
    assert!(
        released.contains("standby spare") && released.contains("hypervisor"),
        "{released}"
    );
    output.refused("disabled", &["rampart cell enable"]);
}
