// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart status`: the present state of this machine, with or without an active plan.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rampart_live::{MeterProgram, Sampler, ServeAddress};
use rampart_model::{ExitCode, Nanos};

use super::VERSION;
use crate::failure::Failure;
use crate::{output, signals};

/// Default address of the server. Prometheus' list of ports of exporters (9100 to 9999) has no free
/// one; this port is assigned to no service and is below the ports of outgoing connections.
const SERVER_ADDRESS: &str = "127.0.0.1:19477";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum StatusFormat {
    /// Text for this terminal
    #[default]
    Terminal,
    /// The status document
    Json,
    /// OpenMetrics, for the textfile collector of node_exporter
    Openmetrics,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The command changes nothing.

Exit codes:
  0  everything that the active plan applied is in effect; without a plan,
     nothing disturbs the CPUs that the machine keeps for real-time work
  4  something of the plan is no longer in effect; without a plan, a warning
     or an error

Examples:
  rampart status
  rampart status --json                   as a document
  rampart status --watch                  live, with wakeup latencies
  rampart status --watch --on ssh:root@board
  rampart status --serve                  for Prometheus, at
                                          http://127.0.0.1:19477/metrics
  rampart status --format openmetrics --out /var/lib/node_exporter/rampart.prom")]
pub(crate) struct StatusArguments {
    /// Print the status as JSON, as --format json does
    #[arg(long, conflicts_with_all = ["watch", "serve", "format"])]
    pub(crate) json: bool,

    /// Format of the status [default: terminal]
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["watch", "serve"])]
    pub(crate) format: Option<StatusFormat>,

    /// File to replace with the status; its readers find the old or the new one
    #[arg(long, value_name = "FILE", requires = "format")]
    pub(crate) out: Option<PathBuf>,

    /// Show the status live on this terminal; `?` lists the keys
    #[arg(long, conflicts_with = "serve")]
    pub(crate) watch: bool,

    /// Serve the status to Prometheus over HTTP, at /metrics of this address
    /// [default: 127.0.0.1:19477]
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        num_args = 0..=1,
        default_missing_value = SERVER_ADDRESS
    )]
    pub(crate) serve: Option<ServeAddress>,

    /// Time to observe the machine, and with --watch between two updates: 100ms
    /// to 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Nanos,

    /// With --watch: measure no latencies
    #[arg(long, requires = "watch")]
    pub(crate) no_meter: bool,

    /// With --serve: also measure latencies, with a thread on each CPU that
    /// wakes 100 times a second
    #[arg(long, requires = "serve")]
    pub(crate) meter: bool,

    #[command(flatten)]
    pub(crate) on: super::on::On,
}

fn interval(text: &str) -> Result<Nanos, String> {
    let interval: Nanos = text
        .parse()
        .map_err(|error: rampart_model::ParseNanosError| error.to_string())?;
    if (Nanos::from_millis(100)..=Nanos::from_secs(3600)).contains(&interval) {
        Ok(interval)
    } else {
        Err(format!("{interval} is out of range; write 100ms to 1h"))
    }
}

pub(crate) fn run(arguments: &StatusArguments, colour: bool) -> Result<ExitCode, Failure> {
    if arguments.watch {
        return watch(arguments);
    }
    if let Some(address) = &arguments.serve {
        return serve(address, arguments.meter);
    }
    let stop = signals::stop_flag()?;
    let mut sampler = Sampler::start(VERSION)?;
    if !rampart_live::wait(arguments.interval, &stop) {
        return Ok(ExitCode::Partial);
    }
    let status = sampler.next_status()?;
    let format = match arguments.json {
        true => StatusFormat::Json,
        false => arguments.format.unwrap_or_default(),
    };
    let text = match format {
        StatusFormat::Json => serde_json::to_string_pretty(&status)? + "\n",
        StatusFormat::Openmetrics => rampart_status::open_metrics_once(&status),
        StatusFormat::Terminal => {
            let colour = colour && arguments.out.is_none();
            let elements = rampart_present::status(&status);
            output::terminal_text(&elements, output::terminal_width(), colour)
        }
    };
    output::write(arguments.out.as_deref(), &text)?;
    if format == StatusFormat::Terminal
        && status.plan.is_none()
        && !rustix::process::geteuid().is_root()
    {
        output::eprint(&format!(
            "note: no plan in {}; a plan that root applied is shown to root only",
            rampart_host::StateDirectory::standard().path().display()
        ));
    }
    Ok(ExitCode::of_check(status.is_as_expected()))
}

fn meter_program() -> Result<MeterProgram, Failure> {
    Ok(MeterProgram {
        path: super::meter_program()?,
        tool_version: VERSION,
    })
}

/// Returns the error of a view without a terminal.
pub(super) fn needs_terminal() -> Failure {
    Failure::usage(
        "--watch: standard input and output must be a terminal; fix: rampart status; fix: rampart \
         status --watch --on ssh:HOST",
    )
}

fn watch(arguments: &StatusArguments) -> Result<ExitCode, Failure> {
    if !rampart_bench::has_terminal() {
        return Err(needs_terminal());
    }
    let stop = signals::lasting_stop_flag()?;
    let meter = match arguments.no_meter {
        true => Err("no latencies: --no-meter".to_owned()),
        false => meter_program().map_err(|_| {
            "no latencies: rampart-meter does not exist; set RAMPART_METER".to_owned()
        }),
    };
    rampart_live::watch(meter, arguments.interval, VERSION, &stop)?;
    Ok(ExitCode::Success)
}

fn serve(address: &ServeAddress, meter: bool) -> Result<ExitCode, Failure> {
    let stop = signals::stop_flag()?;
    let meter = meter.then(meter_program).transpose()?;
    let begun = |url: &str| output::eprint(&format!("rampart: serving {url} until Ctrl-C"));
    let report = |error| {
        Failure::from(error).report();
    };
    rampart_live::serve(address, meter, VERSION, &stop, &begun, &report)?;
    Ok(ExitCode::Success)
}
