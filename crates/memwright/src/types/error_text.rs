//! The texts of errors, for logs and for callers that return `Box<dyn Error>`.

use core::fmt;

use crate::types::error::{
    AdviseError, Awaited, FaultError, FillError, ForkError, Limit, LockError, MapError, MoveError,
    NameError, ObjectError, PopulateError, ProtectError, RemapError, SealError, SyncError,
    UnmapError, WatchError,
};
use crate::types::policy::PolicyError;

/// Implements `Display` and `Error` for an error type. There is one text for each variant, with the fields that the
/// text names.
macro_rules! error_text {
    ($error:ty { $($variant:pat => $text:literal $(, $value:expr)*;)+ }) => {
        impl core::fmt::Display for $error {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match *self {
                    $($variant => write!(f, $text $(, $value)*),)+
                }
            }
        }

        impl core::error::Error for $error {}
    };
}

pub(crate) use error_text;

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AddressSpace => "the size of the address space (RLIMIT_AS)",
            Self::Data => "the size of private writable memory (RLIMIT_DATA)",
            Self::Stack => "the size of the stack (RLIMIT_STACK)",
            Self::Locked => "locked memory (RLIMIT_MEMLOCK)",
            Self::Areas => "the number of areas (vm.max_map_count)",
        })
    }
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a userfaultfd must resolve a fault at {} first", self.at)
    }
}

error_text!(MapError {
    Self::NoLength => "the length is 0";
    Self::Misaligned => "the address or the offset is not a multiple of the page size";
    Self::OutOfRange => "the range ends above user memory";
    Self::TooLow => "the range begins below the lowest user address";
    Self::NoRoom => "no free range is long enough";
    Self::Taken(at) => "memory is mapped at {at}";
    Self::OffsetTooLarge => "the offset plus the length overflows";
    Self::Flags(bits) => "only the memory manager sets the area flags {bits:#x}";
    Self::Denied => "the object does not allow the rights";
    Self::NotDevice(at) => "no device memory is at the physical address {:#x}", at.as_u64();
    Self::Unsupported => "the memory manager was compiled without the feature that the mapping needs";
    Self::Sealed(at) => "the area at {at} is sealed";
    Self::OverLimit(limit) => "over the limit on {limit}";
    Self::Overcommit => "over the commit limit";
    Self::OutOfMemory => "out of memory";
});

error_text!(UnmapError {
    Self::NoLength => "the length is 0";
    Self::Misaligned => "the address is not a multiple of the page size";
    Self::OutOfRange => "the range is not in user memory";
    Self::Sealed(at) => "the area at {at} is sealed";
    Self::OverLimit(limit) => "over the limit on {limit}";
    Self::OutOfMemory => "out of memory";
});

error_text!(ProtectError {
    Self::Misaligned => "the address is not a multiple of the page size";
    Self::OutOfRange => "the range is not in user memory";
    Self::Hole(at) => "nothing is mapped at {at}";
    Self::Denied(at) => "the area at {at} cannot have the rights";
    Self::Key => "the protection key is not allocated";
    Self::Sealed(at) => "the area at {at} is sealed";
    Self::OverLimit(limit) => "over the limit on {limit}";
    Self::Overcommit => "over the commit limit";
    Self::OutOfMemory => "out of memory";
});

error_text!(RemapError {
    Self::Misaligned => "an address is not a multiple of the page size";
    Self::NoLength => "the new length is 0, or too large";
    Self::Overlap => "the old and the new range overlap";
    Self::Flags => "a new address needs `may_move`, and so does `dont_unmap`, which needs equal lengths, too";
    Self::NotApplicable(at) => "the area at {at} cannot be remapped in this way";
    Self::NoArea(at) => "the old range is not inside one area, or is device memory that would grow, at {at}";
    Self::Sealed(at) => "the area at {at} is sealed";
    Self::OutOfRange => "the new range ends above user memory";
    Self::TooLow => "the new range begins below the lowest user address";
    Self::NoRoom => "no free range is long enough, or the area cannot grow in place and must not move";
    Self::OverLimit(limit) => "over the limit on {limit}";
    Self::Overcommit => "over the commit limit";
    Self::OutOfMemory => "out of memory";
});

error_text!(AdviseError {
    Self::Misaligned => "the address is not a multiple of the page size";
    Self::OutOfRange => "the range wraps around";
    Self::Hole(at) => "nothing is mapped at {at}";
    Self::NotApplicable(at) => "the advice does not apply to the area at {at}";
    Self::Denied(at) => "the area at {at} lacks the right that the advice needs";
    Self::Sealed(at) => "the area at {at} is sealed";
    Self::Fault(error) => "a page could not be populated: {error}";
    Self::Watched(awaited) => "{awaited}";
    Self::OverLimit(limit) => "over the limit on {limit}";
    Self::Busy(at) => "the page at {at} is in use";
    Self::OutOfMemory => "out of memory";
});

error_text!(PopulateError {
    Self::Watched(awaited) => "{awaited}";
    Self::OutOfMemory => "out of memory";
});

error_text!(NameError {
    Self::Misaligned => "the range is not aligned to the pages of its areas";
    Self::OutOfRange => "the range wraps around";
    Self::Hole(at) => "nothing is mapped at {at}";
    Self::NotAnonymous(at) => "a file is mapped at {at}";
    Self::OverLimit(limit) => "over the limit on {limit}";
    Self::OutOfMemory => "out of memory";
});

