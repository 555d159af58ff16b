//! `execve`: replaces the program of a process.
//!
//! The new address space is built completely before the old one is changed, so that a failure leaves the calling
//! process unchanged.

mod elf;
mod load;
mod script;
mod stack;
mod strings;

pub use elf::{ElfError, Header, Plan, Segment, parse_header, plan};
pub use script::{FirstLine, Script};
pub use stack::{Contents, Facts, StackPlan};
pub use strings::Strings;

use crate::{
    current::Current, probe_step, ptrace::Traced, restartable, thread_registers::ThreadRegisters,
};
use alloc::{format, string::String, sync::Arc, vec::Vec};
use core::sync::atomic::Ordering;
use load::{Base, interpreter_path, map_image, read_plan};
use memwright::{AreaFlags, MapRequest, Placement, Rights};
use memwright_linux_abi::{
    Space,
    arch::x86_64::{
        debug::DebugRegisters,
        regs::{FpuArea, UserState},
        signal_frame::FRAME_SIZE,
        xstate,
    },
    errno::Errno,
    host::Cpus,
    protection_keys,
    signal::AlternateStack,
};
use memwright_linux_memory::{
    futex::Futexes,
    memory::{Layouts, Spaces, map_errno},
    merge_scan::MergeScan,
    oom::OomKiller,
    reclaim::Reclaim,
};
use memwright_linux_sched::{scheduler::Work, wait::Interest};
use memwright_linux_tasks::{
    probes::Probes,
    process::{FIXED_ADDRESSES, Heap, Image, end_others},
};
use memwright_linux_vfs::{
    direct_reclaim::Retry,
    fs::{Executable, dentry::Dentry, walk::LastLink},
    identity::Resource,
    manifest::Manifest,
};
use memwright_table::{OutOfMemory, TryPush, VirtAddr};

/// Maximum nesting depth of scripts (`exec_binprm` of Linux 7.2, `fs/exec.c`).
const SCRIPTS_MAX: usize = 5;
/// Number of bytes that are read to identify the format of a file (`BINPRM_BUF_SIZE`).
const FIRST_BYTES: usize = 256;
/// Maximum size in bytes of a single argument or environment string (`MAX_ARG_STRLEN`).
pub const STRING_MAX: usize = 131_072;
/// Number of bytes that the stack area initially extends below the initial stack pointer (`setup_arg_pages`: 128 KiB).
const STACK_AHEAD: u64 = 131_072;

/// The reason why a program cannot be executed.
pub struct ExecError {
    /// The error that `execve` returns.
    pub errno: Errno,
    /// The path of the interpreter that cannot be executed; `None` if the file itself cannot be executed.
    pub interpreter: Option<Vec<u8>>,
}

impl From<Errno> for ExecError {
    fn from(errno: Errno) -> Self {
        Self {
            errno,
            interpreter: None,
        }
    }
}

/// Returns the maximum number of bytes that the strings and the pointers to them can occupy for a stack limit in bytes:
/// a quarter of the limit, at least 128 KiB and at most 6 MiB (`bprm_stack_limits` of Linux 7.2).
pub fn strings_limit(stack_limit: u64) -> u64 {
    (stack_limit / 4).clamp(128 << 10, 6 << 20)
}

/// Returns the maximum number of bytes that the strings can occupy, without the pointers to them. `counts` contains the
/// numbers of argument and environment strings. At least one argument pointer is counted (`bprm_stack_limits`).
///
/// # Errors
/// `E2BIG` if the pointers alone exceed the limit.
pub fn strings_room(stack_limit: u64, counts: [u64; 2]) -> Result<u64, Errno> {
    let [arguments, environment] = counts;
    let pointers = arguments.max(1).saturating_add(environment);
    match strings_limit(stack_limit).checked_sub(pointers.saturating_mul(8)) {
        Some(room) if room > 0 => Ok(room),
        Some(_) | None => Err(Errno::E2BIG),
    }
}

/// The arguments of an `execve` call.
pub struct Request {
    /// The path that the caller passed.
    pub path: Vec<u8>,
    /// The directory from which a relative path starts.
    pub start: Arc<Dentry>,
    /// Argument strings.
    pub arguments: Strings,
    /// Environment strings.
    pub environment: Strings,
}

