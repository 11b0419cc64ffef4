// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of the same command on another machine, from the parsed arguments.

use std::fmt::Display;

use clap::ValueEnum;
use rampart_model::Nanos;

use super::apply::ApplyArguments;
use super::block::{BlockArguments, BlockOptions};
use super::blocktest::BlocktestArguments;
use super::check::Check;
use super::domains::Domains;
use super::evaluate::{DisturbArgument, Evaluate, Loads};
use super::knobs::Knobs;
use super::measure::Measure;
use super::plan;
use super::release::Release;
use super::status::StatusArguments;
use crate::failure::Failure;

/// Returns a time in a form that is parsed back exactly.
fn exact(time: Nanos) -> String {
    format!("{}ns", time.0)
}

/// Builds a command line.
#[derive(Debug)]
struct Builder(Vec<String>);

impl Builder {
    fn new(command: &str) -> Self {
        Self(vec![command.to_owned()])
    }

    fn value(&mut self, name: &str, value: impl Display) -> &mut Self {
        // One word, since a value may begin with a dash.
        self.0.push(format!("--{name}={value}"));
        self
    }

    fn option(&mut self, name: &str, value: Option<impl Display>) -> &mut Self {
        if let Some(value) = value {
            self.value(name, value);
        }
        self
    }

    fn list(&mut self, name: &str, values: impl IntoIterator<Item: Display>) -> &mut Self {
        let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
        if !values.is_empty() {
            self.value(name, values.join(","));
        }
        self
    }

    fn flag(&mut self, name: &str, given: bool) -> &mut Self {
        if given {
            self.0.push(format!("--{name}"));
        }
        self
    }

    fn choice(&mut self, name: &str, choice: impl ValueEnum) -> &mut Self {
        let choice = choice.to_possible_value();
        self.option(name, choice.map(|choice| choice.get_name().to_owned()))
    }

    fn blocks(&mut self, blocks: &BlockOptions) -> &mut Self {
        self.option("cpus", blocks.cpus.as_ref())
            .value("length", exact(blocks.length))
            .value("count", blocks.count)
            .choice("spread", blocks.spread)
            .option("pause", blocks.pause.map(exact))
            .option("seed", blocks.seed);
        if let Some(kind) = blocks.kind {
            self.choice("kind", kind);
        }
        self
    }

    fn finish(&mut self) -> Vec<String> {
        std::mem::take(&mut self.0)
    }
}

impl Domains {
    pub(super) fn remote_arguments(&self) -> Vec<String> {
        Builder::new("domains").flag("json", self.json).finish()
    }
}

impl Release {
    pub(super) fn remote_arguments(&self) -> Vec<String> {
        Builder::new("release").flag("json", self.json).finish()
    }
}

impl Check {
    pub(super) fn remote_arguments(&self) -> Vec<String> {
        Builder::new("check")
            .option("cpus", self.cpus.as_ref())
            .flag("verbose", self.verbose)
            .flag("json", self.json)
            .finish()
    }
}

impl Knobs {
    pub(super) fn remote_arguments(&self) -> Vec<String> {
        let mut builder = Builder::new("knobs");
        builder
            .flag("json", self.json)
            .flag("markdown", self.markdown);
        if let Some(name) = &self.name {
            builder.0.extend(["--".to_owned(), name.clone()]);
        }
        builder.finish()
    }
}

impl plan::Propose {
    /// Without the file that it writes, which is written here.
    pub(super) fn remote_arguments(&self) -> Vec<String> {
        let mut builder = Builder::new("plan");
        builder.0.push("propose".to_owned());
        builder
            .option("real-time-cpus", self.real_time_cpus)
            .value("tasks", self.tasks)
            .value("containers", self.containers)
            .value("guests", self.guests)
            .finish()
    }
}

impl plan::Check {
    pub(super) fn remote_arguments(&self) -> Result<Vec<String>, Failure> {
        let mut builder = Builder::new("plan");
        builder.0.push("check".to_owned());
        builder.flag("json", self.json);
        builder.0.extend(self.plan.remote_arguments()?);
        Ok(builder.finish())
    }
}

impl plan::Show {
    /// For a page it prints the document, from which the page is made here.
    pub(super) fn remote_arguments(&self) -> Result<Vec<String>, Failure> {
        let mut builder = Builder::new("plan");
        builder.0.push("show".to_owned());
        builder.flag("json", self.json || self.html.is_some());
        builder.0.extend(self.plan.remote_arguments()?);
        Ok(builder.finish())
    }
}

