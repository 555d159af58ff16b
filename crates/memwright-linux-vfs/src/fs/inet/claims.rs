//! The claims of sockets on ports, and which claims conflict.

use crate::fs::inet::place::{Place, Scope};
use alloc::collections::BTreeMap;

/// The protocol of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// A byte stream.
    Tcp,
    /// Datagrams.
    Udp,
}

/// The sockets that can use the same port as this socket, because they and this socket have the option `SO_REUSEPORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sharing {
    /// No sockets.
    Alone,
    /// Sockets of this user.
    User(u32),
    /// Sockets of all users that set the option. The claim belongs to a connection in the state `TIME_WAIT`.
    Anyone,
}

/// The properties of a claim that determine whether it conflicts with another claim on the same port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Terms {
    /// Whether the socket has the option `SO_REUSEADDR`.
    pub reuse: bool,
    /// Which sockets with the option `SO_REUSEPORT` can claim the port too.
    pub sharing: Sharing,
    /// Whether the socket accepts connections.
    pub listening: bool,
    /// Whether `connect` chose the port. Other connections for which `connect` chooses a port can then use this port
    /// too.
    pub outgoing: bool,
}

/// The claim of a socket on a port: it excludes conflicting claims of other sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// Whether the port is a TCP or a UDP port.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// The addresses at which the socket uses the port.
    pub place: Place,
    /// The properties that decide which other claims conflict.
    pub terms: Terms,
}

/// The origin of the port of a new claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The program passed the port.
    Program,
    /// The kernel chose the port for a `bind` to port 0.
    Bind,
    /// The kernel chose the port for `connect`.
    Connect,
}

/// Returns whether a new claim with the terms `new` conflicts with an existing claim with the terms `old` on the same
/// port at a common address (Linux 7.2 `net/ipv4/inet_connection_sock.c`, `inet_bind_conflict`; `net/ipv4/udp.c`,
/// `udp_lib_lport_inuse`).
#[must_use]
pub fn exclude(protocol: Protocol, choice: Choice, new: &Terms, old: &Terms) -> bool {
    match choice {
        Choice::Bind => return true,
        Choice::Connect => return !old.outgoing,
        Choice::Program => {}
    }
    if new.reuse && old.reuse && (protocol == Protocol::Udp || !old.listening) {
        return false;
    }
    match (new.sharing, old.sharing) {
        (Sharing::Alone, _) | (_, Sharing::Alone) => true,
        (Sharing::User(one), Sharing::User(other)) => one != other,
        (Sharing::Anyone, _) | (_, Sharing::Anyone) => false,
    }
}

/// The key under which claims are counted: all claims with this port, protocol, scope and terms have one count. The
/// port is the first field, because two keys nearly always differ in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    port: u16,
    protocol: Protocol,
    scope: Scope,
    terms: Terms,
}

const LEAST: Terms = Terms {
    reuse: false,
    sharing: Sharing::Alone,
    listening: false,
    outgoing: false,
};

/// The claims on all ports.
///
/// Only the number of claims with equal port, protocol, `Scope` and `Terms` is stored. A check for conflicts visits at
/// most three scopes, and each combination of terms in a scope once. Its cost does not depend on the number of sockets
/// with the port.
pub struct Claims {
    counts: BTreeMap<Key, usize>,
}

impl Claims {
    /// Creates an empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            counts: BTreeMap::new(),
        }
    }

    /// Adds a claim.
    pub fn add(&mut self, claim: &Claim) {
        for key in keys(claim) {
            *self.counts.entry(key).or_default() += 1;
        }
    }

    /// Removes a claim that [`Self::add`] added.
    pub fn remove(&mut self, claim: &Claim) {
        for key in keys(claim) {
            if let Some(count) = self.counts.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&key);
                }
            }
        }
    }

    /// Returns whether the claim `new` conflicts with an existing claim.
    #[must_use]
    pub fn exclude(&self, new: &Claim, choice: Choice) -> bool {
        let scopes = match choice {
            // `connect` chooses no port that a program has bound, whatever the address is.
            Choice::Connect => [Some(Scope::OverV4), Some(Scope::OverV6), None],
            Choice::Program | Choice::Bind => new.place.overlapping(),
        };
        scopes.into_iter().flatten().any(|scope| {
            let from = Key {
                protocol: new.protocol,
                port: new.port,
                scope,
                terms: LEAST,
            };
            let same =
                |key: &&Key| (key.protocol, key.port, key.scope) == (new.protocol, new.port, scope);
            let mut found = self
                .counts
                .range(from..)
                .map(|(key, _)| key)
                .take_while(same);
            found.any(|key| exclude(new.protocol, choice, &new.terms, &key.terms))
        })
    }
}

fn keys(claim: &Claim) -> impl Iterator<Item = Key> {
    let &Claim {
        protocol,
        port,
        place,
        terms,
    } = claim;
    let key = move |scope| Key {
        protocol,
        port,
        scope,
        terms,
    };
    place.scopes().into_iter().flatten().map(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::inet::address::Ip;

    const fn terms(reuse: bool, sharing: Sharing, listening: bool) -> Terms {
        Terms {
            reuse,
            sharing,
            listening,
            outgoing: false,
        }
    }

    #[test]
    fn terms_exclude_one_another() {
        use Protocol::{Tcp, Udp};
        use Sharing::{Alone, Anyone, User};
        let (plain, reuse) = (terms(false, Alone, false), terms(true, Alone, false));
        let (one, other) = (terms(false, User(1), false), terms(false, User(2), true));
        let listens = |sharing| terms(false, sharing, true);
        for (protocol, new, old, excluded) in [
            (Tcp, plain, plain, true),
            (Tcp, reuse, plain, true),
            (Tcp, plain, reuse, true),
            (Tcp, reuse, reuse, false),
            (Tcp, reuse, terms(true, Alone, true), true),
            (Udp, reuse, reuse, false),
            (Tcp, one, listens(User(1)), false),
            (Tcp, one, other, true),
            (Tcp, one, listens(Alone), true),
            (Tcp, one, terms(false, Anyone, false), false),
            (Udp, one, one, false),
        ] {
            assert_eq!(exclude(protocol, Choice::Program, &new, &old), excluded);
            assert!(exclude(protocol, Choice::Bind, &new, &old));
            assert!(exclude(protocol, Choice::Connect, &new, &old));
        }
        let outgoing = Terms {
            outgoing: true,
            ..LEAST
        };
        assert!(!exclude(Tcp, Choice::Connect, &outgoing, &outgoing));
    }

    #[test]
    fn claims_are_counted() {
        let claim = |place, port| Claim {
            protocol: Protocol::Tcp,
            port,
            place,
            terms: LEAST,
        };
        let mut claims = Claims::new();
        let local = claim(Place::One(Ip::LOCAL_V4), 80);
        claims.add(&local);
        claims.add(&local);
        for (place, port, excluded) in [
            (Place::One(Ip::LOCAL_V4), 80, true),
            (Place::One(Ip::V4([127, 0, 0, 2])), 80, false),
            (Place::AnyV4, 80, true),
            (Place::Any, 80, true),
            (Place::AnyV6, 80, false),
            (Place::AnyV4, 81, false),
        ] {
            assert_eq!(
                claims.exclude(&claim(place, port), Choice::Program),
                excluded
            );
        }
        claims.remove(&local);
        assert!(claims.exclude(&local, Choice::Program));
        claims.remove(&local);
        assert!(!claims.exclude(&local, Choice::Program));
        assert!(claims.counts.is_empty());
    }
}
