//! A thread meets a breakpoint, executes the instruction at another address, and goes on behind it.

use super::{Probes, install::place_of};
use crate::{arch::x86_64::regs::TRAP_FLAG, context::Context, process::Thread};
use core::sync::atomic::Ordering;
use memwright::{MapRequest, Rights};
use memwright_table::VirtAddr;

/// An instruction that a thread executes at another address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stepping {
    /// Address of the breakpoint.
    at: u64,
    /// Address of the copy.
    copy: u64,
    /// Somebody else wants a trap after it.
    traps: bool,
}

/// Bytes of the page that holds a thread's copy.
const PAGE: u64 = 4096;

impl Probes {
    /// A thread met a breakpoint. Whether it is one of the probes': then the thread goes on with the copy.
    #[cold]
    pub(crate) fn met(&self, context: &Context<'_>) -> bool {
        if !self.exist() {
            return false;
        }
        let mut regs = context.state().regs;
        let at = regs.rip.wrapping_sub(1);
        let place = context.with_space(|space| place_of(space, at));
        let Some(probe) = place.and_then(|place| self.first_at(place)) else {
            return false;
        };
        let Some(copy) = copy_page(context) else {
            return false;
        };
        let code = &probe.instruction[..probe.length];
        let written = context.with_space(|space| space.write_forced(VirtAddr::new(copy), code));
        if written.is_err() {
            return false;
        }
        *context.thread.stepping.lock() = Some(Stepping {
            at,
            copy,
            traps: regs.rflags & TRAP_FLAG != 0,
        });
        regs.rip = copy;
        regs.rflags |= TRAP_FLAG;
        context.replace_registers(regs);
        true
    }

    /// A thread trapped after one instruction. Whether that was a copy, and nobody else wants the trap.
    #[cold]
    pub(crate) fn stepped(&self, context: &Context<'_>) -> bool {
        let Some(stepping) = context.thread.stepping.lock().take() else {
            return false;
        };
        let mut regs = context.state().regs;
        // Each round of a repeated instruction passes the breakpoint, as on Linux.
        regs.rip = regs.rip - stepping.copy + stepping.at;
        if !stepping.traps {
            regs.rflags &= !TRAP_FLAG;
        }
        context.replace_registers(regs);
        let place = context.with_space(|space| place_of(space, stepping.at));
        if let Some(place) = place {
            self.each_at(place, |probe| {
                let counts = probe.enabled.load(Ordering::Relaxed);
                if counts && probe.thread == context.thread.id() {
                    probe.hits.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        !stepping.traps
    }

    /// A signal comes before the step: it is taken back, to be made after the signal.
    pub(crate) fn rewind(context: &Context<'_>) {
        let Some(stepping) = context.thread.stepping.lock().take() else {
            return;
        };
        let mut regs = context.state().regs;
        regs.rip = stepping.at;
        if !stepping.traps {
            regs.rflags &= !TRAP_FLAG;
        }
        context.replace_registers(regs);
    }

    /// The thread executes a program: the page of its copies is gone.
    pub(crate) fn executed(&self, thread: &Thread) {
        thread.copy_page.store(0, Ordering::Relaxed);
        if self.exist() {
            self.mapped(&thread.process);
        }
    }
}

/// The page of the thread's copies, mapped when it is first needed.
fn copy_page(context: &Context<'_>) -> Option<u64> {
    let known = context.thread.copy_page.load(Ordering::Relaxed);
    if known != 0 {
        return Some(known);
    }
    let request = MapRequest::anonymous(PAGE, Rights::READ | Rights::EXECUTE);
    let page = context.with_space(|space| space.map(&request)).ok()?;
    context
        .thread
        .copy_page
        .store(page.as_u64(), Ordering::Relaxed);
    Some(page.as_u64())
}
