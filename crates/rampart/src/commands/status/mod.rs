// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart status`: the present state of this machine, compared with the active plan.

mod meter;
mod sampler;
mod serve;
mod watch;

use std::net::SocketAddr;

use clap::Args;
use rampart_model::{ExitCode, Nanos};

use crate::failure::Failure;
use crate::{output, signals};
use sampler::Sampler;

#[derive(Debug, Args)]
#[command(after_help = "\
The command changes nothing.

Exit codes:
  0  no plan is active, or everything that it applied is in effect
  4  something of the plan is no longer in effect

Examples:
  rampart status
  rampart status --json                   as a document
  rampart status --watch                  live, with wakeup latencies
  rampart status --serve 127.0.0.1:9100   for Prometheus, at /metrics")]
pub(crate) struct StatusArguments {
    /// Print the status as JSON
    #[arg(long, conflicts_with_all = ["watch", "serve"])]
    pub(crate) json: bool,

    /// Show the status live on this terminal; `?` lists the keys
    #[arg(long, conflicts_with = "serve")]
    pub(crate) watch: bool,

    /// Serve the status to Prometheus over HTTP, at /metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) serve: Option<SocketAddr>,

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
        return watch::run(arguments);
    }
    if let Some(address) = arguments.serve {
        return serve::run(address, arguments.meter);
    }
    let stop = signals::stop_flag()?;
    let mut sampler = Sampler::start()?;
    if !sampler::wait(arguments.interval, &stop) {
        return Ok(ExitCode::Partial);
    }
    let status = sampler.next()?;
    if arguments.json {
        output::print_json(&status)?;
    } else {
        output::print_elements(&rampart_present::status(&status), colour)?;
        if status.plan.is_none() && !rustix::process::geteuid().is_root() {
            output::say(&format!(
                "note: no plan in {}; a plan that root applied is shown to root only",
                rampart_host::StateDirectory::standard().path().display()
            ));
        }
    }
    Ok(ExitCode::of_check(!status.has_drift()))
}
