//! Tests of protection, guard pages, user copies and the heap.

use alloc::alloc::{alloc, dealloc};
use alloc::vec::Vec;
use core::alloc::Layout;
use core::arch::asm;
use core::hint::black_box;
use core::sync::atomic::Ordering;

use memwright_linux_abi::host::UserFault;

use super::user::{CODE, DATA, with_user_memory};
use super::{Outcomes, check};
use crate::arch::vector;
use crate::clock::stretch;
use crate::memory::paging::{self, USER_LIMIT};
use crate::trap::catch::catch;
use crate::trap::frame::{FAULT_FETCH, FAULT_PRESENT, FAULT_WRITE};
use crate::{context, heap, percpu, usercopy};

pub fn write_xor_execute() -> Outcomes {
    let report = paging::audit();
    check(
        report.leaves > 0 && report.executable > 0,
        "the walk found nothing",
    )?;
    check(
        report.writable_executable == 0,
        "a page is writable and executable",
    )?;
    check(report.user == 0, "a kernel page is open to user mode")
}

extern "C" fn write_byte(address: u64) {
    // SAFETY: the tests pass addresses at which a write faults.
    unsafe { asm!("mov byte ptr [{}], 0", in(reg) address, options(nostack)) };
}

extern "C" fn read_byte(address: u64) {
    // SAFETY: the tests pass addresses at which a read faults.
    unsafe { asm!("mov al, [{}]", in(reg) address, out("al") _, options(nostack)) };
}

extern "C" fn call_address(address: u64) {
    // SAFETY: the tests pass addresses at which an instruction fetch faults.
    unsafe { asm!("call {}", in(reg) address, clobber_abi("C")) };
}

/// Returns whether `access` to `address` raises a page fault with exactly the error code `reasons`.
fn is_refused(access: extern "C" fn(u64), address: u64, reasons: u64) -> bool {
    catch(access, address).is_some_and(|caught| {
        caught.vector == u64::from(vector::PAGE_FAULT)
            && caught.address == address
            && caught.error == reasons
    })
}

pub fn image_is_protected() -> Outcomes {
    let image = paging::image();
    let reasons = FAULT_WRITE | FAULT_PRESENT;
    check(
        is_refused(write_byte, image.text_start, reasons),
        "text was written",
    )?;
    check(
        is_refused(write_byte, image.text_end, reasons),
        "constants were written",
    )?;
    let alias = paging::DIRECT_BASE + paging::image_memory().start;
    check(
        is_refused(write_byte, alias, FAULT_WRITE),
        "text has an alias in the direct map",
    )
}

pub fn data_does_not_execute() -> Outcomes {
    let reasons = FAULT_FETCH | FAULT_PRESENT;
    let image = paging::image();
    check(
        is_refused(call_address, image.text_end, reasons),
        "constants were executed",
    )?;
    check(
        is_refused(call_address, image.rodata_end, reasons),
        "data was executed",
    )?;
    let direct = paging::DIRECT_BASE + paging::image_memory().end;
    check(
        is_refused(call_address, direct, reasons),
        "the direct map was executed",
    )
}

pub fn user_memory_is_guarded() -> Outcomes {
    with_user_memory(&[0x90], |_| {
        check(
            is_refused(read_byte, DATA, FAULT_PRESENT),
            "the kernel read user memory",
        )?;
        let reasons = FAULT_PRESENT | FAULT_WRITE;
        check(
            is_refused(write_byte, DATA, reasons),
            "the kernel wrote user memory",
        )
    })
}

pub fn user_memory_does_not_execute() -> Outcomes {
    with_user_memory(&[0xc3], |_| {
        let reasons = FAULT_PRESENT | FAULT_FETCH;
        check(
            is_refused(call_address, CODE, reasons),
            "the kernel executed user memory",
        )
    })
}

#[expect(
    unconditional_recursion,
    reason = "it is meant to end at the guard page"
)]
extern "C" fn recurse(depth: u64) {
    let frame = black_box([depth; 32]);
    recurse(frame[0] + 1);
    black_box(frame);
}

pub fn stack_overflow_is_caught() -> Outcomes {
    let Some(caught) = catch(recurse, 0) else {
        return Err("it returned");
    };
    check(context::is_guard(caught.address), "another address faulted")?;
    let expected = [vector::PAGE_FAULT, vector::DOUBLE_FAULT].map(u64::from);
    check(expected.contains(&caught.vector), "another exception came")
}

