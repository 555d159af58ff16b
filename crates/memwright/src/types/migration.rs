//! The arguments and results of an operation that places or migrates pages.

use memwright_table::{Frame, OutOfMemory, VirtAddr};

use crate::types::error::{CutError, Limit};
use crate::types::error_text::error_text;

/// The choice of the misplaced pages that are migrated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moving {
    /// No pages.
    None,
    /// The pages that no other process maps (`MPOL_MF_MOVE`).
    Own,
    /// All misplaced pages (`MPOL_MF_MOVE_ALL`).
    All,
}

/// The reason why the policy of an area was not set, or why its pages do not conform to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindError {
    /// The range is misaligned, ends before it begins, or begins or ends inside a hugetlb page.
    Misaligned,
    /// Nothing is mapped at this address.
    Hole(VirtAddr),
    /// The limit on areas would be exceeded.
    OverLimit(Limit),
    /// A page is not on a node of the policy.
    Misplaced(VirtAddr),
    /// The policy of the area at this address does not support a home node (`set_mempolicy_home_node`).
    NoHome(VirtAddr),
    /// There is no heap memory.
    OutOfMemory,
    /// The feature `numa` is off.
    Unsupported,
}

error_text!(BindError {
    Self::Misaligned => "the range is not aligned to the pages of its areas, or ends before it begins";
    Self::Hole(at) => "nothing is mapped at {at}";
    Self::OverLimit(limit) => "over the limit on {limit}";
    Self::Misplaced(at) => "the page at {at} is not on a node of the policy";
    Self::NoHome(at) => "the policy of the area at {at} supports no home node";
    Self::OutOfMemory => "out of memory";
    Self::Unsupported => "the feature `numa` is off";
});

impl From<CutError> for BindError {
    fn from(error: CutError) -> Self {
        match error {
            CutError::OverLimit(limit) => Self::OverLimit(limit),
            CutError::OutOfMemory => Self::OutOfMemory,
        }
    }
}

impl From<OutOfMemory> for BindError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// The result of a successful migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The page was migrated to this node.
    To(u8),
    /// The page already was on this node, which is one of the wanted nodes.
    Stays(u8),
}

/// The reason why a page was not migrated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmoved {
    /// No area contains the page.
    NoArea,
    /// Nothing is mapped at the page.
    Absent,
    /// The page is the zero page or a 1 GiB page, or is in secret memory; or the feature `numa` is off.
    Unmovable,
    /// The page, which is in this frame, has users other than its entry.
    Shared(Frame),
    /// The page belongs to an object.
    Object,
    /// The page is pinned, or has a temporary reference.
    Busy,
    /// No frame is free on the wanted nodes.
    NoFrame,
}

impl From<OutOfMemory> for Unmoved {
    fn from(_: OutOfMemory) -> Self {
        Self::NoFrame
    }
}