/// The implementation of `execve`, with the parts of the kernel that it needs.
pub(crate) struct Programs {
    /// Creates the new address spaces.
    pub(crate) spaces: &'static Spaces,
    /// The OOM killer, which can kill a waiting thread.
    pub(crate) oom: Arc<OomKiller>,
    /// The futexes, which the old program releases.
    pub(crate) futexes: &'static Futexes,
    /// The uprobes, whose breakpoints are set in the new program.
    pub(crate) probes: &'static Probes,
    /// Ksmd, which scans the new address space of a process with `PR_SET_MEMORY_MERGE`.
    pub(crate) merge_scan: Arc<MergeScan>,
    /// The CPUs, whose features the auxiliary vector contains.
    pub(crate) cpus: &'static dyn Cpus,
}

impl Programs {
    /// Replaces the program of the calling process.
    ///
    /// # Errors
    /// The errors of `execve(2)`. The process is unchanged after an error.
    pub fn execute(
        &self,
        current: &Current<'_>,
        registers: &ThreadRegisters<'_>,
        mut request: Request,
    ) -> Result<(), ExecError> {
        current.check_heap()?;
        if request.arguments.count() == 0 {
            // Like Linux since 5.18, pass at least one argument, which can be empty.
            request.arguments.end(0).map_err(|_| Errno::ENOMEM)?;
        }
        let stack_limit = current.process().identity.soft_limit(Resource::Stack);
        let counts =
            [&request.arguments, &request.environment].map(|strings| strings.count() as u64);
        let room = strings_room(stack_limit, counts)?;
        let file = find_program(current, &mut request)?;
        // The arguments now include those that the `#!` line of a script added.
        let size = request.arguments.size() + request.environment.size();
        if size + request.path.len() as u64 + 1 > room {
            return Err(Errno::E2BIG.into());
        }
        let loaded = self.load(current, registers, file, &request)?;
        let former = current.thread.id();
        self.become_only_thread(current)?;
        self.commit(current, registers, loaded, &request.path);
        Traced::new(current, registers, &self.oom).executed(former);
        Ok(())
    }

