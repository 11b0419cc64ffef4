// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of boot loaders that are shell scripts: `/etc/default/grub` with its drop-ins, and
//! those of `u-boot-menu`. `sh` reads them with `set -e`.

use super::arguments;

/// First line of the text that Rampart writes.
pub(super) const HEAD: &str =
    "# Written by `rampart apply --boot`; `rampart release` removes it.\n";

/// Returns a script that removes the parameters of the wanted arguments from all `variables` and
/// appends the arguments to the last of them.
pub(super) fn appending(
    variables: &[&str],
    wanted: &[String],
    quoted: fn(&str) -> String,
) -> String {
    let patterns: Vec<String> = arguments::names(wanted)
        .iter()
        .flat_map(|name| {
            let name = name.replace('_', "[-_]");
            [name.clone(), format!("{name}=*")]
        })
        .collect();
    let mut text = HEAD.to_owned();
    text.push_str("rampart_without() {\n    rampart_kept=\n");
    // A word of the line may contain `*`.
    text.push_str("    set -f\n    for rampart_word in $1; do\n        case $rampart_word in\n");
    text.push_str(&format!("            {}) ;;\n", patterns.join("|")));
    text.push_str(
        "            *) rampart_kept=\"${rampart_kept:+$rampart_kept }$rampart_word\" ;;\n",
    );
    text.push_str("        esac\n    done\n    set +f\n}\n");
    for variable in variables {
        text.push_str(&format!(
            "rampart_without \"${{{variable}:-}}\"\n{variable}=$rampart_kept\n"
        ));
    }
    if let Some(last) = variables.last() {
        let words: Vec<String> = wanted.iter().map(|word| quoted(word)).collect();
        text.push_str(&format!(
            "{last}=\"${{{last}:+${last} }}\"{}\n",
            single_quoted(&words.join(" "))
        ));
    }
    text
}

/// Quotes a text as one word of the shell.
fn single_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Runs the script and returns the variables; the last was `before`.
    fn after(before: &str, wanted: &[&str]) -> String {
        let wanted: Vec<String> = wanted.iter().map(|word| (*word).to_owned()).collect();
        let script = format!(
            "set -e\nLINE={}\n{}printf %s \"$OTHER|$LINE\"",
            single_quoted(before),
            appending(&["OTHER", "LINE"], &wanted, str::to_owned)
        );
        let output = Command::new("sh").args(["-c", &script]).output();
        let output = output.expect("a shell");
        assert!(output.status.success(), "{script}\n{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    #[test]
    fn the_shell_replaces_and_appends() {
        let line = "quiet isolcpus=7 nohz-full=7 dyndbg=\"file * +p\" nohz";
        assert_eq!(
            after(
                line,
                &["isolcpus=2-3", "nohz_full=2-3", "x=\"$HOME `id` *\""]
            ),
            "|quiet dyndbg=\"file * +p\" nohz isolcpus=2-3 nohz_full=2-3 x=\"$HOME `id` *\""
        );
        assert_eq!(after("", &["isolcpus=2-3"]), "|isolcpus=2-3");
    }
}
