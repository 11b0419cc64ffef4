// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program of this machine. `rampart run` puts itself in the domain and becomes it, so that not
//! one instruction of it runs elsewhere.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use rampart_model::{Finding, Severity};

use super::{Program, ProgramExit, StartRequest, ThreadPlacer, end, logged};
use crate::SuperviseError;

/// How long the way from the start to the program's first instruction may take.
const LAUNCH_LIMIT: Duration = Duration::from_secs(30);

struct Task {
    child: Child,
    tended: ThreadPlacer,
}

pub(super) fn start(
    order: &StartRequest<'_>,
) -> Result<(Box<dyn Program>, Vec<Finding>), SuperviseError> {
    let not_started = |cause| SuperviseError::NotStarted {
        program: order.launcher.program.display().to_string(),
        cause,
        fix: "install rampart again".to_owned(),
    };
    let mut command = Command::new(&order.launcher.program);
    command
        .args(["run", "--launched", &order.domain.name, "--"])
        .args(&order.domain.run)
        .env("RAMPART_STATE_DIR", order.state.path());
    let mut command = logged(command, order.files)?;
    // The pipe closes when the program takes over; a refusal comes through it before.
    let (mut answer, report) = std::io::pipe().map_err(not_started)?;
    command.stdin(Stdio::from(report));
    let mut child = command.spawn().map_err(not_started)?;
    // It holds the other end of the pipe.
    drop(command);
    let (sender, said) = channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let _ = answer.read_to_string(&mut text);
        let _ = sender.send(text);
    });
    let refusal = match said.recv_timeout(LAUNCH_LIMIT) {
        Ok(text) if text.is_empty() => None,
        Ok(text) => Some(Finding::new(
            Severity::Error,
            format!("domain {}", order.domain.name),
            text.trim().to_owned(),
        )),
        Err(_) => Some(
            Finding::new(
                Severity::Error,
                format!("domain {}", order.domain.name),
                format!(
                    "`{}` was not reached within {} s",
                    order.domain.run.join(" "),
                    LAUNCH_LIMIT.as_secs()
                ),
            )
            .fix("see with `top` what keeps the domain's CPUs busy"),
        ),
    };
    if let Some(finding) = refusal {
        end(&mut child, Duration::from_secs(1));
        return Err(SuperviseError::Missing(finding));
    }
    let mut task = Task {
        child,
        tended: ThreadPlacer::new(order),
    };
    let findings = task.tend();
    Ok((Box::new(task), findings))
}

impl Program for Task {
    fn process(&self) -> Option<u32> {
        Some(self.child.id())
    }

    fn ended(&mut self) -> Option<ProgramExit> {
        super::end_what_stayed(&self.child);
        self.child.try_wait().ok().flatten().map(ProgramExit::from)
    }

    fn tend(&mut self) -> Vec<Finding> {
        self.tended.tend(self.child.id())
    }

    fn stop(&mut self, limit: Duration) -> ProgramExit {
        end(&mut self.child, limit)
    }
}
