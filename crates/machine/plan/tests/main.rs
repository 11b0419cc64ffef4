// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the public functions: parsing, resolving, judging, proposing and exporting plans.

mod documents;
mod example_machines;
mod exports;
mod parsing;
mod pictures;
mod properties;
mod proposals;
mod rules;
mod selectors;
