//! Runs the program of the manifest, from boot to power-off.

use crate::{
    account::refuse, audit::Baseline, events::Events, kernel::Kernel, lifecycle::new_thread,
    run::Execution, syscall::file::userfaultfd::UserfaultDevice, trace::Trace,
};
use alloc::{boxed::Box, sync::Arc};
use core::sync::atomic::Ordering;
use memwright_linux_abi::{Memory, errno::Errno};
use memwright_linux_memory::swap::Swaps;
use memwright_linux_procfs::procfs;
use memwright_linux_sched::wait::Waiter;
use memwright_linux_tasks::process::{PROGRAM, Parts, Process, REAPER, Start, ThreadSignals};
use memwright_linux_vfs::{
    cpio::CpioArchive,
    identity::{Capabilities, Limits},
    manifest::Manifest,
};

/// Runs the program of the manifest, and powers the machine off after the program has exited. If the swap devices, the
/// files or the first process cannot be set up, powers the machine off without running the program.
pub fn start(
    machine: &'static dyn Execution,
    memory: Arc<Memory>,
    manifest: Manifest,
    files: CpioArchive<'static>,
) -> ! {
    let swaps = Swaps::start(machine, &memory, &manifest.swap);
    let swaps = swaps.unwrap_or_else(|_| refuse(machine, "no memory for the swap devices"));
    let before = Baseline::take(&memory, &swaps);
    let kernel = Kernel::create(machine, memory, manifest, swaps);
    machine.set_events(Box::leak(Box::new(Events { kernel, machine })));
    let device = Box::leak(Box::new(UserfaultDevice {
        userfaults: kernel.userfaults,
        tasks: kernel.tasks,
    }));
    *kernel.vfs.userfaultfds.lock() = Some(device);
    if kernel.manifest.trace {
        let trace: &'static Trace =
            Box::leak(Box::new(Trace::new(machine, kernel.scheduler, kernel)));
        kernel.memory.set_trace(Some(trace));
        kernel.memory.set_fault_sink(trace);
    }
    let filled = kernel.vfs.mounts.fill(
        kernel.vfs,
        files,
        &kernel.swaps.nodes(),
        procfs::roots(kernel),
    );
    let instructions = machine.kernel_instructions();
    kernel
        .boot_instructions
        .store(instructions, Ordering::Relaxed);
    machine.forget_stretches();
    if kernel.memory.policy().count_locks() {
        kernel.memory.set_lock_statistics(true);
    }
    match filled.and_then(|()| kernel.make_program()) {
        Ok(()) => {
            machine.start_cpus();
            kernel.huge_scan.wake();
            kernel.balancing.wake();
            kernel.reclaim.wake();
            kernel.scheduler.idle(kernel);
            kernel.scheduler.await_all_parked();
        }
        Err(_) => refuse(machine, "no memory for the files and the first process"),
    }
    kernel.finish(&before)
}

impl Kernel {
    /// Creates the reaper process, the process of the program, and the first thread of the program.
    fn make_program(&'static self) -> Result<(), Errno> {
        let limits = Limits::initial(self.memory.frames().total() * 4096);
        let root = self.users.get(0).map_err(|_| Errno::ENOMEM)?;
        let reaper = Process::new(self.tasks, REAPER, 0, None, limits.clone(), root.clone());
        let reaper = Arc::new(reaper);
        let space = self
            .spaces
            .create(&limits, Capabilities::FULL, self.spaces.random.as_ref())?;
        let (files, fs) = self.vfs.mounts.first_files(self.vfs)?;
        let name = [0; 16];
        let parts = Parts {
            space,
            image: None,
            files,
            fs,
            limits: limits.clone(),
            name,
        };
        let process = {
            let mut tasks = self.tasks.lock();
            let _reaper = tasks.allocate_id();
            tasks.enter(&reaper, 0)?;
            reaper.identity.user().threads.add(1);
            let _program = tasks.allocate_id();
            let now = self.host.now();
            let process = Process::new(self.tasks, PROGRAM, now, Some(parts), limits, root);
            let process = Arc::new(process);
            tasks.enter(&process, REAPER)?;
            process.identity.user().threads.add(1);
            tasks.lead_session(&process);
            process
        };
        let thread = new_thread(&self.reclaim, PROGRAM, &process, Start::Program)?;
        let state = ThreadSignals::default();
        process.signals.lock().threads.try_push(&thread, state)?;
        self.tasks.lock().threads.insert(PROGRAM, thread.clone());
        self.tasks.made.fetch_add(1, Ordering::Relaxed);
        thread.wake();
        Ok(())
    }
}
