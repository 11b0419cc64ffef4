// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packages are made of the built programs, installed in an empty root file system, and used there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use rampart_tests::limited::Limited as _;
use rampart_tests::programs::{
    alone, directory, exit_code, is_root_with_cpus, left_out, stderr, stdout,
};

const LIMIT: Duration = Duration::from_secs(300);

fn source() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Runs a program and returns its output; `None` if it is not installed.
fn run(program: &str, arguments: &[&str]) -> Option<Output> {
    let output = Command::new(program)
        .args(arguments)
        .finish_within(LIMIT, Vec::new());
    match output {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => panic!("{program}: {error}"),
    }
}

/// As [`run`], and reports what is not tested if the program is not installed.
fn run_or_leave_out(program: &str, arguments: &[&str], what: &str) -> Option<Output> {
    let output = run(program, arguments);
    if output.is_none() {
        left_out(&format!("{what}: {program} is not installed"));
    }
    output
}

/// Makes the packages of an architecture and returns the one whose name ends like this.
fn package(architecture: &str, to: &Path) -> impl Fn(&str) -> Option<PathBuf> + use<> {
    let programs = directory().canonicalize().expect("the programs");
    let output = Command::new(source().join("scripts/package"))
        .arg("--out")
        .args([to, Path::new(architecture)])
        .env("RAMPART_BIN", programs)
        .finish_within(LIMIT, Vec::new())
        .expect("scripts/package starts");
    let made: Vec<PathBuf> = stdout(&output, 0).lines().map(PathBuf::from).collect();
    move |end: &str| {
        made.iter()
            .find(|path| path.to_str().is_some_and(|path| path.ends_with(end)))
            .cloned()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Runs an installed program in a root file system that has nothing else but the kernel's file systems,
/// without a PATH.
fn inside(root: &Path, arguments: &[&str]) -> Output {
    let script = r#"
        root=$1
        shift
        for name in dev proc sys tmp; do mkdir -p "$root/$name"; done
        for name in dev proc sys; do mount --rbind "/$name" "$root/$name"; done
        exec env -i "$(command -v chroot)" "$root" "$@"
    "#;
    let unshare = [
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-euc",
        script,
        "sh",
    ];
    run(
        "unshare",
        &[&unshare, &[text(root)][..], arguments].concat(),
    )
    .expect("unshare")
}

/// Runs the programs of a root file system, as a user does first.
fn use_programs(root: &Path) {
    let version = stdout(&inside(root, &["/usr/bin/rampart", "--version"]), 0);
    assert_eq!(version, format!("rampart {}\n", env!("CARGO_PKG_VERSION")));
    let checked = inside(root, &["/usr/bin/rampart", "check", "--json"]);
    assert!([0, 4].contains(&exit_code(&checked)), "{checked:?}");
    let check: serde_json::Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    assert!(check["findings"].is_array(), "{check}");
}

#[test]
fn packages_install_and_run_in_an_empty_root_file_system() {
    if !is_root_with_cpus("the packages", 2) {
        return;
    }
    let location = tempfile::tempdir().expect("a directory");
    let path = |name: &str| location.path().join(name);
    let made = package(std::env::consts::ARCH, &path("packages"));
    // The programs that are installed measure.
    let _machine = alone();
    match made(".deb") {
        Some(package) => debian(&package, &path("debian")),
        None => left_out("the .deb: dpkg-deb is not installed"),
    }
    match made(".rpm") {
        Some(package) => rpm(&package, &path("rpm")),
        None => left_out("the .rpm: rpmbuild is not installed"),
    }
    let archive = made(".tar.gz").expect("the tarball");
    let to = path("unpacked");
    std::fs::create_dir(&to).expect("created");
    let unpack = [
        "-x",
        "-f",
        text(&archive),
        "--strip-components=1",
        "-C",
        text(&to),
    ];
    let _ = stdout(&run("tar", &unpack).expect("tar"), 0);
    // The meter is found below libexec.
    let output = Command::new(to.join("bin/rampart"))
        .args([
            "measure", "wakeup", "--cpus", "0", "--for", "300ms", "--json",
        ])
        .env_remove("RAMPART_METER")
        .env("RAMPART_STATE_DIR", path("state"))
        .finish()
        .expect("rampart");
    assert!(stdout(&output, 0).contains("\"samples\""), "{output:?}");
    std::fs::remove_file(to.join("libexec/rampart/rampart-meter")).expect("removed");
    let output = Command::new(to.join("bin/rampart"))
        .args(["measure", "wakeup", "--for", "1s"])
        .env_remove("RAMPART_METER")
        .finish()
        .expect("rampart");
    assert_eq!(exit_code(&output), 4, "{output:?}");
    for searched in ["bin/rampart-meter", "libexec/rampart/rampart-meter"] {
        let searched = to.join(searched).display().to_string();
        assert!(stderr(&output).contains(&searched), "{}", stderr(&output));
    }
    units(&to);
}

/// Installs the package in an empty root file system, evaluates the machine from there, and removes it.
fn debian(package: &Path, root: &Path) {
    std::fs::create_dir_all(root.join("var/lib/dpkg")).expect("created");
    for file in ["status", "available"] {
        std::fs::write(root.join("var/lib/dpkg").join(file), "").expect("written");
    }
    // Scripts of the package run outside, with DPKG_ROOT, as the root has no shell.
    let option = format!("--root={}", text(root));
    let dpkg = |arguments: &[&str]| {
        let options = [
            option.as_str(),
            "--force-script-chrootless",
            "--log=/dev/null",
        ];
        run("dpkg", &[&options, arguments].concat()).expect("dpkg")
    };
    let _ = stdout(&dpkg(&["--install", text(package)]), 0);
    let status = stdout(&dpkg(&["--status", "rampart"]), 0);
    assert!(status.contains("Status: install ok installed"), "{status}");
    assert!(!status.contains("\nDepends:"), "{status}");
    // The checksums are those of the files.
    assert_eq!(stdout(&dpkg(&["--verify", "rampart"]), 0), "");

    use_programs(root);
    let evaluate = "evaluate --for 3s --domains host,task --loads idle --out /tmp/results --show-progress none";
    let arguments: Vec<&str> = ["/usr/bin/rampart"]
        .into_iter()
        .chain(evaluate.split(' '))
        .collect();
    let _ = stdout(&inside(root, &arguments), 0);
    for file in ["evaluation.json", "report.html"] {
        assert!(root.join("tmp/results").join(file).is_file(), "{file}");
    }
    manual(&root.join("usr/share/man/man1"));
    completions(&root.join("usr/share"), "zsh/vendor-completions");
    let notices = root.join("usr/share/doc/rampart/NOTICES");
    let notices = std::fs::read_to_string(notices).expect("the notices");
    for crate_or_text in [
        "\nclap v",
        "\nserde_json v",
        "\nuPlot ",
        "\nmusl ",
        "Permission is hereby granted",
    ] {
        assert!(notices.contains(crate_or_text), "{crate_or_text}");
    }

    let _ = stdout(&dpkg(&["--purge", "rampart"]), 0);
    for name in [
        "usr/bin/rampart",
        "usr/libexec/rampart",
        "usr/src",
        "var/lib/rampart",
    ] {
        assert!(!root.join(name).exists(), "{name} remained");
    }
}

/// Every command has a page that man(1) reads without a warning.
fn manual(directory: &Path) {
    for name in [
        "rampart",
        "rampart-evaluate",
        "rampart-status",
        "rampart-sim-shell",
    ] {
        let page = directory.join(format!("{name}.1.gz"));
        let text = stdout(&run("gzip", &["-dc", text(&page)]).expect("gzip"), 0);
        assert!(text.contains(".SH SYNOPSIS"), "{name}: {text}");
    }
    let page = directory.join("rampart.1.gz");
    let read = ["--warnings", "--local-file", text(&page)];
    if let Some(output) = run_or_leave_out("man", &read, "the man pages") {
        assert!(
            stdout(&output, 0).contains("rampart-evaluate(1)"),
            "{output:?}"
        );
        assert_eq!(stderr(&output), "");
    }
}

/// The shells load the completions, and complete `rampart eval`.
fn completions(share: &Path, zsh_directory: &str) {
    let bash = share.join("bash-completion/completions/rampart");
    let script = "source \"$0\"; complete -p rampart; COMP_WORDS=(rampart eval); COMP_CWORD=1; \
                  _rampart rampart eval rampart; echo \"${COMPREPLY[@]}\"";
    let output = run("bash", &["--norc", "-c", script, text(&bash)]).expect("bash");
    let printed = stdout(&output, 0);
    assert!(printed.ends_with("\nevaluate\n"), "{printed}");
    let zsh = share.join(zsh_directory);
    let script = "fpath=($0 $fpath); autoload -U compinit; compinit -u -D; echo $_comps[rampart]; \
                  autoload +X _rampart";
    if let Some(output) = run_or_leave_out("zsh", &["-f", "-c", script, text(&zsh)], "zsh") {
        assert_eq!(stdout(&output, 0), "_rampart\n");
    }
    let fish = share.join("fish/vendor_completions.d/rampart.fish");
    let script = format!("source '{}'; complete -C 'rampart eval'", text(&fish));
    if let Some(output) = run_or_leave_out("fish", &["--no-config", "-c", &script], "fish") {
        let printed = stdout(&output, 0);
        assert!(printed.starts_with("evaluate\t"), "{printed}");
    }
}

/// systemd accepts the units, with the programs where they name them.
fn units(prefix: &Path) {
    let directory = prefix.join("lib/systemd/system");
    let mut units = Vec::new();
    for entry in std::fs::read_dir(&directory).expect("the units").flatten() {
        let unit = std::fs::read_to_string(entry.path()).expect("a unit");
        let unit = unit.replace("/usr/local", text(prefix));
        std::fs::write(entry.path(), unit).expect("written");
        let name = entry.file_name().to_str().expect("a name").to_owned();
        units.push(name.replace("@.", "@press."));
    }
    assert!(units.len() >= 5, "{units:?}");
    let paths: Vec<String> = units
        .iter()
        .map(|unit| directory.join(unit).display().to_string())
        .collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let verify = [&["verify", "--man=no"][..], &paths].concat();
    if let Some(output) = run_or_leave_out("systemd-analyze", &verify, "the units") {
        assert_eq!((exit_code(&output), stderr(&output).as_str()), (0, ""));
    }
}

/// Installs the package in an empty root file system and runs the programs there.
fn rpm(package: &Path, root: &Path) {
    let query = |option: &str| {
        stdout(
            &run("rpm", &["-qp", option, text(package)]).expect("rpm"),
            0,
        )
    };
    let files = query("--list");
    for file in [
        "/usr/bin/rampart",
        "/usr/libexec/rampart/rampart-meter",
        "/usr/lib/systemd/system/rampart-status.service",
        "/usr/share/man/man1/rampart.1.gz",
        "/usr/share/zsh/site-functions/_rampart",
        "/usr/share/doc/rampart/NOTICES",
    ] {
        assert!(files.lines().any(|line| line == file), "{file}: {files}");
    }
    let requires = query("--requires");
    let needed = requires
        .lines()
        .find(|line| !line.starts_with("rpmlib(") && *line != "/bin/sh");
    assert_eq!(needed, None, "{requires}");
    std::fs::create_dir(root).expect("created");
    let install = [
        "--root",
        text(root),
        "--install",
        "--nodeps",
        "--ignorearch",
        text(package),
    ];
    let _ = stdout(&run("rpm", &install).expect("rpm"), 0);
    use_programs(root);
}

#[test]
fn the_package_for_arm64_has_the_hypervisor() {
    let programs = directory();
    let built = programs.join("aarch64/rampart").is_file()
        && programs.join("hypervisor/rampart.bin").is_file();
    if std::env::consts::ARCH == "aarch64" || !built {
        return left_out("the package for arm64: its programs are not built here");
    }
    let location = tempfile::tempdir().expect("a directory");
    let made = package("aarch64", location.path());
    let Some(package) = made("_arm64.deb") else {
        return left_out("the package for arm64: dpkg-deb is not installed");
    };
    let contents = stdout(
        &run("dpkg-deb", &["--contents", text(&package)]).expect("dpkg-deb"),
        0,
    );
    for file in [
        "hypervisor/rampart.bin",
        "hypervisor/rampart-smmu.bin",
        "hypervisor/rampart-gicv2.bin",
        "hypervisor/rampart-cell-meter",
        "hypervisor/rampart-cell-irq",
        "rampart-meter",
    ] {
        let file = format!(" ./usr/libexec/rampart/{file}\n");
        assert!(contents.contains(&file), "{file}: {contents}");
    }
    assert!(made(".aarch64.rpm").is_some() || run("rpmbuild", &["--version"]).is_none());
}
