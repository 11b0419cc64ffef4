// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line. Help, man pages and shell completions all come from these definitions.

use std::fmt::Write as _;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

use crate::commands;

const AFTER_HELP: &str = "\
Values:
  CPUS    list of the kernel: 2, 1,4-7, 0-7:1/2 (every second), 2-N (to the
          last), all
  TIME, DURATION
          number with a unit: 100us, 1ms, 90s, 2m, 1h
  POLICY  other, fifo:80, rr:10 or deadline:RUNTIME/DEADLINE/PERIOD, also with
          the names of sched(7): SCHED_FIFO:80

Exit codes:
  0    everything requested was done
  1    an error of the environment, or a bug
  2    the arguments or the plan are invalid; nothing was changed or measured
  3    everything was measured, and a deadline that you gave was missed or is
       not decided
  4    something that the work needs is missing, the machine does not fit the
       plan, `check` found an error, or `status` found a difference from the
       plan; the message names it and the fix
  5    ended early, or a part failed; the results are kept
  6    the machine of --on panicked, hung, ended or did not boot
  130  interrupted a second time

Environment:
  RAMPART_METER          path of rampart-meter [default: beside rampart, or
                         in ../libexec/rampart from there]
  RAMPART_STATE_DIR      directory of saved values, which `release` restores
                         [default: /var/lib/rampart; without root
                         $XDG_STATE_HOME/rampart or ~/.local/state/rampart]
  RAMPART_GUEST_KERNEL   kernel of guests, or a directory that contains boot
                         and lib/modules [default: the kernel of this machine]
  RAMPART_GUEST_MODULES  directory of the modules of that kernel
  RAMPART_SSH            command of `--on ssh:`, for the shell: ssh -i KEY, or
                         -F CONFIGURATION, -J JUMPHOST [default: ssh]
  RAMPART_DEBIAN_MIRROR  mirror of the packages of the simulated machine: URL,
                         or URL and URL-OF-SECURITY-UPDATES
  XDG_CACHE_HOME         the simulated machine is kept in rampart/sim there
                         [default: ~/.cache]
  LC_ALL, LC_CTYPE, LANG
                         the first that is set names the locale; if that is
                         not UTF-8, text is ASCII
  NO_COLOR               if set, output has no colour

Examples:
  rampart check                         check this machine for real-time work
  rampart evaluate                      measure all domains in 2 to 6 minutes
  rampart plan propose --out plan.toml  write a plan for this machine
  rampart apply plan.toml               apply it
  rampart evaluate --plan plan.toml     measure its domains";

/// The headings of the list of commands, each with the first command below it.
const GROUPS: [(&str, &str); 6] = [
    ("Start here", "check"),
    ("Look at a machine", "status"),
    ("Measure", "measure"),
    ("Run programs in domains", "run"),
    ("Isolate more strongly", "cell"),
    ("Exchange with other tools", "import"),
];

/// Split a machine between real-time and ordinary work, and measure the split
#[derive(Debug, Parser)]
#[command(name = "rampart", version, after_help = AFTER_HELP, max_term_width = 80)]
pub(crate) struct Arguments {
    /// When to use colour
    #[arg(
        long,
        global = true,
        default_value = "auto",
        value_name = "WHEN",
        help_heading = "Output"
    )]
    pub(crate) color: Color,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Returns the command line with its commands in groups. clap has one heading for all of them.