error_text!(SealError {
    Self::Misaligned => "the range is not aligned to the pages of its areas";
    Self::OutOfRange => "the range wraps around";
    Self::Hole(at) => "nothing is mapped at {at}";
    Self::OverLimit(limit) => "over the limit on {limit}";
    Self::OutOfMemory => "out of memory";
});

error_text!(LockError {
    Self::OutOfRange => "the range wraps around";
    Self::Hole(at) => "nothing is mapped at {at}";
    Self::OverLimit(limit) => "over the limit on {limit}";
    Self::Fault(error) => "a page could not be populated: {error}";
    Self::Watched(awaited) => "{awaited}";
    Self::OutOfMemory => "out of memory";
});

error_text!(SyncError {
    Self::Misaligned => "the address is not a multiple of the page size";
    Self::OutOfRange => "the range wraps around";
    Self::Hole(at) => "nothing is mapped at {at}";
    Self::Locked(at) => "the memory at {at} is locked";
    Self::Object(error) => "pages were not written back: {error}";
});

error_text!(ForkError {
    Self::OutOfMemory => "out of memory";
    Self::Overcommit => "over the commit limit";
});

error_text!(FaultError {
    Self::NoArea => "nothing is mapped at the address";
    Self::Denied => "the area does not grant the right";
    Self::Key(key) => "the protection-key register of this CPU denies access to pages with key {key}";
    Self::Guard => "the page is a guard";
    Self::Poison(size) => "a page of {} bytes is poisoned", size.bytes();
    Self::BeyondObject => "the page is beyond the end of its object, or the object is full";
    Self::Io => "the page could not be read";
    Self::StackLimit => "the stack cannot grow to the address";
    Self::NoHugePage => "the hugetlb pool has no free page";
    Self::OutOfMemory => "no frame is free";
    Self::WouldBlock => "the page is in use";
    Self::Watched(_) => "a userfaultfd must resolve the fault";
});

error_text!(WatchError {
    Self::BadRange => "the range is empty, is not page-aligned, or is not in user memory";
    Self::NoArea => "nothing is mapped in the range";
    Self::Modes => "the modes contradict each other";
    Self::NotApplicable(at) => "the area at {at} does not support the operation";
    Self::NotWritable => "an area of the range can never be written, or has no store tracking";
    Self::Busy => "another userfaultfd has memory of the range registered";
    Self::NotWatched => "memory of the range is not registered in this mode";
    Self::OverLimit(limit) => "over the limit on {limit}";
    Self::OutOfMemory => "out of memory";
    Self::Unsupported => "the feature `uffd` is off";
});

error_text!(MoveError {
    Self::SeveralAreas => "the source or the target is not within a single area";
    Self::NotRegistered => "the target is not registered with the userfaultfd";
    Self::NotApplicable => "pages cannot be moved between the areas";
    Self::NotWatched => "nothing is mapped at the target";
    Self::NotThere => "the source has no page";
    Self::Marked => "the source has a marker in place of the page";
    Self::Exists => "the target has a page";
    Self::Busy => "the page is shared, pinned or being migrated";
    Self::OutOfMemory => "out of memory";
});

error_text!(FillError {
    Self::NotApplicable => "the area cannot be filled in this way";
    Self::NotProtectable => "the area is not registered for write protection";
    Self::Unavailable => "the object could not provide the page";
    Self::NotWatched => "the page is not registered with the userfaultfd";
    Self::Exists => "the page exists";
    Self::NotThere => "the object does not have the page";
    Self::BeyondEnd => "the page is beyond the end of its object";
    Self::Busy => "another thread fills the page";
    Self::OutOfMemory => "out of memory";
});

error_text!(ObjectError {
    Self::BeyondEnd => "the page is beyond the end of the object";
    Self::OutOfMemory => "no frame is free";
    Self::NoRoom => "the object may have no more pages";
    Self::Io => "the backing store failed";
    Self::WouldBlock => "the page is being read or written back";
    Self::InSwap => "the page is in swap";
});

error_text!(PolicyError {
    Self::UnknownKey => "no policy has the key";
    Self::UnknownValue { key, values } => "the policy {key} does not have the value, but {values}";
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::policy::Policy;
    use memwright_table::VirtAddr;
    use std::string::ToString;

    #[test]
    fn an_error_names_its_address_and_its_reason() {
        let at = VirtAddr::new(0x1000);
        for (text, expected) in [
            (
                MapError::Taken(at).to_string(),
                "memory is mapped at 0x1000",
            ),
            (
                MapError::OverLimit(Limit::Areas).to_string(),
                "over the limit on the number of areas (vm.max_map_count)",
            ),
            (
                AdviseError::Fault(FaultError::Io).to_string(),
                "a page could not be populated: the page could not be read",
            ),
            (
                Policy::default()
                    .set("fork", "never")
                    .unwrap_err()
                    .to_string(),
                "the policy fork does not have the value, but copy, share or a number N: whether a fork copies the page \
                 tables of private anonymous memory, or shares those that have at least 64 or N entries",
            ),
            (
                SyncError::Object(ObjectError::Io).to_string(),
                "pages were not written back: the backing store failed",
            ),
        ] {
            assert_eq!(text, expected);
        }
    }
}
