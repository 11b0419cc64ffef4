// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calendar times of documents and of their names, in UTC.

use rampart_model::Nanos;

/// Returns the present time since 1970.
pub(crate) fn since_epoch() -> Nanos {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map(Nanos::from)
        .unwrap_or_default()
}

/// Returns the present time as part of a file name, `20260131-235959`, in UTC.
#[must_use]
pub fn file_name_of_now() -> String {
    jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string()
}

/// Formats a time since 1970 by RFC 3339.
pub(crate) fn timestamp(since_epoch: Nanos) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(since_epoch.0))
        .map(|timestamp| timestamp.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_times_by_rfc_3339() {
        assert_eq!(
            timestamp(Nanos::from_secs(86_400)),
            "1970-01-02T00:00:00.000Z"
        );
    }
}
