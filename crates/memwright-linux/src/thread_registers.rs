//! The registers of the running thread.

use alloc::sync::Arc;
use core::cell::{Cell, RefCell, RefMut};
use memwright_linux_abi::{
    arch::x86_64::{
        debug::DebugRegisters,
        regs::{UserRegs, UserState},
    },
    host::Registers,
};
use memwright_linux_sched::scheduler::Work;
use memwright_linux_tasks::process::Thread;

/// The user registers of the running thread while it is in the kernel.
pub struct ThreadRegisters<'a> {
    thread: &'a Arc<Thread>,
    processor: &'static dyn Registers,
    state: RefCell<UserState>,
    stops_at_calls: Cell<bool>,
    /// The debug registers of the thread.
    pub(crate) debug: Cell<DebugRegisters>,
    /// The data at the addresses of the data breakpoints, as read before a single step. The handler of the step
    /// compares it.
    pub(crate) watched: Cell<[u64; 4]>,
}

impl<'a> ThreadRegisters<'a> {
    /// Creates the registers of a thread that is about to enter user mode with `state`.
    pub fn new(
        processor: &'static dyn Registers,
        thread: &'a Arc<Thread>,
        state: UserState,
    ) -> Self {
        Self {
            thread,
            processor,
            state: RefCell::new(state),
            stops_at_calls: Cell::new(false),
            debug: Cell::new(DebugRegisters::default()),
            watched: Cell::new([0; 4]),
        }
    }

    /// Borrows the user registers mutably.
    pub fn state(&self) -> RefMut<'_, UserState> {
        self.state.borrow_mut()
    }

    /// Copies the FS and GS bases from the processor to the user registers: user code can change the bases without
    /// entering the kernel.
    pub fn store_bases(&self) {
        self.processor.store_bases(&mut self.state());
    }

    /// Replaces the user registers, including the bases.
    pub fn replace_state(&self, state: UserState) {
        self.processor.load_bases(&state);
        *self.state() = state;
        self.thread.set_work(Work::REGISTERS, true);
    }

    /// Replaces the general registers. A system call must use this method to change registers other than RAX: otherwise
    /// the processor still has the old values when the call returns.
    pub fn replace_registers(&self, regs: UserRegs) {
        self.state().regs = regs;
        self.thread.set_work(Work::REGISTERS, true);
    }

    /// Sets whether the thread stops at its system calls. Takes effect before the thread returns to user mode.
    pub(crate) fn stop_at_calls(&self, stops: bool) {
        if self.stops_at_calls.replace(stops) != stops {
            self.thread.set_work(Work::REGISTERS, true);
        }
    }

    /// Returns whether the thread stops at its system calls.
    pub(crate) fn stops_at_calls(&self) -> bool {
        self.stops_at_calls.get()
    }

    /// Returns the interface to the registers of the CPU itself.
    pub fn processor(&self) -> &'static dyn Registers {
        self.processor
    }

    /// Returns a pointer to the user registers, through which the host loads them on entry to user mode and stores them
    /// on exit.
    pub fn state_pointer(&self) -> *mut UserState {
        self.state.as_ptr()
    }
}
