// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pairs of hostile cells, and cells with two hostile CPUs.
