//! `ptrace` (Linux 7.2 `kernel/ptrace.c`, `arch/x86/kernel/ptrace.c`): the requests that a debugger needs to stop,
//! inspect, change and resume a process. Other requests, such as those for system-call stops and events, are refused.

use crate::{
    Space,
    abi::{IoVector, Plain},
    arch::x86_64::regs::FpuArea,
    context::{Arguments, CallResult, Context},
    errno::Errno,
    process::{Resume, Standing, Thread, Tracing, kill_process},
    ptrace::{
        Extended, UserRegisters, attach, be_traced, detach, general, resume, set_general,
        with_standing,
    },
    signal::{Signal, SignalInfo, SignalSet},
    syscall::call::int,
};
use alloc::sync::Arc;
use linux_raw_sys::{elf_uapi as elf, ptrace as raw};
use memwright_table::VirtAddr;

/// Size in bytes of `struct user` (`asm/user_64.h`), which begins with the general registers.
const USER_SIZE: u64 = 928;
/// Size of a word in bytes.
const WORD: usize = 8;

/// Implements `ptrace`.
pub fn ptrace(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let &[request, id, address, data, ..] = arguments;
    let request = request as u32;
    if request == raw::PTRACE_TRACEME {
        be_traced(context)?;
        return Ok(0);
    }
    let thread = match int(id) {
        id if id > 0 => context.kernel.tasks.thread(id as u32),
        _ => None,
    };
    let thread = thread.ok_or(Errno::ESRCH)?;
    if request == raw::PTRACE_ATTACH {
        attach(context, &thread)?;
        return Ok(0);
    }
    let tracee = Tracee {
        context,
        thread: &thread,
    };
    if request == raw::PTRACE_KILL {
        return tracee.kill();
    }
    tracee.standing(|_| Ok(()))?;
    match request {
        raw::PTRACE_PEEKTEXT | raw::PTRACE_PEEKDATA => tracee.peek(address, data),
        raw::PTRACE_POKETEXT | raw::PTRACE_POKEDATA => tracee.poke(address, data),
        raw::PTRACE_PEEKUSR => tracee.peek_user(address, data),
        raw::PTRACE_POKEUSR => tracee.poke_user(address, data),
        raw::PTRACE_CONT => tracee.resume(data, false),
        raw::PTRACE_SINGLESTEP => tracee.resume(data, true),
        raw::PTRACE_DETACH => tracee.detach(data),
        raw::PTRACE_SETOPTIONS => tracee.set_options(data),
        raw::PTRACE_GETSIGINFO => tracee.signal_info(data),
        raw::PTRACE_SETSIGINFO => tracee.set_signal_info(data),
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

/// Size of `struct user_fpregs_struct` in bytes.
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
    /// Returns the register set with this note type.
    fn named(kind: u64) -> Option<Self> {
        match u32::try_from(kind).ok()? {
            elf::NT_PRSTATUS => Some(Self::General),
            elf::NT_PRFPREG => Some(Self::Legacy),
            elf::NT_X86_XSTATE => Some(Self::Extended),
            _ => None,
        }
    }
}

/// The thread that a request refers to.
struct Tracee<'a> {
    context: &'a Context<'a>,
    thread: &'a Arc<Thread>,
}

