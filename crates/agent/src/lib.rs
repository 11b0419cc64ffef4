// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hand inside: a program that starts others on a machine or guest that has no network, over one byte stream, and the side that speaks with it.