pub fn copies_report_the_fault() -> Outcomes {
    with_user_memory(&[0x90], |_| {
        let mut bytes = [7; 64];
        // A copy that starts at `near_end` can access 27 bytes before the page ends, which are three words and three
        // bytes. The next page is not mapped.
        let near_end = DATA + 4096 - 27;
        let fault = UserFault {
            address: DATA + 4096,
            done: 27,
        };
        check(
            usercopy::copy_to_user(near_end, &bytes) == Err(fault),
            "copy to user",
        )?;
        bytes = [0; 64];
        check(
            usercopy::copy_from_user(&mut bytes, near_end) == Err(fault),
            "copy from user",
        )?;
        check(
            bytes[..27] == [7; 27] && bytes[27..] == [0; 37],
            "wrong bytes",
        )?;
        check(
            usercopy::clear_user(near_end, 28) == Err(fault),
            "clear of user memory",
        )?;
        check(
            usercopy::copy_from_user(&mut bytes[..27], near_end) == Ok(()),
            "second copy",
        )?;
        check(bytes[..27] == [0; 27], "not cleared")?;
        check(
            usercopy::user_compare_exchange32(DATA, 0, 5) == Ok(0),
            "exchange",
        )?;
        check(usercopy::user_load32(DATA) == Ok(5), "load")?;
        let beyond = UserFault {
            address: DATA + 4096,
            done: 0,
        };
        check(
            usercopy::user_load32(DATA + 4096) == Err(beyond),
            "load of nothing",
        )?;
        check(
            usercopy::user_peek32(DATA) == Some(5) && usercopy::user_peek32(DATA + 4096).is_none(),
            "peek",
        )?;
        check(
            usercopy::user_try_exchange32(DATA, 5, 6) == Some(5)
                && usercopy::user_try_exchange32(DATA, 5, 7) == Some(6)
                && usercopy::user_try_exchange32(DATA + 4096, 0, 1).is_none(),
            "attempted exchange",
        )?;
        for address in [USER_LIMIT - 8, USER_LIMIT, paging::IMAGE_BASE, u64::MAX - 8] {
            let refused = UserFault { address, done: 0 };
            let copied = usercopy::copy_from_user(&mut bytes, address);
            check(
                copied == Err(refused),
                "an address of the kernel was accepted",
            )?;
        }
        Ok(())
    })
}

pub fn heap_refuses() -> Outcomes {
    let Ok(layout) = Layout::from_size_align(1 << 40, 16) else {
        return Err("no layout");
    };
    // SAFETY: the size is not zero; the test expects null.
    let memory = black_box(unsafe { alloc(layout) });
    if !memory.is_null() {
        // SAFETY: allocated just now with this layout.
        unsafe { dealloc(memory, layout) };
        return Err("a terabyte was handed out");
    }
    let small = alloc::vec![1u8; 100_000];
    check(
        black_box(small).iter().all(|&byte| byte == 1),
        "a small block is damaged",
    )
}

pub fn heap_grows_where_memory_was_allocated() -> Outcomes {
    let cpu = percpu::current();
    let mut blocks = [const { Vec::<u8>::new() }; 64];
    let mut allocations = blocks
        .iter_mut()
        .map(|block| block.try_reserve_exact(32 * 1024).is_ok());
    let is_low = |_: &bool| cpu.heap_is_low.swap(false, Ordering::Relaxed);
    check(
        allocations.find(is_low) == Some(true),
        "2 MiB left enough room in the heap",
    )?;
    let size = heap::size();
    stretch::look(cpu, u64::MAX);
    check(
        heap::size() == size,
        "a CPU that did not allocate grew the heap",
    )?;
    check(allocations.next() == Some(true), "no block was left")?;
    stretch::look(cpu, u64::MAX);
    check(
        heap::size() > size,
        "the CPU that allocated did not grow the heap",
    )
}

/// Writes to the kernel's text, without catching the exception.
pub fn write_to_text() {
    write_byte(paging::image().text_start);
}

/// Overflows the stack, without catching the exception.
pub fn overflow_stack() {
    recurse(0);
}
