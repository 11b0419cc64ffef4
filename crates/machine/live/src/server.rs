// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Serves the status as OpenMetrics over HTTP.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rampart_model::Nanos;
use rampart_status::{
    CLASSIC_CONTENT_TYPE, OPEN_METRICS_CONTENT_TYPE, Totals, classic, open_metrics,
};
use tiny_http::{Header, Method, Request, Response, Server};

use crate::LiveError;
use crate::low_rate_meters::{LowRateMeters, MeterProgram};
use crate::sampler::{POLL, Sampler, wait};

/// Age up to which a status is served again; rates of a shorter time are noise.
const FRESH: Duration = Duration::from_millis(250);
/// Interval of the first status, by which meters are placed.
const FIRST_INTERVAL: Nanos = Nanos::from_millis(500);
/// Limit of simultaneous responses: a slow reader must not delay the others, and many must not fill
/// the memory.
const MAX_RESPONSES: usize = 16;

/// The state between scrapes: the newest status, and counters since the start.
#[derive(Debug)]
struct Scrapes {
    sampler: Sampler,
    meters: Option<LowRateMeters>,
    totals: Totals,
    last: Option<(Instant, String)>,
}

/// The address of the server: an IP address or the name of a host, with a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeAddress(String);

impl FromStr for ServeAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Self(text.to_owned()))
            }
            _ => Err("write ADDRESS:PORT, such as localhost:19477 or [::1]:19477".to_owned()),
        }
    }
}

impl fmt::Display for ServeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl ServeAddress {
    /// Resolves the name of the host. IPv4 first: a scraper of `localhost` may use only that.
    fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let mut found: Vec<SocketAddr> = self.0.to_socket_addrs()?.collect();
        found.sort_by_key(SocketAddr::is_ipv6);
        Ok(found)
    }
}

/// Serves the status of this machine until `stop` is set, with the latencies of `meter`. Calls
/// `begun` with the address, and `report` with each error that a client gets no details of.
///
/// # Errors
/// If the server cannot listen on the address, or the first status cannot be read.
pub fn serve(
    address: &ServeAddress,
    meter: Option<MeterProgram>,
    tool_version: &'static str,
    stop: &AtomicBool,
    begun: &dyn Fn(&str),
    report: &dyn Fn(LiveError),
) -> Result<(), LiveError> {
    let named = || address.clone();
    let resolved = address.resolve().map_err(|cause| LiveError::Unresolved {
        address: named(),
        cause,
    })?;
    let listening = Server::http(resolved.as_slice());
    let server = listening.map_err(|cause| LiveError::NotListening {
        address: named(),
        cause,
    })?;
    let mut scrapes = Scrapes {
        sampler: Sampler::start(tool_version)?,
        meters: None,
        totals: Totals::default(),
        last: None,
    };
    if let Some(program) = meter {
        wait(FIRST_INTERVAL, stop);
        let status = scrapes.sampler.next_status()?;
        scrapes.totals.add(&status);
        let plan = scrapes.sampler.plan()?;
        scrapes.meters = Some(LowRateMeters::start(program, plan.as_ref(), &status));
    }
    begun(&format!("http://{}/metrics", server.server_addr()));
    let responding = Arc::new(AtomicUsize::new(0));
    while !stop.load(Ordering::Relaxed) {
        if let Some(request) = server.recv_timeout(POLL)? {
            answer(request, &mut scrapes, &responding, report);
        }
    }
    Ok(())
}

impl Scrapes {
    /// Returns the figures as OpenMetrics.
    fn text(&mut self) -> Result<String, LiveError> {
        if let Some((at, text)) = &self.last
            && at.elapsed() < FRESH
        {
            return Ok(text.clone());
        }
        let status = self.sampler.next_status()?;
        self.totals.add(&status);
        if let Some(meters) = &mut self.meters {
            meters.follow(self.sampler.plan()?.as_ref(), &status);
        }
        let latencies = self.meters.as_ref().map(LowRateMeters::latencies);
        let latencies = latencies.unwrap_or_default();
        let text = open_metrics(&status, &self.totals, &latencies);
        self.last = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

fn answer(
    request: Request,
    scrapes: &mut Scrapes,
    responding: &Arc<AtomicUsize>,
    report: &dyn Fn(LiveError),
) {
    if responding.load(Ordering::Relaxed) >= MAX_RESPONSES {
        // The library responds with status 500 when the request is dropped.
        return;
    }
    let response = respond(&request, scrapes, report);
    responding.fetch_add(1, Ordering::Relaxed);
    let responding = Arc::clone(responding);
    thread::spawn(move || {
        // The client may have closed the connection.
        let _ = request.respond(response);
        responding.fetch_sub(1, Ordering::Relaxed);
    });
}

fn respond(
    request: &Request,
    scrapes: &mut Scrapes,
    report: &dyn Fn(LiveError),
) -> Response<io::Cursor<Vec<u8>>> {
    let plain = |text: &str, code: u16| Response::from_string(text).with_status_code(code);
    if !matches!(request.method(), Method::Get | Method::Head) {
        return plain("method not allowed: use GET\n", 405);
    }
    match request.url().split('?').next() {
        Some("/metrics") => {}
        Some("/") => return plain("rampart status: the metrics are at /metrics\n", 200),
        _ => return plain("not found: use /metrics\n", 404),
    }
    let text = match scrapes.text() {
        Ok(text) => text,
        Err(error) => {
            report(error);
            return plain(
                "cannot read the status; the server prints the cause on its standard error\n",
                500,
            );
        }
    };
    let modern = request.headers().iter().any(|header| {
        header.field.equiv("Accept")
            && header
                .value
                .as_str()
                .contains("application/openmetrics-text")
    });
    let (text, kind) = if modern {
        (text, OPEN_METRICS_CONTENT_TYPE)
    } else {
        (classic(&text), CLASSIC_CONTENT_TYPE)
    };
    let response = Response::from_string(text);
    match Header::from_bytes("Content-Type", kind) {
        Ok(header) => response.with_header(header),
        Err(()) => response,
    }
}
