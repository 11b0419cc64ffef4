// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result directory: `evaluation.json`, `report.html` and one histogram log per run.
//!
//! It is readable after a kill at any time: the document is replaced atomically, and a histogram
//! log is complete up to its last line.
//!
//! A copy can leave as a tar stream while it is written. A file is appended each time it is
//! written; the last entry of a name is valid.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use rampart_host::replace_file;
use rampart_model::{Batch, Distribution, EVALUATION_SCHEMA_VERSION, Evaluation, Nanos, Phase};

use crate::EvaluateError;

/// File name of the evaluation document.
pub const DOCUMENT: &str = "evaluation.json";

/// A tar stream of everything that is written to a result directory. Clones share the stream.
#[derive(Clone)]
pub struct ResultStream(Arc<Mutex<tar::Builder<Box<dyn Write + Send>>>>);

impl std::fmt::Debug for ResultStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResultStream").finish_non_exhaustive()
    }
}

impl ResultStream {
    /// Creates a stream that writes to `to`.
    #[must_use]
    pub fn new(to: impl Write + Send + 'static) -> Self {
        let to: Box<dyn Write + Send> = Box::new(to);
        Self(Arc::new(Mutex::new(tar::Builder::new(to))))
    }

    /// Appends the present content of a file.
    ///
    /// # Errors
    /// Returns an error if the reader has closed the stream.
    pub fn send(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        let mut archive = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        archive.append_data(&mut header, name, content)?;
        archive.get_mut().flush()
    }

    /// Writes the end of the archive.
    ///
    /// # Errors
    /// Returns an error if the reader has closed the stream.
    pub fn finish(&self) -> io::Result<()> {
        let mut archive = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        archive.finish()?;
        archive.get_mut().flush()
    }
}

/// A directory of results.
#[derive(Debug, Clone)]
pub struct ResultDirectory {
    path: PathBuf,
    stream: Option<ResultStream>,
}

impl ResultDirectory {
    /// Creates the directory, or opens one without an evaluation. Call this before measuring, so
    /// that a path that cannot be written costs no time.
    ///
    /// # Errors
    /// Returns an error if it cannot be written to, or already holds an evaluation.
    pub fn create(path: &Path) -> Result<Self, EvaluateError> {
        let failed = |source| EvaluateError::Output {
            path: path.to_owned(),
            source,
        };
        if path.join(DOCUMENT).exists() {
            return Err(EvaluateError::OutputTaken {
                path: path.to_owned(),
            });
        }
        fs::create_dir_all(path.join("histograms")).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            stream: None,
        })
    }

    /// Copies everything that is written from now on to `stream`.
    #[must_use]
    pub fn streamed(self, stream: Option<ResultStream>) -> Self {
        Self { stream, ..self }
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the document. The new one is synchronised to disk before it is renamed.
    ///
    /// # Errors
    /// Returns an error if it cannot be written; the old document then remains.
    pub fn write(&self, evaluation: &Evaluation) -> Result<(), EvaluateError> {
        let path = self.path.join(DOCUMENT);
        let failed = |source| EvaluateError::Output {
            path: path.clone(),
            source,
        };
        let text = serde_json::to_vec(evaluation).map_err(|error| failed(error.into()))?;
        replace_file(&path, &text).map_err(failed)?;
        self.send(DOCUMENT, &text)
    }

    /// Writes a small file next to the document.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub fn write_beside(&self, name: &str, content: &[u8]) -> Result<(), EvaluateError> {
        let path = self.path.join(name);
        replace_file(&path, content).map_err(|source| EvaluateError::Output { path, source })?;
        self.send(name, content)
    }

    fn send(&self, name: &str, content: &[u8]) -> Result<(), EvaluateError> {
        let sent = match &self.stream {
            Some(stream) => stream.send(name, content),
            None => Ok(()),
        };
        sent.map_err(|source| EvaluateError::Output {
            path: PathBuf::from("-"),
            source,
        })
    }

    /// Opens the histogram log of a run and returns it with its path in the directory.
    ///
    /// # Errors
    /// Returns an error if it cannot be created.
    pub(crate) fn histogram_log(
        &self,
        order: u32,
        record: &str,
    ) -> Result<(String, HistogramLog), EvaluateError> {
        let name = format!(
            "histograms/{order:04}-{}.hlog",
            record.replace(['/', ':'], "-")
        );
        let path = self.path.join(&name);
        let mut log = HistogramLog::create(&path).map_err(|source| EvaluateError::Output {
            path: path.clone(),
            source,
        })?;
        log.mirror = self.stream.clone().map(|stream| Mirror {
            stream,
            path,
            name: name.clone(),
            written: 0,
            sent: 0,
        });
        Ok((name, log))
    }
}

