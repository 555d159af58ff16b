//! `ptrace` (Linux 7.2 `kernel/ptrace.c`, `arch/x86/kernel/ptrace.c`): the requests by which a debugger stops,
//! inspects, changes and resumes a thread.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    ptrace::{
        Extended, UserRegisters, attach, be_traced, detach, general, interrupt, listen, resume,
        set_general, with_standing, with_traced,
    },
    syscall::call::int,
    thread_registers::ThreadRegisters,
};
use alloc::sync::Arc;
use linux_raw_sys::{elf_uapi as elf, ptrace as raw};
use memwright_linux_abi::{
    Space,
    abi::{IoVector, Plain},
    abi_struct,
    arch::x86_64::regs::{FpuArea, UserState},
    errno::Errno,
    host::{Cpus, Registers},
    signal::{Signal, SignalInfo, SignalSet},
};
use memwright_linux_base::sync::PausePoints;
use memwright_linux_tasks::process::{
    AtCalls, Report, Resume, Standing, Thread, TraceOptions, Tracing, kill_process,
};
use memwright_linux_vfs::user::{USER_END, UserMemory};
use memwright_table::VirtAddr;

/// Size of `struct user` (`asm/user_64.h`) in bytes. The structure begins with the general registers.
const USER_SIZE: u64 = 928;
/// Offset of the debug registers in `struct user`, in bytes.
const DEBUG_REGISTERS: usize = 848;
/// Size in bytes of `struct ptrace_syscall_info` up to the end of the arguments.
const CALL_INFO: usize = 80;
/// `AUDIT_ARCH_X86_64`.
const AUDIT_ARCH: u32 = 0xc000_003e;
/// Size of a word in bytes.
const WORD: usize = 8;

abi_struct! {
    /// `struct ptrace_peeksiginfo_args`.
    pub struct PeekSignals {
        /// Index of the first signal in the queue.
        pub first: u64,
        /// Flags.
        pub flags: u32,
        /// Number of signals.
        pub count: i32,
    }
}

/// Implements `ptrace`.
pub fn ptrace(
    current: &Current<'_>,
    registers: &ThreadRegisters<'_>,
    cpus: &dyn Cpus,
    arguments: &Arguments,
) -> CallResult {
    let &[request, id, address, data, ..] = arguments;
    let request = request as u32;
    if request == raw::PTRACE_TRACEME {
        be_traced(current.thread)?;
        return Ok(0);
    }
    let tasks = current.process().tasks;
    let attaches = matches!(request, raw::PTRACE_ATTACH | raw::PTRACE_SEIZE);
    let thread = match int(id) {
        id if id > 0 => tasks.thread(id as u32),
        _ => None,
    };
    let thread = match thread {
        Some(thread) => thread,
        // There is no thread with this id, but a process: its leader has exited and cannot be traced any more.
        None if attaches && tasks.process(id as u32).is_some() => {
            return Err(Errno::EPERM);
        }
        None => return Err(Errno::ESRCH),
    };
    if attaches {
        current.check_heap()?;
        let options = match request {
            raw::PTRACE_SEIZE => Some(options_of_seize(address, data)?),
            _ => None,
        };
        attach(current.thread, &thread, options)?;
        return Ok(0);
    }
    let tracee = Tracee {
        by: current.thread,
        user: current.user,
        registers: registers.processor(),
        cpus,
        thread: &thread,
    };
    match request {
        raw::PTRACE_KILL => return tracee.kill(),
        raw::PTRACE_INTERRUPT => return interrupt(current.thread, &thread).map(|()| 0),
        _ => {}
    }
    tracee.standing(|_| Ok(()))?;
    if let Some(result) = tracee.resume_by(request, data) {
        return result;
    }
    match request {
        raw::PTRACE_PEEKTEXT | raw::PTRACE_PEEKDATA => tracee.peek(address, data),
        raw::PTRACE_POKETEXT | raw::PTRACE_POKEDATA => tracee.poke(address, data),
        raw::PTRACE_PEEKUSR => tracee.peek_user(address, data),
        raw::PTRACE_POKEUSR => tracee.poke_user(address, data),
        raw::PTRACE_SETOPTIONS => tracee.set_options(data),
        raw::PTRACE_GETEVENTMSG => tracee.message(data),
        raw::PTRACE_GET_SYSCALL_INFO => return tracee.call_info(address, data),
        raw::PTRACE_GETSIGINFO => tracee.signal_info(data),
        raw::PTRACE_SETSIGINFO => tracee.set_signal_info(data),
        raw::PTRACE_PEEKSIGINFO => return tracee.pending_signals(address, data),
        raw::PTRACE_GETSIGMASK => tracee.mask(address, data),
        raw::PTRACE_SETSIGMASK => tracee.set_mask(address, data),
        raw::PTRACE_GETREGS => tracee.set_read(RegisterSet::General, data, usize::MAX),
        raw::PTRACE_SETREGS => tracee.set_write(RegisterSet::General, data, UserRegisters::SIZE),
        raw::PTRACE_GETFPREGS => tracee.set_read(RegisterSet::Legacy, data, usize::MAX),
        raw::PTRACE_SETFPREGS => tracee.set_write(RegisterSet::Legacy, data, LEGACY),
        raw::PTRACE_GETREGSET => tracee.named_set(address, data, Tracee::set_read),
        raw::PTRACE_SETREGSET => tracee.named_set(address, data, Tracee::set_write),
        _ => Err(Errno::EIO),
    }
    .map(|_| 0)
}

