// SPDX-License-Identifier: Apache-2.0 OR MIT
//! End to end: the real programs on the real machine.