impl ApplyArguments {
    pub(super) fn remote_arguments(&self) -> Result<Vec<String>, Failure> {
        let mut builder = Builder::new("apply");
        builder
            .flag("dry-run", self.dry_run)
            .flag("boot", self.boot)
            .flag("json", self.json);
        builder.0.extend(self.plan.remote_arguments()?);
        Ok(builder.finish())
    }
}

impl StatusArguments {
    pub(super) fn remote_arguments(&self) -> Vec<String> {
        let mut builder = Builder::new("status");
        if let Some(format) = self.format {
            builder.choice("format", format);
        }
        builder
            .flag("json", self.json)
            .flag("watch", self.watch)
            .option("serve", self.serve.as_ref())
            .value("interval", exact(self.interval))
            .flag("no-meter", self.no_meter)
            .flag("meter", self.meter)
            .finish()
    }
}

impl BlockArguments {
    pub(super) fn remote_arguments(&self) -> Vec<String> {
        Builder::new("block")
            .blocks(&self.blocks)
            .flag("json", self.json)
            .choice("show-progress", self.show_progress)
            .finish()
    }
}

impl BlocktestArguments {
    pub(super) fn remote_arguments(&self) -> Vec<String> {
        Builder::new("blocktest")
            .blocks(&self.blocks)
            .option("watch", self.watch.as_ref())
            .value("interval", exact(self.interval))
            .value("policy", self.policy)
            .flag("json", self.json)
            .choice("show-progress", self.show_progress)
            .finish()
    }
}

impl Measure {
    /// Without the files that it writes: they do not come back.
    pub(super) fn remote_arguments(&self) -> Vec<String> {
        let mut builder = Builder::new("measure");
        builder.0.push(self.meter.to_string());
        builder
            .option("cpus", self.cpus.as_ref())
            .option("housekeeping", self.housekeeping.as_ref())
            .value("domain", self.domain)
            .option("policy", self.policy)
            .value("for", exact(self.duration))
            .value("warm-up", exact(self.warm_up))
            .list("interval", self.interval.iter().copied().map(exact))
            .flag("aligned", self.aligned)
            .option("threshold", self.threshold.map(exact))
            .value("work", exact(self.work))
            .option("deadline", self.deadline.map(exact))
            .value("worst", self.worst)
            .flag("explain", self.explain)
            .flag("no-memory-lock", self.no_memory_lock)
            .flag("json", self.json)
            .choice("show-progress", self.show_progress)
            .finish()
    }
}

