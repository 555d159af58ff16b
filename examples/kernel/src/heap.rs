//! The heap.

use spinning_top::RawSpinlock;
use talc::TalcLock;
use talc::source::Claim;

use crate::HEAP_SIZE;

#[global_allocator]
static HEAP: TalcLock<RawSpinlock, Claim> = TalcLock::new({
    static mut BYTES: [u8; HEAP_SIZE] = [0; HEAP_SIZE];
    // SAFETY: the bytes belong to the heap alone, because no other code can name them.
    unsafe { Claim::array(&raw mut BYTES) }
});