    /// Executes the program of the manifest. The text of an error describes what failed.
    #[allow(
        clippy::disallowed_macros,
        reason = "the run is over: a program decides nothing any more"
    )]
    pub(crate) fn execute_manifest(
        &self,
        current: &Current<'_>,
        registers: &ThreadRegisters<'_>,
        manifest: &Manifest,
    ) -> Result<(), (Errno, String)> {
        let path = if manifest.program.is_empty() {
            manifest.arguments.first().cloned().unwrap_or_default()
        } else {
            manifest.program.clone()
        };
        current.caller().enter(&manifest.folder).map_err(|errno| {
            let folder = String::from_utf8_lossy(&manifest.folder);
            (errno, format!("{folder}: {}", explain(errno)))
        })?;
        let strings = |from: &[Vec<u8>]| Strings::of(from.iter().map(Vec::as_slice));
        let request = || {
            Ok::<_, OutOfMemory>(Request {
                path: copied(&path).map_err(|_| OutOfMemory)?,
                start: current.fs().root(),
                arguments: strings(&manifest.arguments)?,
                environment: strings(&manifest.environment)?,
            })
        };
        let result = match request() {
            Ok(request) => self.execute(current, registers, request),
            Err(OutOfMemory) => Err(Errno::ENOMEM.into()),
        };
        result.map_err(|error| {
            let path = String::from_utf8_lossy(&path);
            let text = match &error.interpreter {
                Some(interpreter) => {
                    let interpreter = String::from_utf8_lossy(interpreter);
                    format!(
                        "{path}: interpreter {interpreter}: {}",
                        explain(error.errno)
                    )
                }
                None => format!("{path}: {}", explain(error.errno)),
            };
            (error.errno, text)
        })
    }

    fn load(
        &self,
        current: &Current<'_>,
        registers: &ThreadRegisters<'_>,
        file: Executable,
        request: &Request,
    ) -> Result<Loaded, ExecError> {
        let (vfs, reclaim) = (current.vfs(), current.reclaim());
        let plan = read_plan(vfs, &file)?;
        let interpreter = match interpreter_path(vfs, &file, &plan)? {
            Some(path) => Some(open_interpreter(current, path)?),
            None => None,
        };
        let limits = current.process().identity.limits.lock().clone();
        let mut credentials = current.process().identity.credentials.lock().clone();
        credentials.after_exec();
        let capabilities = credentials.capabilities.effective;
        let is_fixed = current.process().personality.load(Ordering::Relaxed) & FIXED_ADDRESSES != 0;
        let random = self.spaces.random.as_ref().filter(|_| !is_fixed);
        let space = self.spaces.create(&limits, capabilities, random)?;
        let refusal = current.with_space(|space| space.huge_pages().refusal());
        space.huge_pages().refuse(refusal);
        if current.with_space(|space| space.ksm().merges_all()) {
            let merged = reclaim.retry(|| space.ksm().merge_all(true));
            merged.map_err(|_| Errno::ENOMEM)?;
            self.merge_scan.want();
        }
        space.set_exec_gain(current.with_space(|space| space.exec_gain()).of_successor());
        let layouts = Layouts::choose(random);
        let base = if interpreter.is_some() {
            Base::At(layouts.program)
        } else {
            Base::Anywhere
        };
        let file = Arc::new(file);
        let bias = map_image(reclaim, &space, &file, &plan, base)?;
        let (interpreter_base, first) = match &interpreter {
            Some((file, plan)) => {
                let bias = map_image(reclaim, &space, file, plan, Base::Anywhere)?;
                (
                    bias.wrapping_add(plan.start()),
                    plan.header.entry.wrapping_add(bias),
                )
            }
            None => (0, plan.header.entry.wrapping_add(bias)),
        };
        let mut facts = Facts {
            hardware: self.cpus.hardware_capabilities(),
            headers: plan.headers_address.wrapping_add(bias),
            header_count: plan.header.headers as u64,
            interpreter_base,
            entry: plan.header.entry.wrapping_add(bias),
            signal_stack: (FRAME_SIZE + xstate::frame_size(registers.processor().fpu_size()) + 256)
                as u64,
            random: [0; 16],
            credentials,
        };
        vfs.random.lock().fill(&mut facts.random);
        let contents = Contents {
            path: &request.path,
            arguments: &request.arguments,
            environment: &request.environment,
            facts: &facts,
        };
        let stack = stack::plan(layouts.stack_top, contents).map_err(|_| Errno::ENOMEM)?;
        map_stack(reclaim, &space, &stack, contents, plan.executable_stack)?;
        let end = if plan.header.relocatable && interpreter.is_none() {
            // Keep the heap of a static PIE program apart from mappings.
            layouts.program
        } else {
            plan.end().wrapping_add(bias)
        };
        let heap = end + layouts.heap_gap;
        let state = UserState::start(first, stack.pointer);
        Ok(Loaded {
            space,
            image: Arc::new(image(file, &plan, bias, stack, heap)),
            state,
        })
    }

    /// Kills the other threads of the process, waits until they have exited, and makes the calling thread the leader of
    /// the process (`de_thread` of Linux 7.2, `fs/exec.c`).
    ///
    /// # Errors
    /// `EAGAIN` if the process is exiting or another of its threads is in `execve`. The calling thread then exits too.
    fn become_only_thread(&self, current: &Current<'_>) -> Result<(), Errno> {
        let (process, thread) = (current.process(), current.thread);
        {
            let mut signals = process.signals.lock();
            if signals.group_exit.is_some() || signals.executing.is_some() {
                return Err(Errno::EAGAIN);
            }
            if signals.threads.len() > 1 {
                signals.executing = Some(thread.clone());
                end_others(&signals, thread);
            }
        }
        let alone = || (process.signals.lock().threads.len() == 1).then_some(());
        let queues = [&process.thread_ended];
        let waited = match alone() {
            Some(()) => Ok(()),
            None => self.oom.wait(thread, &queues, None, Interest::Fatal, alone),
        };
        {
            let mut signals = process.signals.lock();
            signals.executing = None;
            if waited.is_err() {
                return Err(Errno::EAGAIN);
            }
        }
        if !thread.is_leader() {
            process.tasks.lock().become_leader(thread);
        }
        Ok(())
    }

    /// Makes the process run the new program. `execve` cannot fail from here on.
    fn commit(
        &self,
        current: &Current<'_>,
        registers: &ThreadRegisters<'_>,
        loaded: Loaded,
        path: &[u8],
    ) {
        let process = current.process();
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        current.thread.set_name(name);
        process.identity.credentials.lock().after_exec();
        process.executed.store(true, Ordering::SeqCst);
        process.delete_timers();
        memwright_linux_memory::memory::note_peak(process);
        self.futexes.release(current.thread);
        let old = {
            // While the lock is held, no other thread can move the process to another cgroup. Such a move would set the
            // memcg of the old address space instead of that of the new one.
            let _tasks = process.tasks.lock();
            process.replace_space(loaded.space.clone(), loaded.image)
        };
        current.set_space(loaded.space.clone());
        process.tasks.scheduler.load_space(&loaded.space);
        drop(old);
        process.return_space();
        own_files(current);
        {
            let mut signals = process.signals.lock();
            signals.actions.reset();
            let state = signals.thread(current.thread);
            state.alternate_stack = AlternateStack::default();
            state.saved_mask = None;
            signals.recalculate(current.thread);
        }
        process.barriers.store(0, Ordering::Relaxed);
        *current.thread.restart.lock() = None;
        restartable::forget(current.thread);
        registers.processor().restore_fpu(&FpuArea::INITIAL);
        protection_keys::reset(registers.processor());
        let mut state = loaded.state;
        // Keep the number of the call in `orig_rax`: a tracer reads it there until the call ends.
        state.regs.orig_rax = registers.state().regs.orig_rax;
        registers.replace_state(state);
        registers.debug.set(DebugRegisters::default());
        current.thread.set_work(Work::DEBUG, false);
        probe_step::executed(self.probes, current.thread);
    }
}

