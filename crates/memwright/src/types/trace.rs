//! Trace events, each written as one JSON object.

use core::fmt;
use core::fmt::Write;
use memwright_table::{PageRange, VirtAddr};

use crate::types::access::{Access, FaultKind};
use crate::types::error::FaultError;
use crate::types::rights::Rights;

/// Receives events. It is called with locks held: it must not call back into the memory manager and must not
/// sleep.
pub trait TraceSink: Sync {
    /// Receives the event `event`.
    fn event(&self, event: &Event);
}

/// An operation of the memory manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A page fault and its outcome.
    Fault {
        /// The address of the access.
        address: VirtAddr,
        /// The access.
        access: Access,
        /// The outcome.
        outcome: Result<FaultKind, FaultError>,
        /// The range of the area that contains `address`; empty if there is no area.
        area: PageRange,
    },
    /// An area was mapped.
    Map {
        /// The pages of the area.
        range: PageRange,
        /// The rights of the area.
        rights: Rights,
    },
    /// Pages were unmapped.
    Unmap {
        /// The pages that were unmapped.
        range: PageRange,
    },
    /// A protection change.
    Protect {
        /// The pages whose protection changed.
        range: PageRange,
        /// The new rights.
        rights: Rights,
        /// The number of entries that changed.
        entries: u64,
    },
    /// A mapping was moved.
    Remap {
        /// The old range.
        old: PageRange,
        /// The new range.
        new: PageRange,
    },
    /// An address space was copied.
    Fork {
        /// The number of entries that were copied.
        entries: u64,
    },
    /// Translations were flushed.
    Flush {
        /// The kind of change that required the flush. If several kinds did, the last of them in the order of
        /// `Change::ALL`.
        reason: &'static str,
        /// The number of entries that changed.
        entries: u64,
        /// The number of CPUs that were interrupted.
        cpus: u32,
    },
}

impl Event {
    /// Writes the event as one JSON object, without a newline.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write_json(&self, out: &mut dyn Write) -> fmt::Result {
        match self {
            Self::Fault {
                address,
                access,
                outcome,
                area,
            } => {
                write!(
                    out,
                    r#"{{"event":"fault","address":"{address}","access":"{}","#,
                    access.name()
                )?;
                match outcome {
                    Ok(kind) => write!(out, r#""kind":"{}","#, kind.name())?,
                    Err(error) => write!(out, r#""refused":"{error:?}","#)?,
                }
                write_range(out, "area", *area)?;
            }
            Self::Map { range, rights } => {
                write!(
                    out,
                    r#"{{"event":"map","rights":"{}","#,
                    RightsText(*rights)
                )?;
                write_range(out, "range", *range)?;
            }
            Self::Unmap { range } => {
                write!(out, r#"{{"event":"unmap","#)?;
                write_range(out, "range", *range)?;
            }
            Self::Protect {
                range,
                rights,
                entries,
            } => {
                write!(
                    out,
                    r#"{{"event":"protect","rights":"{}","entries":{entries},"#,
                    RightsText(*rights)
                )?;
                write_range(out, "range", *range)?;
            }
            Self::Remap { old, new } => {
                write!(out, r#"{{"event":"remap","#)?;
                write_range(out, "old", *old)?;
                out.write_char(',')?;
                write_range(out, "new", *new)?;
            }
            Self::Fork { entries } => write!(out, r#"{{"event":"fork","entries":{entries}"#)?,
            Self::Flush {
                reason,
                entries,
                cpus,
            } => write!(
                out,
                r#"{{"event":"flush","reason":"{reason}","entries":{entries},"cpus":{cpus}"#
            )?,
        }
        out.write_char('}')
    }
}

fn write_range(out: &mut dyn Write, name: &str, range: PageRange) -> fmt::Result {
    write!(
        out,
        r#""{name}":["{}","{}"]"#,
        range.start.address(),
        range.end.address()
    )
}

/// Formats rights as in /proc/PID/maps, without the last letter of that format.
pub(crate) struct RightsText(pub(crate) Rights);

impl fmt::Display for RightsText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (right, letter) in [
            (Rights::READ, 'r'),
            (Rights::WRITE, 'w'),
            (Rights::EXECUTE, 'x'),
        ] {
            f.write_char(if self.0.contains(right) { letter } else { '-' })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use memwright_table::Page;

    use super::*;

    #[test]
    fn each_event_is_one_json_object() {
        let range = PageRange::new(Page::new(1), Page::new(3));
        let write = Access {
            write: true,
            fetch: false,
            user: true,
        };
        let address = VirtAddr::new(0x1234);
        #[rustfmt::skip]
        let rows = [
            (Event::Fault { address, access: write, outcome: Ok(FaultKind::DemandZero), area: range },
             r#"{"event":"fault","address":"0x1234","access":"write","kind":"demand_zero","area":["0x1000","0x3000"]}"#),
            (Event::Fault { address, access: write, outcome: Err(FaultError::NoArea), area: PageRange::default() },
             r#"{"event":"fault","address":"0x1234","access":"write","refused":"NoArea","area":["0x0","0x0"]}"#),
            (Event::Map { range, rights: Rights::READ | Rights::EXECUTE },
             r#"{"event":"map","rights":"r-x","range":["0x1000","0x3000"]}"#),
            (Event::Unmap { range },
             r#"{"event":"unmap","range":["0x1000","0x3000"]}"#),
            (Event::Protect { range, rights: Rights::empty(), entries: 2 },
             r#"{"event":"protect","rights":"---","entries":2,"range":["0x1000","0x3000"]}"#),
            (Event::Remap { old: range, new: range },
             r#"{"event":"remap","old":["0x1000","0x3000"],"new":["0x1000","0x3000"]}"#),
            (Event::Fork { entries: 7 },
             r#"{"event":"fork","entries":7}"#),
            (Event::Flush { reason: "shrank", entries: 2, cpus: 1 },
             r#"{"event":"flush","reason":"shrank","entries":2,"cpus":1}"#),
        ];
        for (event, expected) in rows {
            let mut text = String::new();
            event.write_json(&mut text).unwrap();
            assert_eq!(text, expected);
        }
    }
}
