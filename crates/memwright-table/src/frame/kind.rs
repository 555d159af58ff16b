//! The kinds of frames.

/// The use of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// Not memory: a hole between regions.
    Hole,
    /// Free, in a buddy list or in a CPU's cache.
    Free,
    /// Holds the metadata of frames, and is never allocated.
    Reserved,
    /// Memory that the embedder accesses through its own pointers: heap, stacks, buffers.
    Kernel,
    /// A page table. Only this crate allocates, reads and writes it.
    Table,
    /// A page of private anonymous memory.
    Anonymous,
    /// A page of an object: a file or shared memory.
    Object,
    /// The shared zero frame.
    Zero,
    /// A structure of the memory manager, which is accessed only through `Frames`.
    Slab,
    /// A free page of the huge page pool.
    Pool,
    /// A huge page of the pool in private memory.
    PoolAnonymous,
    /// A huge page of the pool that belongs to an object.
    PoolObject,
    /// A KSM page: a read-only page that replaces private pages with equal contents.
    Merged,
}

impl FrameKind {
    /// The number of variants.
    pub const COUNT: usize = 13;

    /// Every variant, in the order of [`FrameKind::index`].
    pub const ALL: [FrameKind; FrameKind::COUNT] = [
        FrameKind::Hole,
        FrameKind::Free,
        FrameKind::Reserved,
        FrameKind::Kernel,
        FrameKind::Table,
        FrameKind::Anonymous,
        FrameKind::Object,
        FrameKind::Zero,
        FrameKind::Slab,
        FrameKind::Pool,
        FrameKind::PoolAnonymous,
        FrameKind::PoolObject,
        FrameKind::Merged,
    ];

    /// The index of the variant in [`FrameKind::ALL`].
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether users of `Frames` may read and write the contents of frames of this kind.
    #[inline]
    pub const fn is_data(self) -> bool {
        match self {
            FrameKind::Anonymous
            | FrameKind::Object
            | FrameKind::Zero
            | FrameKind::Slab
            | FrameKind::Pool
            | FrameKind::PoolAnonymous
            | FrameKind::PoolObject
            | FrameKind::Merged => true,
            FrameKind::Hole
            | FrameKind::Free
            | FrameKind::Reserved
            | FrameKind::Kernel
            | FrameKind::Table => false,
        }
    }

    /// Whether folios of this kind can be mapped by pages.
    pub const fn is_paged(self) -> bool {
        match self {
            FrameKind::Anonymous | FrameKind::Object => true,
            FrameKind::Hole
            | FrameKind::Free
            | FrameKind::Reserved
            | FrameKind::Kernel
            | FrameKind::Table
            | FrameKind::Zero
            | FrameKind::Slab
            | FrameKind::Pool
            | FrameKind::PoolAnonymous
            | FrameKind::PoolObject
            | FrameKind::Merged => false,
        }
    }

    /// Whether an allocation of this kind may use the reserve ([`Frames::low_water`](super::Frames::low_water)).
    #[inline]
    pub const fn may_use_reserve(self) -> bool {
        match self {
            FrameKind::Kernel | FrameKind::Table | FrameKind::Slab => true,
            FrameKind::Anonymous
            | FrameKind::Object
            | FrameKind::Zero
            | FrameKind::Hole
            | FrameKind::Free
            | FrameKind::Reserved
            | FrameKind::Pool
            | FrameKind::PoolAnonymous
            | FrameKind::PoolObject
            | FrameKind::Merged => false,
        }
    }

    /// Whether frames of this kind are pages of private memory that KSM has not merged.
    #[inline]
    pub const fn is_anonymous(self) -> bool {
        match self {
            FrameKind::Anonymous | FrameKind::PoolAnonymous => true,
            FrameKind::Hole
            | FrameKind::Free
            | FrameKind::Reserved
            | FrameKind::Kernel
            | FrameKind::Table
            | FrameKind::Object
            | FrameKind::Zero
            | FrameKind::Slab
            | FrameKind::Pool
            | FrameKind::PoolObject
            | FrameKind::Merged => false,
        }
    }

    /// Whether frames of this kind are pages of private memory, as opposed to pages of an object.
    #[inline]
    pub const fn is_private(self) -> bool {
        self.is_anonymous() || matches!(self, FrameKind::Merged)
    }

    /// Whether frames of this kind are pages of the huge page pool.
    #[inline]
    pub const fn is_pool(self) -> bool {
        match self {
            FrameKind::Pool | FrameKind::PoolAnonymous | FrameKind::PoolObject => true,
            FrameKind::Hole
            | FrameKind::Free
            | FrameKind::Reserved
            | FrameKind::Kernel
            | FrameKind::Table
            | FrameKind::Anonymous
            | FrameKind::Object
            | FrameKind::Zero
            | FrameKind::Slab
            | FrameKind::Merged => false,
        }
    }

    /// The name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            FrameKind::Hole => "hole",
            FrameKind::Free => "free",
            FrameKind::Reserved => "reserved",
            FrameKind::Kernel => "kernel",
            FrameKind::Table => "table",
            FrameKind::Anonymous => "anonymous",
            FrameKind::Object => "object",
            FrameKind::Zero => "zero",
            FrameKind::Slab => "slab",
            FrameKind::Pool => "pool",
            FrameKind::PoolAnonymous => "pool_anonymous",
            FrameKind::PoolObject => "pool_object",
            FrameKind::Merged => "merged",
        }
    }
}