fn explain(errno: Errno) -> &'static str {
    match errno {
        Errno::ENOENT => "not found",
        Errno::EACCES => "permission denied",
        Errno::ENOEXEC | Errno::ELIBBAD => "not a program for this machine",
        Errno::ENOMEM => "too large for the memory of the machine",
        Errno::E2BIG => "arguments and environment are too long",
        Errno::ELOOP => "too many levels of scripts or links",
        Errno::ENOTDIR => "a part of the path is not a directory",
        _ => errno.name(),
    }
}

/// Opens the program, following `#!` lines.
fn find_program(current: &Current<'_>, request: &mut Request) -> Result<Executable, ExecError> {
    let mut file =
        current
            .caller()
            .open_executable(&request.start, &request.path, LastLink::Follow)?;
    let mut path = copied(&request.path)?;
    for _ in 0..=SCRIPTS_MAX {
        let first = load::read(current.vfs(), &file, 0, FIRST_BYTES)?;
        let script = match script::parse(&first) {
            FirstLine::Other => return Ok(file),
            FirstLine::Malformed => return Err(Errno::ENOEXEC.into()),
            FirstLine::Script(script) => script,
        };
        let front = [Some(script.interpreter), script.argument, Some(&path)];
        let replaced = request.arguments.replace_first(front.into_iter().flatten());
        replaced.map_err(|_| Errno::ENOMEM)?;
        let fs = current.fs();
        let opened =
            current
                .caller()
                .open_executable(&fs.directory(), script.interpreter, LastLink::Follow);
        path = copied(script.interpreter)?;
        file = match opened {
            Ok(file) => file,
            Err(errno) => {
                return Err(ExecError {
                    errno,
                    interpreter: Some(path),
                });
            }
        };
    }
    Err(Errno::ELOOP.into())
}

/// Returns a copy of `bytes`.
fn copied(bytes: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut copy = Vec::new();
    copy.try_push_all(bytes).map_err(|_| Errno::ENOMEM)?;
    Ok(copy)
}

