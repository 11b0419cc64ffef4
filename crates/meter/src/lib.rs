// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The measuring engines, and behind the feature `std` the Linux program that carries them.
#![cfg_attr(not(feature = "std"), no_std)]