/// Returns the options of `PTRACE_SEIZE`.
///
/// # Errors
/// `EIO` for an address other than 0 and for unknown options.
fn options_of_seize(address: u64, data: u64) -> Result<TraceOptions, Errno> {
    let options = u32::try_from(data)
        .ok()
        .and_then(TraceOptions::from_bits)
        .filter(|_| address == 0);
    options.ok_or(Errno::EIO)
}

/// Returns how a request resumes the thread: whether it single-steps the thread, and what the thread does at system
/// calls until the next stop. Returns `None` if the request does not resume the thread.
fn way_of(request: u32) -> Option<(bool, AtCalls)> {
    match request {
        raw::PTRACE_CONT => Some((false, AtCalls::Pass)),
        raw::PTRACE_SINGLESTEP => Some((true, AtCalls::Pass)),
        raw::PTRACE_SYSCALL => Some((false, AtCalls::Stop)),
        raw::PTRACE_SYSEMU => Some((false, AtCalls::Emulate)),
        raw::PTRACE_SYSEMU_SINGLESTEP => Some((true, AtCalls::Emulate)),
        _ => None,
    }
}

/// Size in bytes of `struct user_fpregs_struct`.
const LEGACY: usize = 512;

/// A set of registers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RegisterSet {
    /// `NT_PRSTATUS`.
    General,
    /// `NT_PRFPREG`.
    Legacy,
    /// `NT_X86_XSTATE`.
    Extended,
}

impl RegisterSet {
    /// Returns the register set that has note type `kind`.
    fn named(kind: u64) -> Option<Self> {
        match u32::try_from(kind).ok()? {
            elf::NT_PRSTATUS => Some(Self::General),
            elf::NT_PRFPREG => Some(Self::Legacy),
            elf::NT_X86_XSTATE => Some(Self::Extended),
            _ => None,
        }
    }
}

/// The thread to which a request refers.
struct Tracee<'a> {
    /// The calling thread, which must be the tracer.
    by: &'a Thread,
    /// The memory of the tracer's program.
    user: UserMemory<'a>,
    registers: &'a dyn Registers,
    cpus: &'a dyn Cpus,
    thread: &'a Arc<Thread>,
}