/// A program that is mapped and ready to run.
struct Loaded {
    space: Arc<Space>,
    image: Arc<Image>,
    state: UserState,
}

/// Returns the image of a program that is mapped with load bias `bias`, with its stack and the start of its heap.
fn image(file: Arc<Executable>, plan: &Plan, bias: u64, stack: StackPlan, heap: u64) -> Image {
    let mut addresses = stack.addresses;
    let (code, data) = (plan.code(), plan.data());
    addresses.code_start = code.start.wrapping_add(bias);
    addresses.code_end = code.end.wrapping_add(bias);
    addresses.data_start = data.start.wrapping_add(bias);
    addresses.data_end = data.end.wrapping_add(bias);
    let heap = Heap {
        start: heap,
        end: heap,
    };
    Image::new(file, addresses, stack.auxiliary, heap)
}

fn open_interpreter(
    current: &Current<'_>,
    path: Vec<u8>,
) -> Result<(Arc<Executable>, Plan), ExecError> {
    let root = current.fs().root();
    let opened = current
        .caller()
        .open_executable(&root, &path, LastLink::Follow)
        .and_then(|file| read_plan(current.vfs(), &file).map(|plan| (Arc::new(file), plan)));
    opened.map_err(|errno| ExecError {
        // Linux returns `ELIBBAD` for an interpreter that is not an ELF image for this machine (Linux 7.3
        // `fs/binfmt_elf.c`, `load_elf_binary`).
        errno: match errno {
            Errno::ENOEXEC => Errno::ELIBBAD,
            errno => errno,
        },
        interpreter: Some(path),
    })
}

fn map_stack(
    reclaim: &Reclaim,
    space: &Space,
    stack: &StackPlan,
    contents: Contents<'_>,
    executable: bool,
) -> Result<(), Errno> {
    let top = stack.top;
    let start = (stack.pointer & !4095) - STACK_AHEAD;
    let mut rights = Rights::READ | Rights::WRITE;
    rights.set(Rights::EXECUTE, executable);
    let request = MapRequest::anonymous(top - start, rights)
        .at(Placement::Fixed(VirtAddr::new(start)))
        .with(AreaFlags::GROWSDOWN | AreaFlags::STACK);
    reclaim.retry(|| space.map(&request)).map_err(map_errno)?;
    stack.write(contents, |address, bytes| {
        reclaim
            .retry(|| space.write(VirtAddr::new(address), bytes))
            .map_err(|_| Errno::ENOMEM)
    })
}

/// Unshares the descriptor table and closes the descriptors that are marked close-on-exec.
fn own_files(current: &Current<'_>) {
    let process = current.process();
    let files = current.files();
    // The process and this function each hold one reference. More references mean that another process shares the
    // table.
    if Arc::strong_count(&files) > 2
        && let Ok(own) = files.duplicate(current.vfs())
    {
        let old = process.replace_files(Arc::new(own));
        drop(old);
    }
    drop(files);
    current.files().close_for_exec(process.id);
}

#[cfg(test)]
mod tests {
    use super::{strings_limit, strings_room};
    use memwright_linux_abi::errno::Errno;

    #[test]
    fn strings_take_a_quarter_of_the_stack() {
        assert_eq!(strings_limit(8 << 20), 2 << 20);
        assert_eq!(strings_limit(u64::MAX), 6 << 20);
        assert_eq!(strings_limit(4096), 128 << 10);
    }

    #[test]
    fn pointers_count_as_strings_do() {
        let most = 128 << 10;
        for (counts, expected) in [
            ([0, 0], Ok(most - 8)),
            ([1, 0], Ok(most - 8)),
            ([2, 3], Ok(most - 40)),
            ([most / 8 - 1, 0], Ok(8)),
            ([most / 8, 0], Err(Errno::E2BIG)),
            ([0, most / 8 - 1], Err(Errno::E2BIG)),
            ([u64::MAX, u64::MAX], Err(Errno::E2BIG)),
        ] {
            assert_eq!(strings_room(4096, counts), expected, "{counts:?}");
        }
    }
}
