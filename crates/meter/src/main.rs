// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program that carries the engines into a domain.

fn main() {}
