//! The sets of addresses at which sockets receive, and which of these sets overlap.

use crate::fs::inet::address::{Family, Ip};

/// The addresses at which a bound socket receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// This address only.
    One(Ip),
    /// All IPv4 addresses.
    AnyV4,
    /// All IPv6 addresses, for a socket with `IPV6_V6ONLY`.
    AnyV6,
    /// All IPv4 and IPv6 addresses.
    Any,
}

/// A set of sockets with the same port, by the addresses at which they receive. `Claims` stores one count for each
/// scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The sockets that receive at exactly these addresses.
    At(Place),
    /// The sockets that receive at least at one IPv4 address.
    OverV4,
    /// The sockets that receive at least at one IPv6 address.
    OverV6,
}

impl Place {
    /// Returns the addresses at which a socket of `family` receives if it is bound to `ip`. `only` is its option
    /// `IPV6_V6ONLY`.
    #[must_use]
    pub fn of(family: Family, ip: Ip, only: bool) -> Self {
        match ip {
            Ip::V4(_) if ip.is_any() => Self::AnyV4,
            Ip::V6(_) if ip.is_any() => match family {
                Family::V6 if !only => Self::Any,
                Family::V4 | Family::V6 => Self::AnyV6,
            },
            Ip::V4(_) | Ip::V6(_) => Self::One(ip),
        }
    }

    /// Returns the places that contain `ip`, the most specific first.
    #[must_use]
    pub const fn receiving(ip: Ip) -> [Self; 3] {
        match ip {
            Ip::V4(_) => [Self::One(ip), Self::AnyV4, Self::Any],
            Ip::V6(_) => [Self::One(ip), Self::AnyV6, Self::Any],
        }
    }

    /// Returns the scopes that contain a socket with this place.
    #[must_use]
    pub const fn scopes(self) -> [Option<Scope>; 3] {
        let over = match self {
            Self::One(Ip::V4(_)) | Self::AnyV4 => [Some(Scope::OverV4), None],
            Self::One(Ip::V6(_)) | Self::AnyV6 => [Some(Scope::OverV6), None],
            Self::Any => [Some(Scope::OverV4), Some(Scope::OverV6)],
        };
        [Some(Scope::At(self)), over[0], over[1]]
    }

    /// Returns scopes that together contain exactly those sockets whose places have an address in common with this
    /// place.
    #[must_use]
    pub const fn overlapping(self) -> [Option<Scope>; 3] {
        match self {
            Self::One(ip) => {
                let [one, some, any] = Self::receiving(ip);
                [
                    Some(Scope::At(one)),
                    Some(Scope::At(some)),
                    Some(Scope::At(any)),
                ]
            }
            Self::AnyV4 => [Some(Scope::OverV4), None, None],
            Self::AnyV6 => [Some(Scope::OverV6), None, None],
            Self::Any => [Some(Scope::OverV4), Some(Scope::OverV6), None],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_overlap_if_they_share_an_address() {
        let four = Place::One(Ip::LOCAL_V4);
        let other = Place::One(Ip::V4([127, 0, 0, 2]));
        let six = Place::One(Ip::LOCAL_V6);
        let all = [four, other, six, Place::AnyV4, Place::AnyV6, Place::Any];
        // Whether the place of the row overlaps that of the column, in the order of `all`.
        let expected = [
            [true, false, false, true, false, true],
            [false, true, false, true, false, true],
            [false, false, true, false, true, true],
            [true, true, false, true, false, true],
            [false, false, true, false, true, true],
            [true, true, true, true, true, true],
        ];
        for (one, row) in all.iter().zip(expected) {
            for (two, overlap) in all.iter().zip(row) {
                let counted = two.scopes();
                let found = one
                    .overlapping()
                    .iter()
                    .flatten()
                    .any(|scope| counted.contains(&Some(*scope)));
                assert_eq!(found, overlap, "{one:?} {two:?}");
            }
        }
    }

    #[test]
    fn places_follow_from_addresses() {
        for (family, ip, only, place) in [
            (Family::V4, Ip::V4([0; 4]), false, Place::AnyV4),
            (Family::V6, Ip::V4([0; 4]), false, Place::AnyV4),
            (Family::V6, Ip::V6([0; 16]), false, Place::Any),
            (Family::V6, Ip::V6([0; 16]), true, Place::AnyV6),
            (Family::V6, Ip::LOCAL_V6, false, Place::One(Ip::LOCAL_V6)),
        ] {
            assert_eq!(Place::of(family, ip, only), place);
        }
    }
}
