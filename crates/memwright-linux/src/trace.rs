//! Writes memory events as lines of JSON, each with the instruction, the process and the CPU that caused it.

use crate::syscall::table;
use alloc::string::String;
use core::fmt::{self, Write};
use memwright::{Event, FaultSink, FaultedIn, TraceSink};
use memwright_linux_abi::host::{Channel, Host};
use memwright_linux_base::sync;
use memwright_linux_procfs::procfs::{Noted, area_at};
use memwright_linux_sched::scheduler::Scheduler;
use memwright_linux_tasks::process::{PROGRAM, Thread};

/// Length in bytes of the SYSCALL instruction.
const SYSCALL: u64 = 2;
/// The system calls that replace the program: `execve` and `execveat`.
const EXEC: [u64; 2] = [59, 322];
/// The value of `orig_rax` outside of system calls.
const NO_CALL: u64 = u64::MAX;

/// Writes every event to the trace channel with its time on the instruction clock.
pub struct Trace {
    host: &'static dyn Host,
    scheduler: &'static Scheduler<Thread>,
    /// The sink that counts the pages that are faulted in.
    faults: &'static dyn FaultSink,
}

/// What the running thread executed when it entered the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Origin {
    /// An instruction that was interrupted or that faulted.
    Instruction(u64),
    /// A system call: its number, and the address of its instruction.
    Call(u64, u64),
    /// The replacement of the program by another one. The code that requested it is no longer in memory.
    Exec,
    /// Nothing: the thread has not been in user mode yet.
    Nothing,
}

impl Origin {
    /// Returns the origin of a thread that left user mode with these values of RIP and `orig_rax`.
    fn of(rip: u64, call: u64) -> Self {
        match call {
            NO_CALL => Self::Instruction(rip),
            call if EXEC.contains(&call) => Self::Exec,
            call => Self::Call(call, rip.wrapping_sub(SYSCALL)),
        }
    }

    /// Returns the address of the instruction in the program.
    fn instruction(self) -> Option<u64> {
        match self {
            Self::Instruction(address) | Self::Call(_, address) => Some(address),
            Self::Exec | Self::Nothing => None,
        }
    }