/// Reads the document of a result directory (or the document itself, if the path is a file).
///
/// # Errors
/// Returns an error if there is none, it is no evaluation, or it is of a newer version.
pub fn read(path: &Path) -> Result<Evaluation, EvaluateError> {
    let path = if path.is_dir() {
        path.join(DOCUMENT)
    } else {
        path.to_owned()
    };
    let text = fs::read(&path).map_err(|source| EvaluateError::Unreadable {
        path: path.clone(),
        source,
    })?;
    #[derive(serde::Deserialize)]
    struct Version {
        schema_version: u32,
    }
    let not_ours = |error: serde_json::Error| EvaluateError::NotAnEvaluation {
        path: path.clone(),
        reason: error.to_string(),
    };
    let Version { schema_version } = serde_json::from_slice(&text).map_err(not_ours)?;
    if schema_version > EVALUATION_SCHEMA_VERSION {
        return Err(EvaluateError::NotAnEvaluation {
            path: path.clone(),
            reason: format!(
                "its schema version is {schema_version}, expected at most {EVALUATION_SCHEMA_VERSION}; fix: use a newer rampart"
            ),
        });
    }
    serde_json::from_slice(&text).map_err(not_ours)
}

/// A log of histograms in the interval format of HdrHistogram, version 1.3. Tags name CPU and
/// series. Warm-up batches are left out.
#[derive(Debug)]
pub(crate) struct HistogramLog {
    file: BufWriter<File>,
    started: Option<Nanos>,
    mirror: Option<Mirror>,
}

/// The copy of a log in the result stream.
#[derive(Debug)]
struct Mirror {
    stream: ResultStream,
    path: PathBuf,
    name: String,
    /// Bytes in the file.
    written: usize,
    /// Bytes of the file that were sent.
    sent: usize,
}

impl Mirror {
    /// Sends the file each time its length has doubled, so that all copies of a log together are at
    /// most twice as long as the log.
    fn grew(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written >= 2 * self.sent {
            self.send();
        }
    }

    fn send(&mut self) {
        // Writing the document detects a closed stream; a log does not need to.
        if let Ok(content) = fs::read(&self.path)
            && self.stream.send(&self.name, &content).is_ok()
        {
            self.sent = self.written;
        }
    }
}

impl Drop for HistogramLog {
    fn drop(&mut self) {
        if let Some(mirror) = &mut self.mirror
            && mirror.sent < mirror.written
        {
            mirror.send();
        }
    }
}

impl HistogramLog {
    /// Creates the file.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: BufWriter::new(File::create(path)?),
            started: None,
            mirror: None,
        })
    }

    /// Appends a batch and flushes it to the file. `started` is the run's start on the clock of
    /// the batches and as seconds since 1970.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub(crate) fn append(&mut self, batch: &Batch, started: (Nanos, Nanos)) -> io::Result<()> {
        if batch.phase == Phase::WarmUp {
            return Ok(());
        }
        let (mut text, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
        let first = self.started.is_none();
        let start = *self.started.get_or_insert(started.0);
        let mut builder = IntervalLogWriterBuilder::new();
        if first {
            let epoch = std::time::UNIX_EPOCH + Duration::from(started.1);
            builder.add_comment("[Histogram log format version 1.3]");
            builder.add_comment("values and Interval_Max are nanoseconds");
            builder.with_start_time(epoch).with_base_time(epoch);
        }
        let mut writer = builder
            .begin_log_with(&mut text, &mut serializer)
            .map_err(|error| io::Error::other(error.to_string()))?;
        for series in &batch.series {
            let name = format!("cpu{}.{}", batch.cpu, series.series.word());
            let corrected = series
                .corrected
                .as_ref()
                .map(|corrected| (format!("{name}.corrected"), corrected));
            for (tag, distribution) in [(name, &series.seen)].into_iter().chain(corrected) {
                let tag = Tag::new(&tag).ok_or_else(|| io::Error::other("tag"))?;
                writer
                    .write_histogram(
                        &histogram(distribution),
                        batch.at.saturating_sub(start).into(),
                        batch.length.into(),
                        Some(tag),
                    )
                    .map_err(|error| io::Error::other(format!("{error:?}")))?;
            }
        }
        self.file.write_all(&text)?;
        self.file.flush()?;
        if let Some(mirror) = &mut self.mirror {
            mirror.grew(text.len());
        }
        Ok(())
    }
}

/// Converts a distribution to a histogram of the library. The bucket layout is the same, so no
/// count moves.
#[must_use]
pub(crate) fn histogram(distribution: &Distribution) -> Histogram<u64> {
    let highest = distribution.max.map_or(2, |max| max.0.max(2));
    let mut histogram = Histogram::new_with_max(highest, 3)
        .or_else(|_| Histogram::new(3))
        .expect("three digits are within the library's limits");
    for bucket in &distribution.buckets {
        histogram.saturating_record_n(bucket.0.0, bucket.1);
    }
    histogram
}