impl Tracee<'_> {
    fn tracing<T>(&self, act: impl FnOnce(&mut Tracing) -> Result<T, Errno>) -> Result<T, Errno> {
        with_standing(self.by, self.thread, act)
    }

    fn standing<T>(&self, act: impl FnOnce(&mut Standing) -> Result<T, Errno>) -> Result<T, Errno> {
        self.tracing(|tracing| act(tracing.standing.as_mut().ok_or(Errno::ESRCH)?))
    }

    fn space(&self) -> Result<Arc<Space>, Errno> {
        self.thread.process.space().ok_or(Errno::ESRCH)
    }

    fn extended(&self) -> Extended<'_> {
        Extended {
            registers: self.registers,
            cpus: self.cpus,
        }
    }

    /// Implements `PTRACE_KILL`. The thread need not be in a ptrace stop.
    fn kill(&self) -> CallResult {
        with_traced(self.by, self.thread, |_| Ok(()))?;
        kill_process(&self.thread.process);
        Ok(0)
    }

    /// Implements the requests that end a stop. Returns `None` for other requests.
    fn resume_by(&self, request: u32, data: u64) -> Option<CallResult> {
        let (by, thread) = (self.by, self.thread);
        let result = match (request, way_of(request)) {
            (_, Some((step, calls))) => signal_or_none(data).and_then(|signal| {
                let how = Resume {
                    signal,
                    step,
                    calls,
                };
                resume(by, thread, how)
            }),
            (raw::PTRACE_DETACH, None) => {
                signal_or_none(data).and_then(|signal| detach(by, thread, signal))
            }
            (raw::PTRACE_LISTEN, None) => listen(by, thread),
            (_, None) => return None,
        };
        Some(result.map(|()| 0))
    }

    fn peek(&self, address: u64, data: u64) -> CallResult {
        let mut bytes = [0; WORD];
        self.space()?
            .read_forced(VirtAddr::new(address), &mut bytes)
            .map_err(|_| Errno::EIO)?;
        self.user.write_bytes(data, &bytes)?;
        Ok(0)
    }

    fn poke(&self, address: u64, data: u64) -> CallResult {
        self.space()?
            .write_forced(VirtAddr::new(address), &data.to_le_bytes())
            .map_err(|_| Errno::EIO)?;
        Ok(0)
    }

    /// Implements `PTRACE_PEEKUSER`: reads a word of `struct user`. Words that are not registers read as zero.
    fn peek_user(&self, address: u64, data: u64) -> CallResult {
        let at = word_of_user(address)?;
        let value = self.standing(|standing| {
            if let Some(number) = debug_register(at) {
                return Ok(standing.debug.get(number));
            }
            let mut bytes = [0; UserRegisters::SIZE];
            general(&standing.state).to_bytes(&mut bytes);
            Ok(bytes.get(at..at + WORD).map_or(0, u64::from_bytes))
        })?;
        self.user.write_value(data, &value)?;
        Ok(0)
    }

    fn poke_user(&self, address: u64, data: u64) -> CallResult {
        let at = word_of_user(address)?;
        self.standing(|standing| {
            if let Some(number) = debug_register(at) {
                return standing.debug.set(number, data, USER_END);
            }
            let mut bytes = [0; UserRegisters::SIZE];
            general(&standing.state).to_bytes(&mut bytes);
            let word = bytes.get_mut(at..at + WORD).ok_or(Errno::EIO)?;
            data.to_bytes(word);
            set_general(&mut standing.state, &UserRegisters::from_bytes(&bytes))
        })?;
        Ok(0)
    }

    fn set_options(&self, options: u64) -> CallResult {
        let options = u32::try_from(options).ok();
        let options = options.and_then(TraceOptions::from_bits);
        let options = options.ok_or(Errno::EINVAL)?;
        self.tracing(|tracing| {
            tracing.options = options;
            Ok(())
        })?;
        Ok(0)
    }

    fn message(&self, data: u64) -> CallResult {
        let message = self.standing(|standing| Ok(standing.report.message))?;
        self.user.write_value(data, &message)?;
        Ok(0)
    }

    /// Implements `PTRACE_GET_SYSCALL_INFO`. Stores up to `size` bytes of the information. Returns the size of the
    /// complete information in bytes.
    fn call_info(&self, size: u64, data: u64) -> CallResult {
        let (bytes, length) =
            self.standing(|standing| Ok(call_info(&standing.report, &standing.state)))?;
        let stored = (size as usize).min(length);
        self.user.write_bytes(data, &bytes[..stored])?;
        Ok(length as u64)
    }

    fn signal_info(&self, data: u64) -> CallResult {
        let info = self.standing(|standing| standing.report.info.ok_or(Errno::EINVAL))?;
        self.user.write_bytes(data, &info.to_bytes())?;
        Ok(0)
    }

    fn set_signal_info(&self, data: u64) -> CallResult {
        let mut bytes = [0; SignalInfo::SIZE];
        self.user.read_bytes(data, &mut bytes)?;
        let number = u32::from_bytes(&bytes[..4]);
        let signal = Signal::new(number.into()).ok_or(Errno::EINVAL)?;
        self.standing(|standing| {
            let info = standing.report.info.as_mut().ok_or(Errno::EINVAL)?;
            *info = SignalInfo::from_user(signal, &bytes);
            Ok(())
        })?;
        Ok(0)
    }

    /// Implements `PTRACE_PEEKSIGINFO`: copies pending signals to the tracer. Returns the number of copied signals.
    fn pending_signals(&self, wanted: u64, data: u64) -> CallResult {
        let PeekSignals {
            first,
            flags,
            count,
        } = self.user.read_value(wanted)?;
        if flags & !raw::PTRACE_PEEKSIGINFO_SHARED != 0 || count < 0 {
            return Err(Errno::EINVAL);
        }
        let mut points = PausePoints::every(64);
        let mut done = 0;
        while done < count as u64 {
            let info = {
                let mut signals = self.thread.process.signals.lock();
                let at = first.wrapping_add(done);
                if flags == 0 {
                    let state = signals.find(self.thread).ok_or(Errno::ESRCH)?;
                    state.pending.queued_at(at)
                } else {
                    signals.pending.queued_at(at)
                }
            };
            let Some(info) = info else {
                break;
            };
            let to = data.wrapping_add(done * SignalInfo::SIZE as u64);
            match self.user.write_bytes(to, &info.to_bytes()) {
                Ok(()) => done += 1,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            points.round();
        }
        Ok(done)
    }

    fn mask(&self, size: u64, data: u64) -> CallResult {
        if size != WORD as u64 {
            return Err(Errno::EINVAL);
        }
        let mask = {
            let mut signals = self.thread.process.signals.lock();
            let state = signals.find(self.thread).ok_or(Errno::ESRCH)?;
            state.saved_mask.unwrap_or(state.blocked)
        };
        self.user.write_value(data, &mask.0)?;
        Ok(0)
    }

    fn set_mask(&self, size: u64, data: u64) -> CallResult {
        if size != WORD as u64 {
            return Err(Errno::EINVAL);
        }
        let mask = SignalSet(self.user.read_value(data)?);
        let mut signals = self.thread.process.signals.lock();
        let state = signals.find(self.thread).ok_or(Errno::ESRCH)?;
        state.blocked = mask.minus(SignalSet::UNBLOCKABLE);
        state.saved_mask = None;
        Ok(0)
    }

    /// Implements `PTRACE_GETREGSET` and `PTRACE_SETREGSET`. The `struct iovec` at `vector` describes the tracer's
    /// buffer. The call stores the number of copied bytes in the length of that structure.
    fn named_set(
        &self,
        kind: u64,
        vector: u64,
        act: fn(&Self, RegisterSet, u64, usize) -> CallResult,
    ) -> CallResult {
        let mut wanted: IoVector = self.user.read_value(vector)?;
        let set = RegisterSet::named(kind).ok_or(Errno::EINVAL)?;
        if !wanted.length.is_multiple_of(WORD as u64) {
            return Err(Errno::EINVAL);
        }
        let moved = act(self, set, wanted.base, wanted.length as usize)?;
        wanted.length = moved;
        self.user.write_value(vector, &wanted)?;
        Ok(moved)
    }

    /// Copies up to `limit` bytes of a register set to the tracer. Returns the number of copied bytes.
    fn set_read(&self, set: RegisterSet, to: u64, limit: usize) -> CallResult {
        let mut area = FpuArea::INITIAL;
        let size = match set {
            RegisterSet::General => {
                let regs = self.standing(|standing| Ok(general(&standing.state)))?;
                regs.to_bytes(&mut area.bytes[..UserRegisters::SIZE]);
                UserRegisters::SIZE
            }
            RegisterSet::Legacy | RegisterSet::Extended => {
                area = self.standing(|standing| Ok(self.extended().show(&standing.extended)))?;
                if set == RegisterSet::Legacy {
                    LEGACY
                } else {
                    self.extended().size()
                }
            }
        };
        let size = size.min(limit);
        self.user.write_bytes(to, &area.bytes[..size])?;
        Ok(size as u64)
    }

    /// Replaces a register set, or its first `length` bytes, by data of the tracer. Returns the number of replaced
    /// bytes.
    fn set_write(&self, set: RegisterSet, from: u64, length: usize) -> CallResult {
        let size = match set {
            RegisterSet::General => UserRegisters::SIZE,
            RegisterSet::Legacy => LEGACY,
            RegisterSet::Extended => self.extended().size(),
        };
        let length = length.min(size);
        let mut area = FpuArea::INITIAL;
        self.user.read_bytes(from, &mut area.bytes[..length])?;
        let bytes = &area.bytes[..length];
        self.standing(|standing| match set {
            RegisterSet::General => {
                let mut whole = [0; UserRegisters::SIZE];
                general(&standing.state).to_bytes(&mut whole);
                whole[..length].copy_from_slice(bytes);
                set_general(&mut standing.state, &UserRegisters::from_bytes(&whole))
            }
            RegisterSet::Legacy => {
                self.extended().set_legacy(&mut standing.extended, bytes);
                Ok(())
            }
            RegisterSet::Extended => self.extended().replace(&mut standing.extended, bytes),
        })?;
        Ok(length as u64)
    }
}