impl Tracee<'_> {
    fn tracing<T>(&self, act: impl FnOnce(&mut Tracing) -> Result<T, Errno>) -> Result<T, Errno> {
        with_standing(self.context.process(), self.thread, act)
    }

    fn standing<T>(&self, act: impl FnOnce(&mut Standing) -> Result<T, Errno>) -> Result<T, Errno> {
        self.tracing(|tracing| act(tracing.standing.as_mut().ok_or(Errno::ESRCH)?))
    }

    fn space(&self) -> Result<Arc<Space>, Errno> {
        self.thread.process.space().ok_or(Errno::ESRCH)
    }

    fn extended(&self) -> Extended<'_> {
        Extended {
            host: self.context.kernel.host,
        }
    }

    /// Implements `PTRACE_KILL` for a thread that is in a ptrace stop or not.
    fn kill(&self) -> CallResult {
        let tracer = {
            let mut signals = self.thread.process.signals.lock();
            let state = signals.find(self.thread).ok_or(Errno::ESRCH)?;
            state.traced.as_ref().and_then(|tracing| tracing.tracer)
        };
        if tracer != Some(self.context.process().id) {
            return Err(Errno::ESRCH);
        }
        kill_process(&self.thread.process);
        Ok(0)
    }

    fn peek(&self, address: u64, data: u64) -> CallResult {
        let mut bytes = [0; WORD];
        self.space()?
            .read_forced(VirtAddr::new(address), &mut bytes)
            .map_err(|_| Errno::EIO)?;
        self.context.user.write_bytes(data, &bytes)?;
        Ok(0)
    }

    fn poke(&self, address: u64, data: u64) -> CallResult {
        self.space()?
            .write_forced(VirtAddr::new(address), &data.to_le_bytes())
            .map_err(|_| Errno::EIO)?;
        Ok(0)
    }

    /// Implements `PTRACE_PEEKUSER`: reads a word of `struct user`. Words after the general registers read as zero,
    /// because debug registers are not supported.
    fn peek_user(&self, address: u64, data: u64) -> CallResult {
        let at = word_of_user(address)?;
        let value = self.standing(|standing| {
            let mut bytes = [0; UserRegisters::SIZE];
            general(&standing.state).to_bytes(&mut bytes);
            Ok(bytes.get(at..at + WORD).map_or(0, u64::from_bytes))
        })?;
        self.context.user.write_value(data, &value)?;
        Ok(0)
    }

    fn poke_user(&self, address: u64, data: u64) -> CallResult {
        let at = word_of_user(address)?;
        self.standing(|standing| {
            let mut bytes = [0; UserRegisters::SIZE];
            general(&standing.state).to_bytes(&mut bytes);
            let word = bytes.get_mut(at..at + WORD).ok_or(Errno::EIO)?;
            data.to_bytes(word);
            set_general(&mut standing.state, &UserRegisters::from_bytes(&bytes))
        })?;
        Ok(0)
    }

    fn resume(&self, signal: u64, step: bool) -> CallResult {
        let signal = signal_or_none(signal)?;
        let tracer = self.context.process();
        resume(tracer, self.thread, Resume { signal, step })?;
        Ok(0)
    }

    fn detach(&self, signal: u64) -> CallResult {
        let signal = signal_or_none(signal)?;
        let tracer = self.context.process();
        detach(self.context.kernel, tracer, self.thread, signal);
        Ok(0)
    }

    /// Implements `PTRACE_SETOPTIONS`. `PTRACE_O_EXITKILL` is the only supported option.
    fn set_options(&self, options: u64) -> CallResult {
        if options & !u64::from(raw::PTRACE_O_EXITKILL) != 0 {
            return Err(Errno::EINVAL);
        }
        self.tracing(|tracing| {
            tracing.killed_at_end = options != 0;
            Ok(())
        })?;
        Ok(0)
    }

    fn signal_info(&self, data: u64) -> CallResult {
        let info = self.standing(|standing| standing.info.ok_or(Errno::EINVAL))?;
        self.context.user.write_bytes(data, &info.to_bytes())?;
        Ok(0)
    }

    fn set_signal_info(&self, data: u64) -> CallResult {
        let mut bytes = [0; SignalInfo::SIZE];
        self.context.user.read_bytes(data, &mut bytes)?;
        let number = u32::from_bytes(&bytes[..4]);
        let signal = Signal::new(number.into()).ok_or(Errno::EINVAL)?;
        self.standing(|standing| {
            let info = standing.info.as_mut().ok_or(Errno::EINVAL)?;
            *info = SignalInfo::from_user(signal, &bytes);
            Ok(())
        })?;
        Ok(0)
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
        self.context.user.write_value(data, &mask.0)?;
        Ok(0)
    }

    fn set_mask(&self, size: u64, data: u64) -> CallResult {
        if size != WORD as u64 {
            return Err(Errno::EINVAL);
        }
        let mask = SignalSet(self.context.user.read_value(data)?);
        let mut signals = self.thread.process.signals.lock();
        let state = signals.find(self.thread).ok_or(Errno::ESRCH)?;
        state.blocked = mask.minus(SignalSet::UNBLOCKABLE);
        state.saved_mask = None;
        Ok(0)
    }

    /// Implements `PTRACE_GETREGSET` and `PTRACE_SETREGSET`. The `struct iovec` at `vector` describes the tracer's
    /// buffer; the call stores the number of bytes copied in its length.
    fn named_set(
        &self,
        kind: u64,
        vector: u64,
        act: fn(&Self, RegisterSet, u64, usize) -> CallResult,
    ) -> CallResult {
        let mut wanted: IoVector = self.context.user.read_value(vector)?;
        let set = RegisterSet::named(kind).ok_or(Errno::EINVAL)?;
        if !wanted.length.is_multiple_of(WORD as u64) {
            return Err(Errno::EINVAL);
        }
        let moved = act(self, set, wanted.base, wanted.length as usize)?;
        wanted.length = moved;
        self.context.user.write_value(vector, &wanted)?;
        Ok(moved)
    }

    /// Copies up to `limit` bytes of a register set to the tracer. Returns the number of bytes.
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
        self.context.user.write_bytes(to, &area.bytes[..size])?;
        Ok(size as u64)
    }

    /// Replaces a register set, or its first `length` bytes, with the tracer's data. Returns the number of bytes.
    fn set_write(&self, set: RegisterSet, from: u64, length: usize) -> CallResult {
        let size = match set {
            RegisterSet::General => UserRegisters::SIZE,
            RegisterSet::Legacy => LEGACY,
            RegisterSet::Extended => self.extended().size(),
        };
        let length = length.min(size);
        let mut area = FpuArea::INITIAL;
        self.context
            .user
            .read_bytes(from, &mut area.bytes[..length])?;
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

/// Returns the byte offset of a word of `struct user`.
fn word_of_user(address: u64) -> Result<usize, Errno> {
    if !address.is_multiple_of(WORD as u64) || address >= USER_SIZE {
        Err(Errno::EIO)
    } else {
        Ok(address as usize)
    }
}

/// Returns the signal with which to resume; `None` if `number` is zero.
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
