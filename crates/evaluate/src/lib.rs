// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The experiment: which meter, where, under what, how long, in what order; then the verdicts.
