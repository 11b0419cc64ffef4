// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files that packages' scripts would have written, as far as the machine's programs read them.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::cache::create_directory;
use super::error::SimError;

/// Files: path, permissions, content.
const FILES: &[(&str, u32, &str)] = &[
    (
        "etc/passwd",
        0o644,
        "root:x:0:0:root:/root:/bin/bash\n\
         daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n\
         sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n\
         messagebus:x:101:101::/nonexistent:/usr/sbin/nologin\n\
         user:x:1000:1000::/home/user:/bin/bash\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    (
        "etc/group",
        0o644,
        "root:x:0:\ndaemon:x:1:\ntty:x:5:\nmessagebus:x:101:\nkvm:x:106:user\nuser:x:1000:\n\
         nogroup:x:65534:\n",
    ),
    // Login by key, not by password.
    (
        "etc/shadow",
        0o640,
        "root:*:19000:0:99999:7:::\nuser:*:19000:0:99999:7:::\nsshd:!:19000::::::\n",
    ),
    // Empty: systemd creates an ID at each start, which does not count as a first boot
    // (machine-id(5)).
    ("etc/machine-id", 0o444, ""),
    ("etc/hostname", 0o644, "rampart-sim\n"),
    (
        "etc/hosts",
        0o644,
        "127.0.0.1 localhost rampart-sim\n::1 localhost\n",
    ),
    (
        "etc/nsswitch.conf",
        0o644,
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n",
    ),
    // The name server of QEMU's user network.
    ("etc/resolv.conf", 0o644, "nameserver 10.0.2.3\n"),
    ("etc/environment", 0o644, ""),
    (
        "etc/ssh/sshd_config",
        0o644,
        "# Keys only; host keys are made by: ssh-keygen -A\n\
         UsePAM no\n\
         PasswordAuthentication no\n\
         PermitRootLogin prohibit-password\n\
         PrintMotd no\n\
         Subsystem sftp internal-sftp\n",
    ),
    (
        "root/.bashrc",
        0o644,
        "PS1='rampart-sim:\\w\\$ '\nalias ll='ls -l'\n",
    ),
    (
        "root/.profile",
        0o644,
        "[ -n \"$BASH_VERSION\" ] && . ~/.bashrc\n",
    ),
];

/// Directories that programs expect but no package contains.
const DIRECTORIES: &[(&str, u32)] = &[
    ("proc", 0o555),
    ("sys", 0o555),
    ("dev", 0o755),
    ("run", 0o755),
    ("tmp", 0o1777),
    ("root", 0o700),
    ("home/user", 0o755),
    ("mnt", 0o755),
    ("var/tmp", 0o1777),
    ("var/lib", 0o755),
    ("var/log", 0o755),
];

/// Links: path and target. The last are the choices of `update-alternatives`.
const LINKS: &[(&str, &str)] = &[
    ("etc/mtab", "../proc/self/mounts"),
    ("var/run", "/run"),
    ("var/lock", "/run/lock"),
    ("usr/bin/awk", "gawk"),
    ("usr/bin/vi", "vim.tiny"),
    ("usr/bin/pager", "less"),
    ("usr/bin/sh", "dash"),
];

/// Writes directories, files and links below `root`. Does not replace existing files by links.
pub(super) fn write(root: &Path) -> Result<(), SimError> {
    for (path, permissions) in DIRECTORIES {
        let path = root.join(path);
        create_directory(&path)?;
        set(&path, *permissions)?;
    }
    for (path, permissions, content) in FILES {
        let path = root.join(path);
        if let Some(parent) = path.parent() {
            create_directory(parent)?;
        }
        fs::write(&path, content).map_err(SimError::file("write", &path))?;
        set(&path, *permissions)?;
    }
    for (path, target) in LINKS {
        let path = root.join(path);
        if fs::symlink_metadata(&path).is_err() {
            symlink(target, &path).map_err(SimError::file("create the link", &path))?;
        }
    }
    Ok(())
}

fn set(path: &Path, permissions: u32) -> Result<(), SimError> {
    fs::set_permissions(path, fs::Permissions::from_mode(permissions))
        .map_err(SimError::file("set the permissions of", path))
}
