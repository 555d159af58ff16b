//! The numbers of the interrupt vectors that have names.

/// Debug exception.
pub const DEBUG: u8 = 1;
/// Non-maskable interrupt.
pub const NMI: u8 = 2;
/// Breakpoint (INT3).
pub const BREAKPOINT: u8 = 3;
/// Overflow (INTO).
pub const OVERFLOW: u8 = 4;
/// Double fault.
pub const DOUBLE_FAULT: u8 = 8;
/// Page fault.
pub const PAGE_FAULT: u8 = 14;
/// Machine check.
pub const MACHINE_CHECK: u8 = 18;
/// The local APIC's timer.
pub const TIMER: u8 = 0x20;
/// The second serial port: control bytes.
pub const CONTROL: u8 = 0x21;
/// The first serial port: bytes of an answer to an input request.
pub const INPUT: u8 = 0x22;
/// Another CPU requests that this one check its run queue.
pub const RESCHEDULE: u8 = 0x23;
/// Another CPU requests a TLB invalidation.
pub const INVALIDATE: u8 = 0x24;
/// Another CPU stops this one, or resumes it.
pub const HOLD: u8 = 0x25;
/// Another CPU ends a halt of this one.
pub const WAKE: u8 = 0x26;
/// First vector of the legacy interrupt controllers, which are masked.
pub const LEGACY: u8 = 0xe0;
/// The local APIC's spurious vector, which must not be acknowledged.
pub const SPURIOUS: u8 = 0xff;
