// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The user's request for disturbances of domains.

use std::fmt;
use std::str::FromStr;

use rampart_model::{Disturbance, DisturbanceKind, ParseDisturbanceError};

use crate::measuring_costs::MeasuringCosts;

/// One entry of `--disturb`: `none`, `block`, `cache`, `block:host`, `block:under:vm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisturbanceRequest {
    /// No disturbances.
    Nothing,
    /// A kind of disturbance in every domain; for blocks also under each guest.
    Every(DisturbanceKind),
    /// A single disturbance.
    One(Disturbance),
}

impl FromStr for DisturbanceRequest {
    type Err = ParseDisturbanceError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            return Ok(Self::Nothing);
        }
        match text.parse::<DisturbanceKind>() {
            Ok(kind) => Ok(Self::Every(kind)),
            Err(_) => text.parse().map(Self::One),
        }
    }
}

impl fmt::Display for DisturbanceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.pad("none"),
            Self::Every(kind) => kind.fmt(f),
            Self::One(disturbance) => disturbance.fmt(f),
        }
    }
}

impl DisturbanceRequest {
    /// Returns the default disturbances: blocks, and the loads on resources that domains share, as
    /// far as they are worth their time.
    pub(crate) fn usual(costs: &MeasuringCosts) -> Vec<Self> {
        let loads = costs.disturbing_loads.iter().copied();
        std::iter::once(DisturbanceKind::Block)
            .chain(loads.map(DisturbanceKind::Load))
            .map(Self::Every)
            .collect()
    }

    /// Returns whether this entry requests the disturbance.
    pub(crate) fn wants(&self, disturbance: &Disturbance) -> bool {
        match self {
            Self::Nothing => false,
            Self::Every(kind) => *kind == disturbance.kind,
            Self::One(one) => one == disturbance,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip_through_text() {
        for text in ["none", "block", "cache", "block:under:vm", "io:container"] {
            let entry: DisturbanceRequest = text.parse().expect(text);
            assert_eq!(entry.to_string(), text);
        }
        for text in ["", "idle", "gpu", "block:"] {
            assert!(text.parse::<DisturbanceRequest>().is_err(), "{text}");
        }
    }
}
