// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two programs alone: in a root file system that contains nothing else, as root and as an
//! ordinary user, with the os-release files of several distributions.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rampart_model::{Availability, Check, Evaluation, EvaluationState, LoadKind, NotMeasured};
use rampart_tests::documents::assert_valid;
use rampart_tests::limited::Limited as _;
use rampart_tests::programs::{copy_programs_for_everyone, evaluation, stdout};

use crate::preferred::machine;

/// Mounts the kernel's file systems into a root file system and starts a program there, in a mount
/// namespace that ends with the program: `sh -c ENTER sh ROOT USER PROGRAM ARGUMENT…`.
const ENTER: &str = r#"
set -e
root=$1 user=$2
shift 2
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
exec env -i "$(command -v chroot)" --userspec="$user" "$root" "$@"
"#;
const ROOT: &str = "0:0";
const NOBODY: &str = "65534:65534";

/// A root file system with the two programs and nothing else.
struct Alone(tempfile::TempDir);

impl Alone {
    fn create() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        for name in ["bin", "proc", "sys", "dev", "tmp", "etc"] {
            fs::create_dir(directory.path().join(name)).expect("a directory");
        }
        let for_everyone = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
        };
        for_everyone(directory.path(), 0o755);
        for_everyone(&directory.path().join("tmp"), 0o1777);
        copy_programs_for_everyone(&directory.path().join("bin"));
        Self(directory)
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.0.path().join(inside)
    }

    /// Runs `/bin/rampart` with an empty environment.
    fn rampart(&self, user: &str, arguments: &[&str]) -> Output {
        Command::new("unshare")
            .args([
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                ENTER,
                "sh",
            ])
            .arg(self.0.path())
            .args([user, "/bin/rampart"])
            .args(arguments)
            .finish()
            .expect("unshare starts")
    }

    fn set_os_release(&self, text: &str) {
        fs::write(self.path("etc/os-release"), text).expect("a file");
    }
}

fn fixes(parts: &[NotMeasured]) -> Vec<&str> {
    let findings = parts.iter().flat_map(|part| &part.findings);
    findings
        .filter_map(|finding| finding.fix.as_deref())
        .collect()
}

/// What is missing costs its own conditions, is listed with its fix, and ends nothing.
#[test]
fn evaluates_with_nothing_but_the_two_programs() {
    let Some(_machine) = machine("evaluates_with_nothing_but_the_two_programs", 2) else {
        return;
    };
    let alone = Alone::create();
    alone.set_os_release("ID=alpine\nPRETTY_NAME=\"Alpine Linux v3.22\"\n");
    for user in [ROOT, NOBODY] {
        let results = format!("/tmp/results-of-{user}");
        let options = [
            "evaluate",
            "--for",
            "8s",
            "--loads",
            "idle,cpu,memory,cache,io",
            "--out",
            &results,
        ];
        let text = stdout(&alone.rampart(user, &options), 0);
        assert!(text.contains("stress-ng"), "{user}: {text}");
        let found: Evaluation = evaluation(&alone.path(results.trim_start_matches('/')));
        assert_valid(&found);
        assert_eq!(found.state, EvaluationState::Complete, "{user}");
        assert_eq!(found.machine.operating_system.id, "alpine");
        // Each load is made, and its records name the program that made it. A run that something else
        // on the machine disturbed does not count.
        for load in LoadKind::ALL {
            let of_load = |record: &&rampart_model::Record| record.condition.load == load;
            let records = found.records.iter().filter(of_load);
            let runs: Vec<_> = records.flat_map(|one| &one.runs).collect();
            let valid = runs.iter().filter(|run| run.invalid.is_empty());
            assert!(
                valid.clone().any(|run| run.load.ran),
                "{user}: {load:?}: {:?}",
                runs.iter().map(|run| &run.invalid).collect::<Vec<_>>()
            );
            for run in valid {
                let by_meter = run.load.version.starts_with("rampart-meter ");
                assert_eq!(by_meter, load != LoadKind::Idle, "{user}: {run:?}");
            }
        }
        let listed = fixes(&found.not_measured);
        assert!(listed.contains(&"apk add stress-ng"), "{user}: {listed:?}");
        assert!(listed.contains(&"apk add runc"), "{user}: {listed:?}");
        assert!(
            listed.contains(&"apk add qemu-system-x86_64"),
            "{user}: {listed:?}"
        );
    }
}

/// The os-release files have the `ID` and `ID_LIKE` that the distributions ship.
#[test]
fn fixes_are_the_commands_of_the_distribution() {
    let Some(_machine) = machine("fixes_are_the_commands_of_the_distribution", 1) else {
        return;
    };
    let alone = Alone::create();
    for (os_release, install, parameters) in [
        (
            "ID=debian\nVERSION_ID=\"13\"\n",
            "apt-get install runc",
            "&& update-grub",
        ),
        (
            "ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"24.04\"\n",
            "apt-get install runc",
            "&& update-grub",
        ),
        (
            "ID=fedora\nVERSION_ID=43\n",
            "dnf install crun",
            "grubby --update-kernel=ALL",
        ),
        (
            "ID=fedora\nVARIANT_ID=iot\n",
            "rpm-ostree install crun",
            "rpm-ostree kargs --append-if-missing=",
        ),
        (
            "ID=\"rhel\"\nID_LIKE=\"fedora\"\nVERSION_ID=\"9.6\"\n",
            "dnf install crun",
            "grubby --update-kernel=ALL",
        ),
        (
            "ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\n",
            "zypper install runc",
            "&& grub2-mkconfig -o /boot/grub2/grub.cfg",
        ),
        (
            "ID=arch\n",
            "pacman -S runc",
            "&& grub-mkconfig -o /boot/grub/grub.cfg",
        ),
        ("ID=alpine\n", "apk add runc", "&& update-extlinux"),
        ("ID=poky\n", "IMAGE_INSTALL:append", "APPEND:append = "),
    ] {
        alone.set_os_release(os_release);
        for user in [ROOT, NOBODY] {
            let output = alone.rampart(user, &["domains", "--json"]);
            let domains: Vec<Availability> =
                serde_json::from_str(&stdout(&output, 0)).expect("domains");
            let mut findings = domains.iter().flat_map(|domain| &domain.findings);
            let named = |fix: &Option<String>, word: &str| {
                fix.as_ref().is_some_and(|fix| fix.contains(word))
            };
            assert!(
                findings.any(|finding| named(&finding.fix, install)),
                "{os_release}{domains:#?}"
            );
            let output = alone.rampart(user, &["check", "--json"]);
            let check: Check = serde_json::from_slice(&output.stdout).expect("a check");
            let mut found = check.findings.iter();
            assert!(
                found.any(|finding| named(&finding.fix, parameters)),
                "{os_release}{:#?}",
                check.findings
            );
        }
    }
}