pub(crate) fn command() -> clap::Command {
    let command = Arguments::command();
    let styles = command.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let names = command.get_subcommands().map(|each| each.get_name().len());
    let width = names.max().unwrap_or_default();
    let mut list = String::new();
    for each in command.get_subcommands() {
        let (name, about) = (each.get_name(), each.get_about());
        let about = about.map(ToString::to_string).unwrap_or_default();
        if let Some((heading, _)) = GROUPS.iter().find(|(_, first)| *first == name) {
            let _ = write!(list, "\n{header}{heading}:{header:#}\n");
        }
        let _ = writeln!(list, "  {literal}{name:width$}{literal:#}  {about}");
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{list}\n\
         {header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    command.help_template(template)
}

/// Parses the arguments of this process. Ends it if they are wrong or ask for help.
pub(crate) fn parse() -> Arguments {
    let mut command = command();
    let matches = command.get_matches_mut();
    Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

/// The commands, in the order of the help; [`GROUPS`] has the first of each group.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check a machine for real-time work, and list the fixes
    Check(commands::check::Check),
    /// Measure and compare the domains of a machine, idle and under load
    Evaluate(Box<commands::evaluate::Evaluate>),
    /// Write, check and show a plan: the domains and their CPUs
    Plan(commands::plan::PlanArguments),
    /// Apply a plan to this machine until `rampart release`
    Apply(commands::apply::ApplyArguments),
    /// Undo the active plan and the changes of killed runs
    Release(commands::release::Release),
    /// Show CPUs, their programs, and differences from the active plan
    Status(commands::status::StatusArguments),
    /// List the settings that `check` reads, or show one and its value
    Knobs(commands::knobs::Knobs),
    /// List the domains that this machine can host
    Domains(commands::domains::Domains),
    /// Run one meter in one domain
    Measure(Box<commands::measure::Measure>),
    /// Show the results of an evaluation, also of one that was killed
    Report(commands::report::Report),
    /// Stop CPUs for a set time
    Block(commands::block::BlockArguments),
    /// Stop CPUs and measure which other CPUs are affected
    Blocktest(commands::blocktest::BlocktestArguments),
    /// Build and run the simulated machine
    Sim(commands::sim::SimArguments),
    /// Run a program in a domain of the active plan
    Run(commands::run::RunArguments),
    /// Move running processes or threads into a domain
    Move(commands::moving::MoveArguments),
    /// Start and supervise the programs of the active plan
    Up(commands::up::UpArguments),
    /// Stop the programs that `up` started
    Down(commands::up::DownArguments),
    /// Isolate CPUs without a plan file and run a program on them
    Shield(commands::shield::ShieldArguments),
    /// Partition an arm64 machine into cells under a hypervisor
    Cell(commands::cell::CellArguments),
    /// List, take and give CPUs on which threads run detached from Linux
    Detach(commands::detach::DetachArguments),
    /// Show a measurement of rtla or cyclictest from its output
    Import(commands::import::Import),
    /// Write a plan or a guest as configuration of another tool
    Export(commands::export::Export),
    /// Print the JSON Schema of a document
    Schema(commands::documents::Schema),
    /// Print a completion script for a shell
    Completions(commands::documents::Completions),
    /// Write the man pages into a directory
    Man(commands::documents::Man),
}

/// When and how progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShowProgress {
    /// A bar on a terminal, otherwise lines; one for each minute of runs, and
    /// one whenever what is inconclusive is measured on
    Auto,
    Bar,
    /// A line for each run
    Lines,
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `visit` for a command and all its subcommands, with the name as typed.
    fn visit(name: &str, command: &mut clap::Command, check: &mut impl FnMut(&str, &str)) {
        check(name, &command.render_long_help().to_string());
        for subcommand in command.get_subcommands_mut() {
            if subcommand.get_name() != "help" {
                visit(
                    &format!("{name} {}", subcommand.get_name()),
                    subcommand,
                    check,
                );
            }
        }
    }

    #[test]
    fn help_fits_80_columns_and_ends_with_examples() {
        let mut root = command();
        root.build();
        let mut wrong = Vec::new();
        visit("rampart", &mut root, &mut |name, help| {
            for line in help.lines().filter(|line| line.chars().count() > 80) {
                wrong.push(format!("{name}: wider than 80 columns: {line}"));
            }
            if let Some((_, examples)) = help.split_once("\nExample") {
                let indented = |line: &str| line.is_empty() || line.starts_with("  ");
                if !examples.lines().skip(1).all(indented) || !examples.contains(name) {
                    wrong.push(format!("{name}: does not end with examples"));
                }
            } else {
                wrong.push(format!("{name}: has no example"));
            }
        });
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Each group has at most seven commands, the first has those of the first day.
    #[test]
    fn help_lists_the_commands_in_groups() {
        let mut root = command();
        root.build();
        let names: Vec<&str> = root.get_subcommands().map(|each| each.get_name()).collect();
        let first = GROUPS.map(|(_, first)| names.iter().position(|name| *name == first));
        let mut bounds: Vec<usize> = first.into_iter().flatten().collect();
        assert_eq!(
            (bounds.len(), bounds[..2].to_vec()),
            (GROUPS.len(), vec![0, 5])
        );
        bounds.push(names.len());
        for group in bounds.windows(2) {
            assert!(
                (2..=7).contains(&(group[1] - group[0])),
                "{group:?} of {names:?}"
            );
        }

        let help = command().render_help().to_string();
        let (_, list) = help.split_once("[OPTIONS] <COMMAND>\n\n").expect("usage");
        let (list, _) = list.split_once("\n\nOptions:\n").expect("options");
        let listed: Vec<&str> = list
            .lines()
            .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next())
            .collect();
        let without_help = names.iter().filter(|name| **name != "help");
        assert_eq!(listed, without_help.copied().collect::<Vec<_>>(), "{help}");
    }

    #[test]
    fn long_lists_of_options_are_grouped() {
        let mut root = command();
        root.build();
        let mut pending = vec![&root];
        while let Some(command) = pending.pop() {
            let loose = command
                .get_opts()
                .filter(|option| option.get_help_heading().is_none() && !option.is_hide_set());
            let loose = loose.count();
            assert!(
                loose <= 7,
                "{}: {loose} options in one list",
                command.get_name()
            );
            pending.extend(command.get_subcommands());
        }
    }

    #[test]
    fn summaries_have_no_full_stop() {
        let mut root = command();
        root.build();
        let mut pending = vec![&root];
        while let Some(command) = pending.pop() {
            let about = command.get_about().map(ToString::to_string);
            let about = about.unwrap_or_default();
            assert!(!about.is_empty() && !about.ends_with('.'), "{about}");
            pending.extend(command.get_subcommands());
        }
    }
}
