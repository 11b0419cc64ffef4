// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks exported files with the tools: systemd-analyze, libvirt's schema, a shell, and TuneD's parser
//! or the Python parser that it is based on. Skips tools that are not installed; `scripts/setup test`
//! installs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rampart_plan::{Engine, Exported, Means, containers, libvirt, systemd, tuned};

use super::{DESK, PLANT, Resolved, settings};

/// Runs a tool for at most a minute; returns `None` if it is not installed.
fn tool(program: &str, arguments: &[&str], path: Option<&Path>) -> Option<Output> {
    let there = Command::new("sh")
        .args(["-c", "command -v \"$1\" > /dev/null", "sh", program])
        .status();
    if !there.is_ok_and(|status| status.success()) {
        return None;
    }
    let mut command = Command::new("timeout");
    command.args(["60", program]).args(arguments);
    if let Some(path) = path {
        command.env("PATH", format!("{}:/usr/bin:/bin", path.display()));
    }
    Some(command.output().expect("timeout starts"))
}

fn write(exported: &Exported, directory: &Path) -> Vec<PathBuf> {
    exported
        .files
        .iter()
        .map(|file| {
            let path = directory.join(&file.path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(&path, &file.text).expect("a file");
            path
        })
        .collect()
}

#[test]
fn systemd_accepts_every_line() {
    for (machine, plan) in [("server", PLANT), ("laptop", DESK)] {
        for means in [Means::Rampart("/bin/true"), Means::SystemdAlone] {
            let resolved = Resolved::on(machine, plan);
            let directory = tempfile::tempdir().expect("a directory");
            let paths = write(&systemd(&resolved.subject(), means), directory.path());
            let units: Vec<&str> = paths
                .iter()
                .filter(|path| path.extension().is_some_and(|kind| kind != "conf"))
                .filter_map(|path| path.to_str())
                .collect();
            let mut arguments = vec!["verify", "--man=no", "--recursive-errors=no"];
            arguments.extend(&units);
            let Some(output) = tool("systemd-analyze", &arguments, None) else {
                return;
            };
            let printed = String::from_utf8_lossy(&output.stderr);
            // The programs of the domains do not exist on this machine.
            let wrong: Vec<&str> = printed
                .lines()
                .filter(|line| !line.contains("is not executable"))
                .filter(|line| line.contains("rampart") || line.contains("/"))
                .collect();
            assert!(wrong.is_empty(), "{machine} {means:?}: {wrong:#?}");
            if means != Means::SystemdAlone {
                assert!(output.status.success(), "{printed}");
            }
        }
    }
}

/// Checks that the test above can fail.
#[test]
fn systemd_reports_unknown_lines() {
    let directory = tempfile::tempdir().expect("a directory");
    let unit = directory.path().join("rampart-x.service");
    fs::write(&unit, "[Service]\nExecStart=/bin/true\nAllowedCPU=1\n").expect("a file");
    let unit = unit.to_str().expect("a path");
    let arguments = ["verify", "--man=no", "--recursive-errors=no", unit];
    if let Some(output) = tool("systemd-analyze", &arguments, None) {
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(printed.contains("Unknown key 'AllowedCPU'"), "{printed}");
    }
}

#[test]
fn libvirt_accepts_the_guests() {
    for (machine, plan) in [("server", PLANT), ("laptop", DESK)] {
        let resolved = Resolved::on(machine, plan);
        let directory = tempfile::tempdir().expect("a directory");
        let exported = libvirt(&resolved.subject(), None).expect("XML");
        let paths = write(&exported, directory.path());
        assert_eq!(paths.len(), 1, "{machine}");
        for path in paths {
            let path = path.to_str().expect("a path");
            if let Some(output) = tool("virt-xml-validate", &[path, "domain"], None) {
                assert!(output.status.success(), "{machine}: {output:?}");
            }
        }
    }
}

/// Runs the script in a shell, with an engine that prints its arguments.
#[test]
fn a_shell_runs_the_script() {
    for (engine, machine, plan, containers_of) in [
        (Engine::Podman, "server", PLANT, 1),
        (Engine::Docker, "laptop", DESK, 2),
    ] {
        let resolved = Resolved::on(machine, plan);
        let directory = tempfile::tempdir().expect("a directory");
        let paths = write(&containers(&resolved.subject(), engine), directory.path());
        let fake = directory.path().join(engine.word());
        fs::write(&fake, "#!/bin/sh\nprintf '<%s>' \"$@\"\necho\n").expect("a file");
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&fake, permissions).expect("permissions");
        let script = paths
            .first()
            .and_then(|path| path.to_str())
            .expect("a script");
        let output = tool("sh", &[script], Some(directory.path())).expect("a shell");
        assert!(output.status.success(), "{output:?}");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(printed.lines().count(), containers_of, "{printed}");
        if engine == Engine::Podman {
            assert!(printed.contains("</bin/log><it's; $HOME>"), "{printed}");
        }
    }
}

#[test]
fn the_engine_supports_the_options() {
    let resolved = Resolved::on("server", PLANT);
    let exported = containers(&resolved.subject(), Engine::Podman);
    let text = &exported.files[0].text;
    let line = text
        .lines()
        .find(|line| line.starts_with("podman run"))
        .expect("a command");
    let words = shlex::split(line).expect("words");
    for program in ["podman", "docker"] {
        let Some(output) = tool(program, &["run", "--help"], None) else {
            continue;
        };
        let help = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() || !help.contains("--name") {
            continue;
        }
        for option in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.contains(&format!("{option} ")), "{program}: {option}");
        }
    }
}

/// Parses a profile as TuneD does, and prints its sections.
const READER: &str = r#"
import sys
path = sys.argv[1]
try:
    from tuned.profiles.loader import Loader
    config = Loader(None, None, None, None, None)._load_config_data(path)
except ImportError:
    import configparser
    parser = configparser.ConfigParser(delimiters=('='), inline_comment_prefixes=('#'), strict=False)
    parser.optionxform = str
    with open(path) as f:
        parser.read_file(f, path)
    config = {s: {o: parser.get(s, o, raw=True) for o in parser.options(s)} for s in parser.sections()}
for section, options in config.items():
    for option, value in options.items():
        print('%s|%s|%s' % (section, option, value))
"#;

#[test]
fn tuned_loads_the_profile() {
    let resolved = Resolved::on("server", PLANT);
    let directory = tempfile::tempdir().expect("a directory");
    let paths = write(&tuned(&resolved.subject(), &settings()), directory.path());
    let path = paths
        .first()
        .and_then(|path| path.to_str())
        .expect("a profile");
    let Some(output) = tool("/usr/bin/python3", &["-c", READER, path], None) else {
        return;
    };
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in [
        "variables|isolated_cores|2-3,6-7",
        "systemd|cpu_affinity|${housekeeping_cores}",
        "scheduler|group.rcuc|0:f:4:*:^\\[rcuc",
        "scheduler|ps_blacklist|^/opt/press/control;^/bin/log;qemu-(system|kvm)",
        "sysctl|kernel.nmi_watchdog|0",
        "sysctl|net.ipv4.conf.eth0/1.arp_filter|\\${x}",
        "sysfs|/sys/devices/virtual/workqueue/cpumask|3",
        "bootloader|cmdline_rampart|+skew_tick=1 isolcpus=managed_irq,domain,2",
    ] {
        assert!(
            printed.lines().any(|read| read == line),
            "{line}: {printed}"
        );
    }
    assert!(!printed.contains("swappiness"), "{printed}");
}