/// Returns the information about a stop at a system call, and the length of the information in bytes
/// (`ptrace_get_syscall_info` of Linux 7.2, `kernel/ptrace.c`).
fn call_info(report: &Report, state: &UserState) -> ([u8; CALL_INFO], usize) {
    let mut bytes = [0; CALL_INFO];
    let regs = &state.regs;
    AUDIT_ARCH.to_bytes(&mut bytes[4..8]);
    regs.rip.to_bytes(&mut bytes[8..16]);
    regs.rsp.to_bytes(&mut bytes[16..24]);
    let kind = match (report.code >> 7, report.message as u32) {
        (1, kind @ (raw::PTRACE_EVENTMSG_SYSCALL_ENTRY | raw::PTRACE_EVENTMSG_SYSCALL_EXIT)) => {
            kind
        }
        _ => raw::PTRACE_SYSCALL_INFO_NONE,
    };
    bytes[0] = kind as u8;
    let length = match kind {
        raw::PTRACE_EVENTMSG_SYSCALL_ENTRY => {
            let arguments = [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9];
            regs.orig_rax.to_bytes(&mut bytes[24..32]);
            arguments.to_bytes(&mut bytes[32..80]);
            CALL_INFO
        }
        raw::PTRACE_EVENTMSG_SYSCALL_EXIT => {
            regs.rax.to_bytes(&mut bytes[24..32]);
            bytes[32] = Errno::from_result(regs.rax).is_some().into();
            33
        }
        _ => 24,
    };
    (bytes, length)
}

