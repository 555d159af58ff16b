//! A program without an operating system, whose size `cargo xtask size` measures. It maps memory, handles two faults,
//! forks, changes a protection, and unmaps.
//!
//! Without the feature `manager` the program is empty. The difference of the two sizes is that of the memory manager.
//! With the feature `others`, the program performs the operations by crates that have no fork, instead of Memwright.
//! A build for a host runs the operations once.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(feature = "manager")]
extern crate alloc;

#[cfg(any(feature = "manager", feature = "others"))]
mod bytes;
#[cfg(all(any(feature = "manager", feature = "others"), target_os = "none"))]
mod heap;
#[cfg(feature = "manager")]
mod machine;
#[cfg(feature = "manager")]
mod manager;
#[cfg(all(feature = "others", not(feature = "manager")))]
mod others;

/// Performs the operations, and returns whether all succeed.
#[cfg(feature = "manager")]
fn perform() -> bool {
    manager::run().is_some()
}

/// Performs the operations, and returns whether all succeed.
#[cfg(all(feature = "others", not(feature = "manager")))]
fn perform() -> bool {
    others::run().is_some()
}

/// Does nothing.
#[cfg(not(any(feature = "manager", feature = "others")))]
fn perform() -> bool {
    true
}

/// The entry and the panic handler of a program without an operating system.
#[cfg(target_os = "none")]
mod bare {
    use core::hint;
    use core::panic::PanicInfo;

    fn halt() -> ! {
        loop {
            hint::spin_loop();
        }
    }

    /// Prints no message, because the code that formats messages belongs to the program, not to the memory manager.
    #[panic_handler]
    fn panic(_: &PanicInfo<'_>) -> ! {
        halt()
    }

    #[unsafe(no_mangle)]
    extern "C" fn _start() -> ! {
        hint::black_box(super::perform());
        halt()
    }
}

#[cfg(not(target_os = "none"))]
fn main() {
    assert!(perform());
}