    /// Writes the fields of the origin, each followed by a comma.
    fn write(self, line: &mut String) -> fmt::Result {
        if let Some(address) = self.instruction() {
            write!(line, r#""instruction":"{address:#x}","#)?;
        }
        match self {
            Self::Exec => write!(line, r#""call":"execve","#),
            Self::Call(number, _) => match table::find(number) {
                Some(call) => write!(line, r#""call":"{}","#, call.name),
                None => write!(line, r#""call":"syscall_{number}","#),
            },
            Self::Instruction(_) | Self::Nothing => Ok(()),
        }
    }
}

impl Trace {
    /// Creates a trace that writes to the trace channel of `host`. As a fault sink, it forwards each call to `faults`.
    pub fn new(
        host: &'static dyn Host,
        scheduler: &'static Scheduler<Thread>,
        faults: &'static dyn FaultSink,
    ) -> Self {
        Self {
            host,
            scheduler,
            faults,
        }
    }

    /// Writes the line of an event: the fields that all events have, and the fields that `own` writes, which are not
    /// enclosed in braces. For a fault, `accessed` is the accessed address, and the caller holds no lock.
    #[expect(clippy::disallowed_methods, reason = "an event is a line")]
    fn line(&self, own: impl FnOnce(&mut String) -> fmt::Result, accessed: Option<u64>) {
        let host = self.host;
        let now = host.now();
        host.pause_clock();
        let mut line = String::new();
        // Writing to a `String` cannot fail.
        let _ = write!(line, r#"{{"clock":{now},"cpu":{},"#, sync::cpu().index());
        let thread = self.scheduler.current();
        let origin = thread.as_ref().map(|thread| self.origin(thread));
        if let (Some(thread), Some(origin)) = (&thread, origin) {
            let _ = write_thread(&mut line, thread).and_then(|()| origin.write(&mut line));
        }
        let _ = own(&mut line);
        if let (Some(thread), Some(origin), Some(address)) = (&thread, origin, accessed) {
            let _ = write_places(&mut line, thread, origin, address);
        }
        line.push_str("}\n");
        host.output(Channel::Trace, line.as_bytes());
        host.resume_clock();
    }

    fn origin(&self, thread: &Thread) -> Origin {
        match self.host.entered_with() {
            Some(regs) => Origin::of(regs.rip, regs.orig_rax),
            None if thread.id() == PROGRAM => Origin::Exec,
            None => Origin::Nothing,
        }
    }
}

impl TraceSink for Trace {
    fn event(&self, event: &Event) {
        let accessed = match event {
            // Faults are reported without a lock held. For other events, the address space may be locked, so its areas
            // cannot be looked up.
            Event::Fault { address, .. } => Some(address.as_u64()),
            Event::Map { .. }
            | Event::Unmap { .. }
            | Event::Protect { .. }
            | Event::Remap { .. }
            | Event::Fork { .. }
            | Event::Flush { .. } => None,
        };
        let own = |line: &mut String| {
            let mut text = String::new();
            event.write_json(&mut text)?;
            let fields = text.strip_prefix('{');
            let fields = fields.and_then(|text| text.strip_suffix('}'));
            line.write_str(fields.unwrap_or_default())
        };
        self.line(own, accessed);
    }
}

impl FaultSink for Trace {
    fn faulted_in(&self, pages: FaultedIn) {
        self.faults.faulted_in(pages);
        let FaultedIn {
            minor,
            major,
            failed,
            ..
        } = pages;
        let own = |line: &mut String| {
            write!(
                line,
                r#""event":"fault_in","minor":{minor},"major":{major},"failed":{failed}"#
            )
        };
        self.line(own, None);
    }
}

/// Writes the ids of a thread and of its process, and its name, each followed by a comma.
fn write_thread(line: &mut String, thread: &Thread) -> fmt::Result {
    let (process, id) = (thread.process.id, thread.id());
    write!(line, r#""process":{process},"thread":{id},"name":""#)?;
    let name = thread.name();
    let length = name.iter().position(|byte| *byte == 0);
    for byte in &name[..length.unwrap_or(name.len())] {
        // A name is bytes in an unknown encoding: read them as Latin-1.
        Escaped(line).write_char(char::from(*byte))?;
    }
    line.write_str(r#"","#)
}

/// Writes the areas that contain the accessed address and the instruction, each preceded by a comma.
fn write_places(line: &mut String, thread: &Thread, origin: Origin, address: u64) -> fmt::Result {
    let Some(space) = thread.process.space() else {
        return Ok(());
    };
    if let Some(area) = area_at(&space, address) {
        line.write_str(r#","area_is":"#)?;
        write_area(line, &area)?;
    }
    let code = origin.instruction();
    if let Some(area) = code.and_then(|address| area_at(&space, address)) {
        let (start, end) = (area.line().start, area.line().end);
        write!(line, r#","code":["{start:#x}","{end:#x}"],"code_is":"#)?;
        write_area(line, &area)?;
    }
    Ok(())
}

/// Writes the name of an area as in `/proc/PID/maps`, and its offset in the file.
fn write_area(line: &mut String, area: &Noted) -> fmt::Result {
    line.write_str(r#"{"name":""#)?;
    area.write_name(&mut Escaped(line))?;
    write!(line, r#"","offset":"{:#x}"}}"#, area.line().offset)
}

/// Writes text into a string of JSON.
struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|letter| self.write_char(letter))
    }

    fn write_char(&mut self, letter: char) -> fmt::Result {
        match letter {
            '"' | '\\' => write!(self.0, "\\{letter}"),
            '\0'..='\x1f' => write!(self.0, "\\u{:04x}", u32::from(letter)),
            _ => self.0.write_char(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_call_is_at_its_instruction() {
        for (rip, call, expected, text) in [
            (
                0x401_136,
                NO_CALL,
                Origin::Instruction(0x401_136),
                r#""instruction":"0x401136","#,
            ),
            (
                0x401_138,
                0,
                Origin::Call(0, 0x401_136),
                r#""instruction":"0x401136","call":"read","#,
            ),
            (
                0x401_138,
                9999,
                Origin::Call(9999, 0x401_136),
                r#""instruction":"0x401136","call":"syscall_9999","#,
            ),
            (0x401_138, 59, Origin::Exec, r#""call":"execve","#),
            (0x401_138, 322, Origin::Exec, r#""call":"execve","#),
        ] {
            let origin = Origin::of(rip, call);
            assert_eq!(origin, expected);
            let mut line = String::new();
            origin.write(&mut line).unwrap();
            assert_eq!(line, text);
        }
    }

    #[test]
    fn names_are_strings_of_json() {
        let mut line = String::new();
        write!(Escaped(&mut line), "/a \"b\"\\\n\u{e9}").unwrap();
        assert_eq!(line, "/a \\\"b\\\"\\\\\\u000a\u{e9}");
    }
}
