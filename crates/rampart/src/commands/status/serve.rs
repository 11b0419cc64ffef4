// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--serve`: a status for each scrape, as OpenMetrics over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rampart_model::{ExitCode, Nanos};
use rampart_status::{
    CLASSIC_CONTENT_TYPE, Latencies, OPEN_METRICS_CONTENT_TYPE, Totals, classic, open_metrics,
};
use tiny_http::{Header, Method, Request, Response, Server};

use super::meter::Meters;
use super::sampler::{LOOK, Sampler, wait};
use crate::failure::Failure;
use crate::{output, signals};

/// Who asks again so soon gets the same: rates over less say nothing.
const FRESH: Duration = Duration::from_millis(250);
/// The interval of the look by which meters are placed.
const FIRST_LOOK: Nanos = Nanos::from_millis(500);
/// Answers that may be on their way at once: one that nobody reads must not hold up the others, and
/// many of them must not fill memory.
const ANSWERS: usize = 16;

/// One status and what was counted until then.
#[derive(Debug)]
struct Scrapes {
    sampler: Sampler,
    meters: Option<Meters>,
    totals: Totals,
    last: Option<(Instant, String)>,
}

pub(super) fn run(address: SocketAddr, meter: bool) -> Result<ExitCode, Failure> {
    let stop = signals::stop_flag()?;
    let server = Server::http(address).map_err(|cause| {
        Failure::precondition(format!(
            "--serve {address}: cannot listen on this address: {cause}; fix: name another \
             address, or end the program that uses this one (ss -ltnp)"
        ))
    })?;
    let mut scrapes = Scrapes {
        sampler: Sampler::start()?,
        meters: None,
        totals: Totals::default(),
        last: None,
    };
    if meter {
        wait(FIRST_LOOK, &stop);
        let status = scrapes.sampler.next()?;
        scrapes.totals.add(&status);
        let meters = Meters::start(scrapes.sampler.plan()?.as_ref(), &status)?;
        scrapes.meters = Some(meters);
    }
    output::say(&format!(
        "rampart: serving http://{}/metrics until Ctrl-C",
        server.server_addr()
    ));
    let answering = Arc::new(AtomicUsize::new(0));
    while !stop.load(Ordering::Relaxed) {
        if let Some(request) = server.recv_timeout(LOOK)? {
            answer(request, &mut scrapes, &answering);
        }
    }
    Ok(ExitCode::Success)
}

impl Scrapes {
    /// The figures as OpenMetrics.
    fn text(&mut self) -> Result<String, Failure> {
        if let Some((at, text)) = &self.last
            && at.elapsed() < FRESH
        {
            return Ok(text.clone());
        }
        let status = self.sampler.next()?;
        self.totals.add(&status);
        if let Some(meters) = &mut self.meters {
            meters.follow(self.sampler.plan()?.as_ref(), &status);
        }
        let latencies = self
            .meters
            .as_ref()
            .map_or_else(Latencies::default, |meters| meters.heard().0);
        let text = open_metrics(&status, &self.totals, &latencies);
        self.last = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

fn answer(request: Request, scrapes: &mut Scrapes, answering: &Arc<AtomicUsize>) {
    if answering.load(Ordering::Relaxed) >= ANSWERS {
        // Dropped: the other end is told 500 by the library, or has gone.
        return;
    }
    let response = respond(&request, scrapes);
    answering.fetch_add(1, Ordering::Relaxed);
    let answering = Arc::clone(answering);
    thread::spawn(move || {
        // Who went away meanwhile needs no answer.
        let _ = request.respond(response);
        answering.fetch_sub(1, Ordering::Relaxed);
    });
}

fn respond(request: &Request, scrapes: &mut Scrapes) -> Response<std::io::Cursor<Vec<u8>>> {
    let plain = |text: &str, code: u16| Response::from_string(text).with_status_code(code);
    if !matches!(request.method(), Method::Get | Method::Head) {
        return plain("only GET is answered here\n", 405);
    }
    match request.url().split('?').next() {
        Some("/metrics") => {}
        Some("/") => return plain("rampart status: the figures are at /metrics\n", 200),
        _ => return plain("there is only /metrics here\n", 404),
    }
    let text = match scrapes.text() {
        Ok(text) => text,
        Err(failure) => {
            let told = plain(
                "the status cannot be read; the server's terminal says why\n",
                500,
            );
            failure.report();
            return told;
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
