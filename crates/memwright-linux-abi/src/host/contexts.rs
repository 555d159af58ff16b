//! Contexts, which are kernel stacks with saved registers.

use memwright_table::Frame;

/// The identity of a context: a kernel stack and the registers saved on it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub struct ContextId(pub u32);

/// The error of a request for which the host has too little memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutOfMemory;

/// Creates, switches and frees contexts.
pub trait Contexts: Sync {
    /// Returns the maximum number of contexts from [`create_context`](Self::create_context) that can exist at a time.
    /// It limits the number of threads (`/proc/sys/kernel/threads-max`).
    fn most_contexts(&self) -> usize;

    /// Creates a context, whose kernel stack has a guard page. The first switch to it calls
    /// `KernelEvents::context_start` with `argument`.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no memory for a stack.
    fn create_context(&self, argument: usize) -> Result<ContextId, OutOfMemory>;

    /// Saves the running context as `from` and resumes `to`. Returns when another context switches back to `from`.
    fn switch_context(&self, from: ContextId, to: ContextId);

    /// Frees a context that runs on no CPU and will not run again.
    fn destroy_context(&self, context: ContextId);

    /// Returns the context on which this CPU booted. It becomes the CPU's idle loop.
    fn boot_context(&self) -> ContextId;

    /// Returns the root page table whose kernel half is copied into every new address space; `None` if the host has
    /// none.
    fn kernel_root(&self) -> Option<Frame>;
}