impl Evaluate {
    /// Without `--plan`, `--out` and `--json`, which differ on the other machine; a crash of the
    /// host is requested by `--crash-host` there, and `--emulator-cpus` describes the simulated machine.
    pub(super) fn remote_arguments(&self) -> Vec<String> {
        let mut builder = Builder::new("evaluate");
        builder
            .option("for", self.duration.map(exact))
            .option("until-decided", self.until_decided.map(exact))
            .option("deadline", self.deadline.map(exact))
            .list("domains", &self.domains)
            .flag("before-after", self.plan.before_after)
            .flag("ablate", self.plan.ablate)
            .list(
                "loads",
                self.loads.iter().map(|load| match load {
                    Loads::One(condition) => condition.to_string(),
                    Loads::All => "all".to_owned(),
                }),
            )
            .list("meters", &self.meters)
            .option("cpus", self.cpus.as_ref())
            .option("policy", self.policy)
            .option("interval", self.interval.map(exact))
            .option("work", self.work.map(exact))
            .option("seed", self.seed)
            .flag("explain", self.explain);
        if let Some(requested) = &self.disturb {
            let mut requested: Vec<String> = requested
                .iter()
                .filter_map(|one| match one {
                    DisturbArgument::Crash => None,
                    DisturbArgument::Disturbance(one) => Some(one.to_string()),
                })
                .collect();
            if requested.is_empty() {
                requested.push("none".to_owned());
            }
            builder.list("disturb", requested);
        }
        builder.finish()
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::super::plan::Action;
    use crate::arguments::{Arguments, Command};

    fn parse(words: &[&str]) -> Command {
        let words = [&["rampart"], words].concat();
        Arguments::try_parse_from(words).expect("valid").command
    }

    fn remote(command: &Command) -> Vec<String> {
        match command {
            Command::Evaluate(evaluate) => evaluate.remote_arguments(),
            Command::Measure(measure) => measure.remote_arguments(),
            Command::Block(block) => block.remote_arguments(),
            Command::Blocktest(blocktest) => blocktest.remote_arguments(),
            Command::Domains(domains) => domains.remote_arguments(),
            Command::Release(release) => release.remote_arguments(),
            Command::Check(check) => check.remote_arguments(),
            Command::Knobs(knobs) => knobs.remote_arguments(),
            Command::Status(status) => status.remote_arguments(),
            Command::Apply(apply) => apply.remote_arguments().expect("a text"),
            Command::Plan(plan) => match &plan.action {
                Action::Propose(propose) => propose.remote_arguments(),
                Action::Check(check) => check.remote_arguments().expect("a text"),
                Action::Show(show) => show.remote_arguments().expect("a text"),
            },
            _ => Vec::new(),
        }
    }

    /// Every option of each command that runs elsewhere, with a value that is not its default.
    const EVERY_OPTION: [&str; 19] = [
        "evaluate --until-decided=30m --for=1m --deadline=123us --domains=host,vm:noisy --loads=idle,cpu@same,all \
         --meters=wakeup,loop --cpus=1-2 --policy=fifo:70 --interval=250us --work=30us --seed=7 \
         --explain --disturb=block:host,cache",
        "evaluate --plan=x --before-after --ablate --domains=press",
        "evaluate --disturb=none",
        "measure wakeup --cpus=1-2 --housekeeping=0 --domain=container:podman \
         --policy=deadline:200us/1ms/1ms --for=1m --warm-up=10ms --interval=250us,1ms --aligned \
         --threshold=1us --work=1500ns --deadline=500us --worst=3 --explain --no-memory-lock \
         --json --show-progress=none",
        "block --cpus=1,3 --length=1500us --count=7 --spread=even --pause=5ms --seed=3 \
         --kind=spin --json --show-progress=lines",
        "blocktest --cpus=1,3 --length=1500us --count=7 --spread=even --pause=5ms --seed=3 \
         --kind=module --watch=0-1 --interval=2ms --policy=rr:5 --json --show-progress=bar",
        "domains --json",
        "release --json",
        "check --cpus=all:1/2,N --verbose --json",
        "knobs --json -- -x",
        "knobs --markdown",
        "status --json --interval=2s",
        "status --format=openmetrics --interval=2s",
        "status --watch --no-meter",
        "status --serve=localhost:19477 --meter",
        "apply --dry-run --boot --json --plan-text=schema=1 --plan-from=pc:/-plan.toml -- -plan.toml",
        "plan propose --real-time-cpus=3 --tasks=1 --containers=2 --guests=1",
        "plan check --json --plan-text=schema=1 --plan-from=pc:/plan.toml plan.toml",
        "plan show --json --plan-text=schema=1 --plan-from=pc:/plan.toml plan.toml",
    ];

    /// Options that `commands::on` and `commands::evaluate_on` handle.
    const NOT_FORWARDED: [&str; 16] = [
        "on",
        "sim-cpus",
        "sim-memory",
        "sim-real-time-cpus",
        "sim-append",
        "color",
        "help",
        "hlog",
        "csv",
        "out",
        "plan-text",
        "html",
        "machine",
        "allow-crash",
        "crash-host",
        "emulator-cpus",
    ];

    #[test]
    fn forwarded_arguments_are_parsed_back_unchanged() {
        for line in EVERY_OPTION {
            let parsed = parse(&line.split_whitespace().collect::<Vec<_>>());
            let mut there = remote(&parsed);
            if line.contains("--plan=x") {
                there.push("--plan=x".to_owned());
            }
            let there: Vec<&str> = there.iter().map(String::as_str).collect();
            assert_eq!(format!("{:?}", parse(&there)), format!("{parsed:?}"));
        }
    }

    #[test]
    fn every_option_is_forwarded_or_handled() {
        let mut root = Arguments::command();
        root.build();
        for name in [
            "evaluate",
            "measure",
            "block",
            "blocktest",
            "domains",
            "release",
            "check",
            "knobs",
            "status",
            "apply",
            "plan propose",
            "plan check",
            "plan show",
        ] {
            let command_word = format!("{name} ");
            let lines = EVERY_OPTION
                .iter()
                .filter(|line| line.starts_with(&command_word));
            let words: Vec<&str> = lines.flat_map(|line| line.split_whitespace()).collect();
            let command = name.split(' ').fold(&root, |command, name| {
                command.find_subcommand(name).expect("a command")
            });
            for option in command.get_arguments().filter_map(clap::Arg::get_long) {
                let forwarded = words.iter().any(|word| {
                    let word = word.trim_start_matches('-');
                    word.split('=').next() == Some(option)
                });
                // `evaluate` adds both itself.
                let handled = NOT_FORWARDED.contains(&option)
                    || name == "evaluate" && ["json", "show-progress"].contains(&option);
                assert!(forwarded || handled, "{name} --{option}");
            }
        }
    }
}
