//! Classifies the refusals of the model and of the memory manager, so that they can be compared.

use alloc::format;
use alloc::string::String;

use memwright::error::FillError;
use memwright::{AdviseError, FaultError, ProtectError, RemapError, SealError};

use super::Difference;
use crate::model::Refusal;
use crate::process::Signal;

/// The reason for a refusal, with the distinctions on which the model and the memory manager must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Hole,
    Denied,
    Bus,
    NotApplicable,
    Sealed,
    Invalid,
    Busy,
    NotWatched,
    Exists,
    Resources,
    Broken(&'static str),
}

pub(super) fn kind_of(refusal: Refusal) -> Kind {
    match refusal {
        Refusal::Hole(_) => Kind::Hole,
        Refusal::Denied(_) => Kind::Denied,
        // `Protected` causes SIGBUS, as with `UFFD_FEATURE_SIGBUS`, because the simulation has no userfaultfd handler.
        Refusal::BeyondObject(_) | Refusal::Protected(_) => Kind::Bus,
        Refusal::NotApplicable(_) => Kind::NotApplicable,
        Refusal::Sealed(_) => Kind::Sealed,
        Refusal::Invalid => Kind::Invalid,
        Refusal::Watched(_) => Kind::Busy,
        Refusal::NotWatched => Kind::NotWatched,
        Refusal::Exists(_) => Kind::Exists,
    }
}

pub(super) fn kind_of_signal(signal: Signal) -> Kind {
    match signal {
        Signal::Unmapped => Kind::Hole,
        Signal::Forbidden => Kind::Denied,
        Signal::Bus => Kind::Bus,
        Signal::OutOfMemory => Kind::Resources,
        Signal::Broken(text) => Kind::Broken(text),
    }
}

pub(super) fn kind_of_protect(error: ProtectError) -> Kind {
    match error {
        ProtectError::Hole(_) => Kind::Hole,
        ProtectError::Denied(_) => Kind::Denied,
        ProtectError::Sealed(_) => Kind::Sealed,
        ProtectError::Misaligned | ProtectError::OutOfRange | ProtectError::Key => Kind::Invalid,
        ProtectError::OverLimit(_) | ProtectError::Overcommit | ProtectError::OutOfMemory => {
            Kind::Resources
        }
    }
}

pub(super) fn kind_of_seal(error: SealError) -> Kind {
    match error {
        SealError::Hole(_) => Kind::Hole,
        SealError::Misaligned | SealError::OutOfRange => Kind::Invalid,
        SealError::OverLimit(_) | SealError::OutOfMemory => Kind::Resources,
    }
}

pub(super) fn kind_of_remap(error: RemapError) -> Kind {
    match error {
        RemapError::NoArea(_) => Kind::Hole,
        RemapError::Sealed(_) => Kind::Sealed,
        RemapError::Misaligned
        | RemapError::NoLength
        | RemapError::Overlap
        | RemapError::Flags
        | RemapError::NotApplicable(_)
        | RemapError::OutOfRange
        | RemapError::TooLow => Kind::Invalid,
        RemapError::NoRoom
        | RemapError::OverLimit(_)
        | RemapError::Overcommit
        | RemapError::OutOfMemory => Kind::Resources,
    }
}

pub(super) fn kind_of_fault(error: FaultError) -> Kind {
    match error {
        FaultError::NoArea | FaultError::Guard | FaultError::StackLimit => Kind::Hole,
        FaultError::Denied | FaultError::Key(_) => Kind::Denied,
        // `Watched` causes SIGBUS, as with `UFFD_FEATURE_SIGBUS`, because the simulation has no userfaultfd handler.
        FaultError::Poison(_)
        | FaultError::BeyondObject
        | FaultError::Io
        | FaultError::NoHugePage
        | FaultError::Watched(_) => Kind::Bus,
        FaultError::OutOfMemory | FaultError::WouldBlock => Kind::Resources,
    }
}

pub(super) fn kind_of_fill(error: FillError) -> Kind {
    match error {
        FillError::NotApplicable | FillError::NotProtectable | FillError::Unavailable => {
            Kind::Invalid
        }
        FillError::NotWatched => Kind::NotWatched,
        FillError::Exists => Kind::Exists,
        FillError::NotThere | FillError::BeyondEnd => Kind::Bus,
        FillError::Busy | FillError::OutOfMemory => Kind::Resources,
    }
}

pub(super) fn kind_of_advise(error: AdviseError) -> Kind {
    match error {
        AdviseError::Hole(_) => Kind::Hole,
        AdviseError::Denied(_) => Kind::Denied,
        AdviseError::NotApplicable(_) => Kind::NotApplicable,
        AdviseError::Sealed(_) => Kind::Sealed,
        AdviseError::Fault(error) => kind_of_fault(error),
        AdviseError::Watched(awaited) => kind_of_fault(FaultError::Watched(awaited.fault)),
        AdviseError::Misaligned | AdviseError::OutOfRange => Kind::Invalid,
        AdviseError::OverLimit(_) | AdviseError::Busy(_) | AdviseError::OutOfMemory => {
            Kind::Resources
        }
    }
}

pub(super) fn disagree<T>(text: String) -> Result<T, Difference> {
    Err(Difference::Disagreement(text))
}

/// Checks that both sides succeeded, or refused for the same kind of reason. Returns whether they succeeded.
pub(super) fn agree<T>(
    what: &str,
    model: Result<(), Refusal>,
    real: Result<T, Kind>,
) -> Result<bool, Difference> {
    match (model.map_err(kind_of), real) {
        (Ok(()), Ok(_)) => Ok(true),
        (Err(expected), Err(found)) if expected == found => Ok(false),
        (_, Err(Kind::Resources)) => Err(Difference::Exhausted),
        (_, Err(Kind::Broken(text))) => disagree(format!("{what}: {text}")),
        (expected, found) => disagree(format!(
            "{what}: the model says {expected:?}, memwright {:?}",
            found.map(|_| ())
        )),
    }
}
