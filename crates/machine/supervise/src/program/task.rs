// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A task. `rampart run` moves itself into the domain and then executes the program, so that the
//! program executes no instruction outside the domain.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use rampart_model::{Finding, Severity};

use super::{Program, ProgramExit, StartRequest, ThreadPlacer, end, logged};
use crate::SuperviseError;

/// Time limit from the start to the program's first instruction.
const LAUNCH_LIMIT: Duration = Duration::from_secs(30);

struct Task {
    child: Child,
    threads: ThreadPlacer,
}

pub(super) fn start(
    order: &StartRequest<'_>,
) -> Result<(Box<dyn Program>, Vec<Finding>), SuperviseError> {
    let not_started = |cause| SuperviseError::NotStarted {
        program: order.launcher.program.display().to_string(),
        cause,
        fix: "reinstall rampart".to_owned(),
    };
    let mut command = Command::new(&order.launcher.program);
    command
        .args(["run", "--launched", &order.domain.name, "--"])
        .args(&order.domain.run)
        .env("RAMPART_STATE_DIR", order.state.path());
    let mut command = logged(command, order.files)?;
    // The pipe closes when the program is executed; an error is written to it before.
    let (mut answer, report) = std::io::pipe().map_err(not_started)?;
    command.stdin(Stdio::from(report));
    let mut child = command.spawn().map_err(not_started)?;
    // The command has the other end of the pipe open.
    drop(command);
    let (sender, refusal_text) = channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let _ = answer.read_to_string(&mut text);
        let _ = sender.send(text);
    });
    let refusal = match refusal_text.recv_timeout(LAUNCH_LIMIT) {
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
                    "`{}` was not executed within {} s",
                    order.domain.run.join(" "),
                    LAUNCH_LIMIT.as_secs()
                ),
            )
            .fix("see what keeps the domain's CPUs busy: top -H"),
        ),
    };
    if let Some(finding) = refusal {
        end(&mut child, Duration::from_secs(1));
        return Err(SuperviseError::Missing(finding));
    }
    let mut task = Task {
        child,
        threads: ThreadPlacer::new(order),
    };
    let findings = task.place_new_threads();
    Ok((Box::new(task), findings))
}

impl Program for Task {
    fn process(&self) -> Option<u32> {
        Some(self.child.id())
    }

    fn ended(&mut self) -> Option<ProgramExit> {
        super::end_rest_of_group(&self.child);
        self.child.try_wait().ok().flatten().map(ProgramExit::from)
    }

    fn place_new_threads(&mut self) -> Vec<Finding> {
        self.threads.place_new_threads(self.child.id())
    }

    fn stop(&mut self, limit: Duration) -> ProgramExit {
        end(&mut self.child, limit)
    }
}