/// Returns the number of the debug register at offset `at` of `struct user`. Returns `None` if no debug register is at
/// this offset.
fn debug_register(at: usize) -> Option<usize> {
    let number = at.checked_sub(DEBUG_REGISTERS)? / WORD;
    (number < 8).then_some(number)
}

/// Checks that `address` is the offset of a word of `struct user`, in bytes. Returns the offset.
fn word_of_user(address: u64) -> Result<usize, Errno> {
    if !address.is_multiple_of(WORD as u64) || address >= USER_SIZE {
        Err(Errno::EIO)
    } else {
        Ok(address as usize)
    }
}

/// Returns the signal that a resumed thread takes; `None` if `number` is 0.
fn signal_or_none(number: u64) -> Result<Option<Signal>, Errno> {
    match number {
        0 => Ok(None),
        number => Signal::new(number).map(Some).ok_or(Errno::EIO),
    }
}

#[cfg(test)]
mod tests {
    use super::{Errno, RegisterSet, Signal, signal_or_none, word_of_user};

    #[test]
    fn words_of_the_user_structure() {
        for (address, word) in [
            (0, Ok(0)),
            (216, Ok(216)),
            (920, Ok(920)),
            (928, Err(Errno::EIO)),
            (4, Err(Errno::EIO)),
        ] {
            assert_eq!(word_of_user(address), word, "{address}");
        }
    }

    #[test]
    fn sets_and_signals_have_their_numbers() {
        assert_eq!(RegisterSet::named(1), Some(RegisterSet::General));
        assert_eq!(RegisterSet::named(2), Some(RegisterSet::Legacy));
        assert_eq!(RegisterSet::named(0x202), Some(RegisterSet::Extended));
        assert_eq!(RegisterSet::named(0x203), None);
        assert_eq!(RegisterSet::named(1 << 32 | 1), None);
        assert_eq!(signal_or_none(0), Ok(None));
        assert_eq!(signal_or_none(19), Ok(Some(Signal::SIGSTOP)));
        assert_eq!(signal_or_none(65), Err(Errno::EIO));
    }
}
