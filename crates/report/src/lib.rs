// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Renders the evaluation document: terminal, HTML, JSON, JUnit. Reads nothing else.
