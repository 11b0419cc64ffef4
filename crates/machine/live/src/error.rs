// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of the live status.

use std::io;

use rampart_host::HostError;

use crate::ServeAddress;

/// Why the status cannot be shown or served.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The active plan cannot be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The terminal or the server failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The host name of the address cannot be resolved.
    #[error("--serve {address}: cannot resolve this address: {cause}; fix: name an IP address")]
    Unresolved {
        /// The address as the user named it.
        address: ServeAddress,
        /// The error of the resolver.
        cause: io::Error,
    },
    /// The server cannot listen on the address.
    #[error(
        "--serve {address}: cannot listen on this address: {cause}; fix: ss -ltnp; fix: name another address"
    )]
    NotListening {
        /// The address as the user named it.
        address: ServeAddress,
        /// The error that the kernel returned.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}
