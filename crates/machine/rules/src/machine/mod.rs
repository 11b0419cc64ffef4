// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judgements of a machine by the rules of the catalogue.

pub(crate) mod figures;
