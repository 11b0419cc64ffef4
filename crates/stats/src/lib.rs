// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Distributions, bounds, comparisons, tests. Pure functions.
