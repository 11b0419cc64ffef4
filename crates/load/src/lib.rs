// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads that run beside a measurement.
