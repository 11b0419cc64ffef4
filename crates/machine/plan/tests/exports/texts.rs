// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Quoting in exported files: words of a shell, YAML, units.

use rampart_model::{Environment, Nanos};
use rampart_plan::{Engine, Exported, Means, containers, kubernetes, systemd};
use serde_json::Value;

use super::{DESK, PLANT, Resolved};
use crate::example_machines;

fn text<'a>(exported: &'a Exported, path: &str) -> &'a str {
    let file = exported.files.iter().find(|file| file.path == path);
    &file.unwrap_or_else(|| panic!("no {path}")).text
}

/// Returns the words of the first line that begins with this program.
fn words(script: &str, program: &str) -> Vec<String> {
    let line = script
        .lines()
        .find(|line| line.starts_with(program))
        .unwrap_or_else(|| panic!("no {program} in {script}"));
    shlex::split(line).expect("words of a shell")
}

#[test]
fn a_shell_does_not_change_the_words() {
    let resolved = Resolved::on("server", PLANT);
    let exported = containers(&resolved.subject(), Engine::Podman);
    let words = words(text(&exported, "podman.sh"), "podman");
    assert_eq!(
        words,
        [
            "podman",
            "run",
            "--name",
            "rampart-logger",
            "--cpuset-cpus",
            "3",
            "--cpuset-mems",
            "0",
            "--ulimit",
            "rtprio=1:1",
            "--ulimit",
            "memlock=-1:-1",
            "--cap-add",
            "SYS_NICE",
            "--cgroup-parent",
            "rampart-logger.slice",
            "--restart",
            "always",
            "--detach",
            "registry.example/logger:1",
            "/bin/log",
            "it's; $HOME",
        ]
    );
}

#[test]
fn grants_privileges_for_real_time_policies_only() {
    let resolved = Resolved::on("laptop", DESK);
    let exported = containers(&resolved.subject(), Engine::Docker);
    let script = text(&exported, "docker.sh");
    let plain = script
        .lines()
        .find(|line| line.contains("rampart-plain"))
        .expect("the plain container");
    assert!(
        !plain.contains("--cap-add") && !plain.contains("--ulimit"),
        "{plain}"
    );
    let meter = words(script, "docker run --name rampart-Meter_1");
    assert!(meter.contains(&"SYS_NICE".to_owned()), "{meter:?}");
    // SCHED_DEADLINE has no priority.
    assert!(
        !meter.iter().any(|word| word.starts_with("rtprio")),
        "{meter:?}"
    );
    assert!(script.contains("tar -C '/srv/meter root' -c . | docker import - rampart-meter_1"));
}

#[test]
fn writes_a_budget_if_groups_have_one() {
    let plan = "[[domain]]\nname = \"a\"\nkind = \"container\"\ncpus = \"1\"\npolicy = { fifo = 2 }\n\
        container = { engine = \"docker\", image = \"i\" }\n";
    let script = |groups: &str, asked: bool, left: Option<Nanos>| {
        let mut machine = example_machines::quad();
        machine.control_groups = groups.to_owned();
        machine.throttling.group_scheduling = Some(asked);
        machine.throttling.runtime = Some(Nanos::from_millis(950));
        let around = Environment {
            group_budget: left,
            ..Environment::default()
        };
        let resolved = Resolved::of(machine, around, plan);
        let exported = containers(&resolved.subject(), Engine::Docker);
        let script = text(&exported, "docker.sh").to_owned();
        let line = script.lines().find(|line| line.starts_with("docker run"));
        (line.unwrap_or_default().to_owned(), script)
    };
    let left = Some(Nanos(950_000_000));
    let (with, _) = script("v1", true, left);
    assert!(
        with.contains("--cpu-rt-period 1000000 --cpu-rt-runtime 950000"),
        "{with}"
    );
    for (groups, asked, left) in [("v2", true, left), ("v1", false, left), ("v1", true, None)] {
        let (without, _) = script(groups, asked, left);
        assert!(!without.contains("--cpu-rt"), "{groups} {asked}: {without}");
    }
    assert!(script("v1", true, None).1.contains("cannot be read"));
    assert!(
        script("v1", true, Some(Nanos::ZERO))
            .1
            .contains("none is left")
    );
}

#[test]
fn kubernetes_parses_the_manifests() {
    let resolved = Resolved::on("server", PLANT);
    let exported = kubernetes(&resolved.subject()).expect("YAML");
    let read = |path: &str| -> Value {
        serde_saphyr::from_str(text(&exported, path)).unwrap_or_else(|error| panic!("{error}"))
    };
    let kubelet = read("kubernetes/kubelet.yaml");
    assert_eq!(kubelet["reservedSystemCPUs"], "0-2,4-7");
    assert_eq!(kubelet["cpuManagerPolicy"], "static");
    assert_eq!(
        kubelet["cpuManagerPolicyOptions"]["strict-cpu-reservation"],
        "true"
    );
    assert_eq!(kubelet["topologyManagerPolicy"], "single-numa-node");
    let pod = read("kubernetes/pod-logger.yaml");
    let container = &pod["spec"]["containers"][0];
    // Both alike and whole: else a pod has no CPU for itself.
    assert_eq!(
        container["resources"]["requests"],
        container["resources"]["limits"]
    );
    assert_eq!(container["resources"]["limits"]["cpu"], "1");
    assert_eq!(
        container["args"],
        serde_json::json!(["/bin/log", "it's; $HOME"])
    );
    assert_eq!(pod["spec"]["restartPolicy"], "Always");
    assert_eq!(
        pod["spec"]["nodeSelector"]["kubernetes.io/hostname"],
        "server"
    );
    assert_eq!(
        container["securityContext"]["capabilities"]["add"],
        serde_json::json!(["SYS_NICE", "IPC_LOCK"])
    );
}

#[test]
fn quotes_every_word() {
    let plan = "[[domain]]\nname = \"a\"\nkind = \"container\"\ncpus = \"1\"\n\
        container = { engine = \"podman\", image = \"yes\" }\n\
        run = [\"a\\nrm -rf /\", \"$(x)\", \"- b: c\", \"no\", \"#\", \"\\u001b\", \"é\"]\n";
    let resolved = Resolved::of(example_machines::quad(), Environment::default(), plan);
    let subject = resolved.subject();
    let run = &resolved.plan.domains[0].run;
    let script = containers(&subject, Engine::Podman);
    let script = text(&script, "podman.sh");
    let from = script.find("podman run").expect("the command");
    let words = shlex::split(&script[from..]).expect("words");
    let at = words
        .iter()
        .position(|word| word == "yes")
        .expect("the image");
    assert_eq!(&words[at + 1..at + 1 + run.len()], run.as_slice());
    let pod = kubernetes(&subject).expect("YAML");
    let pod: Value = serde_saphyr::from_str(text(&pod, "kubernetes/pod-a.yaml")).expect("YAML");
    assert_eq!(pod["spec"]["containers"][0]["args"], serde_json::json!(run));
    assert_eq!(pod["spec"]["containers"][0]["image"], "yes");
    let units = systemd(&subject, Means::SystemdAlone);
    let unit = text(&units, "systemd/system/rampart-a.service");
    let line = unit
        .lines()
        .find(|line| line.starts_with("ExecStart="))
        .expect("a command");
    assert!(
        line.ends_with(r##""a\nrm -rf /" "$$(x)" "- b: c" no "#" "\x1b" "é""##),
        "{line}"
    );
}
