//! The heap.

use spinning_top::RawSpinlock;
use talc::TalcLock;
use talc::source::Claim;

const SIZE: usize = 256 << 10;

#[global_allocator]
static HEAP: TalcLock<RawSpinlock, Claim> = TalcLock::new({
    static mut BYTES: [u8; SIZE] = [0; SIZE];
    // SAFETY: the bytes belong to the heap alone, because no other code can name them.
    unsafe { Claim::array(&raw mut BYTES) }
});
