//! Single-steps a copy of the instruction at the breakpoint of a uprobe, so that the breakpoint stays in place.

use crate::{current::Current, thread_registers::ThreadRegisters};
use core::sync::atomic::Ordering;
use memwright::{MapRequest, Rights};
use memwright_linux_abi::arch::x86_64::regs::TRAP_FLAG;
use memwright_linux_tasks::{
    probes::{Probes, place_of},
    process::{Stepping, Thread},
};
use memwright_table::VirtAddr;

/// Size in bytes of the page that holds the copy of the instruction that a thread single-steps.
const PAGE: u64 = 4096;

/// Handles a breakpoint trap. If the breakpoint belongs to a uprobe, lets the thread continue with a copy of the
/// instruction. Returns false if the thread cannot continue in this way. The caller then raises SIGTRAP.
#[cold]
pub(crate) fn met_breakpoint(
    probes: &Probes,
    current: &Current<'_>,
    registers: &ThreadRegisters<'_>,
) -> bool {
    if !probes.exist() {
        return false;
    }
    let mut regs = registers.state().regs;
    let at = regs.rip.wrapping_sub(1);
    let place = current.with_space(|space| place_of(space, at));
    let Some(probe) = place.and_then(|place| probes.first_at(place)) else {
        return false;
    };
    let Some(copy) = copy_page(current) else {
        return false;
    };
    let code = &probe.instruction[..probe.length];
    let written = current.with_space(|space| space.write_forced(VirtAddr::new(copy), code));
    if written.is_err() {
        return false;
    }
    *current.thread.stepping.lock() = Some(Stepping {
        at,
        copy,
        traps: regs.rflags & TRAP_FLAG != 0,
    });
    regs.rip = copy;
    regs.rflags |= TRAP_FLAG;
    registers.replace_registers(regs);
    true
}

/// Handles a single-step trap. Counts the hit if the instruction was a copy. Returns false if the trap must be reported
/// to the program or its tracer: if the instruction was not a copy, or if the trap flag was set before the breakpoint.
#[cold]
pub(crate) fn stepped(
    probes: &Probes,
    current: &Current<'_>,
    registers: &ThreadRegisters<'_>,
) -> bool {
    let Some(stepping) = current.thread.stepping.lock().take() else {
        return false;
    };
    let mut regs = registers.state().regs;
    // As on Linux, each iteration of a repeated instruction hits the breakpoint.
    regs.rip = regs.rip - stepping.copy + stepping.at;
    if !stepping.traps {
        regs.rflags &= !TRAP_FLAG;
    }
    registers.replace_registers(regs);
    let place = current.with_space(|space| place_of(space, stepping.at));
    if let Some(place) = place {
        probes.each_at(place, |probe| {
            let counts = probe.enabled.load(Ordering::Relaxed);
            if counts && probe.thread == current.thread.id() {
                probe.hits.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    !stepping.traps
}

/// Cancels a pending single step before a signal is delivered. The thread hits the breakpoint again after the handler
/// returns.
pub(crate) fn rewind(thread: &Thread, registers: &ThreadRegisters<'_>) {
    let Some(stepping) = thread.stepping.lock().take() else {
        return;
    };
    let mut regs = registers.state().regs;
    regs.rip = stepping.at;
    if !stepping.traps {
        regs.rflags &= !TRAP_FLAG;
    }
    registers.replace_registers(regs);
}

/// Handles `execve`, which has unmapped the page with the copy: forgets the address of the page, and sets the
/// breakpoints in the new program.
pub(crate) fn executed(probes: &Probes, thread: &Thread) {
    thread.copy_page.store(0, Ordering::Relaxed);
    if probes.exist() {
        probes.mapped(&thread.process);
    }
}

/// Returns the address of the page that holds the thread's copy of an instruction. Maps the page at the first use.
fn copy_page(current: &Current<'_>) -> Option<u64> {
    let known = current.thread.copy_page.load(Ordering::Relaxed);
    if known != 0 {
        return Some(known);
    }
    let request = MapRequest::anonymous(PAGE, Rights::READ | Rights::EXECUTE);
    let page = current.with_space(|space| space.map(&request)).ok()?;
    current
        .thread
        .copy_page
        .store(page.as_u64(), Ordering::Relaxed);
    Some(page.as_u64())
}
