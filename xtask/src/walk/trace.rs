//! Runs a program under `ptrace` and records the calls and returns of its functions.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use nix::libc::user_regs_struct;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::functions::Functions;

/// The instruction of a breakpoint, `int3`.
const BREAKPOINT: u8 = 0xcc;

/// A call or a return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The function with this index was called.
    Call(usize),
    /// The innermost open call returned.
    Return,
}

/// Runs `program` and returns the calls and returns of `functions`. Recording begins with the first call of a function
/// for whose path `begins` returns true, and ends with its return. If a function that is not in `functions`, such as
/// one of the standard library, makes a call, the caller of that function appears as the caller.
///
/// # Errors
/// If the program cannot be traced, fails, or calls no such function.
pub fn events(
    program: &Path,
    arguments: &[String],
    functions: &Functions,
    begins: fn(&str) -> bool,
) -> Result<Vec<Event>> {
    let mut traced = Traced::start(program, arguments)?;
    for (index, function) in functions.all().iter().enumerate() {
        if begins(&function.path) {
            traced.plant(traced.base + function.address, Some(index))?;
        }
    }
    traced.follow(functions)
}

/// Runs `program`, which has no dynamic linker, and returns the number of instructions of the second call of the function
/// at `function`. An instruction that repeats itself, such as REP STOS, counts once. `relocations` are the words that a
/// loader would write: each has an address, and a value to which the address of the image is added.
///
/// # Errors
/// If the program cannot be traced, or does not call the function twice.
pub fn instructions(program: &Path, function: u64, relocations: &[(u64, u64)]) -> Result<u64> {
    let mut traced = Traced::start(program, &[])?;
    for (place, value) in relocations {
        let word = (traced.base + value).to_le_bytes();
        traced.memory.write_all_at(&word, traced.base + place)?;
    }
    let start = traced.base + function;
    traced.plant(start, None)?;
    let byte = traced.breakpoints[&start].byte;
    let mut registers = traced.run_to_breakpoint()?;
    registers.rip = start;
    traced.step_over(start, byte, registers)?;
    registers = traced.run_to_breakpoint()?;
    registers.rip = start;
    traced.memory.write_all_at(&[byte], start)?;
    ptrace::setregs(traced.id, registers)?;
    let end = (traced.word(registers.rsp)?, registers.rsp + 8);
    let mut count = 0;
    loop {
        ptrace::step(traced.id, None)?;
        let stop = waitpid(traced.id, None)?;
        let stepped = matches!(stop, WaitStatus::Stopped(_, Signal::SIGTRAP));
        ensure!(stepped, "a step ended otherwise: {stop:?}");
        let now = ptrace::getregs(traced.id)?;
        count += u64::from(now.rip != registers.rip);
        if (now.rip, now.rsp) == end {
            return Ok(count);
        }
        registers = now;
    }
}

/// A breakpoint in the traced process.
#[derive(Clone, Copy)]
struct Breakpoint {
    /// The byte that the breakpoint replaces.
    byte: u8,
    /// The index of the function that begins at the address; `None` if the address is only a return address.
    function: Option<usize>,
}

/// A call that has not returned.
struct Frame {
    returns_to: u64,
    /// The value of the stack pointer after the call has returned.
    stack: u64,
}

/// A traced process. Dropping it kills the process.
struct Traced {
    child: Child,
    id: Pid,
    memory: File,
    /// The address at which the image is loaded.
    base: u64,
    breakpoints: HashMap<u64, Breakpoint>,
}

impl Drop for Traced {
    fn drop(&mut self) {
        // `kill` and `wait` fail if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Traced {
    /// Starts the program and stops it before its first instruction. The process starts as a shell that stops itself.
    /// The tracer attaches to the shell, which then executes the program.
    fn start(program: &Path, arguments: &[String]) -> Result<Self> {
        let mut command = Command::new("sh");
        command
            .args(["-c", "kill -STOP $$; exec \"$@\"", "sh"])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let child = command.spawn().context("cannot start sh")?;
        let id = Pid::from_raw(child.id().try_into()?);
        let stop = waitpid(id, Some(WaitPidFlag::WUNTRACED))?;
        ensure!(matches!(stop, WaitStatus::Stopped(..)), "sh: {stop:?}");
        let options = Options::PTRACE_O_TRACEEXEC | Options::PTRACE_O_EXITKILL;
        ptrace::seize(id, options).context("ptrace is not permitted")?;
        kill(id, Signal::SIGCONT)?;
        run_to_exec(id)?;
        let mut memory = File::options();
        let memory = memory
            .read(true)
            .write(true)
            .open(format!("/proc/{id}/mem"))?;
        let base = base(&fs::read_to_string(format!("/proc/{id}/maps"))?, program)?;
        Ok(Self {
            child,
            id,
            memory,
            base,
            breakpoints: HashMap::new(),
        })
    }

    /// Sets a breakpoint at `address`, unless there is one already.
    fn plant(&mut self, address: u64, function: Option<usize>) -> Result<()> {
        if self.breakpoints.contains_key(&address) {
            return Ok(());
        }
        let mut byte = [0];
        self.memory.read_exact_at(&mut byte, address)?;
        self.memory.write_all_at(&[BREAKPOINT], address)?;
        let [byte] = byte;
        let breakpoint = Breakpoint { byte, function };
        self.breakpoints.insert(address, breakpoint);
        Ok(())
    }

    /// Runs the program to the end of the operation, and records calls and returns. At each call, sets a breakpoint at
    /// the return address.
    fn follow(&mut self, functions: &Functions) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        let mut frames: Vec<Frame> = Vec::new();
        loop {
            let mut registers = self.run_to_breakpoint()?;
            let address = registers.rip - 1;
            let Some(&breakpoint) = self.breakpoints.get(&address) else {
                bail!("the program stopped at {address:#x}, where no breakpoint is");
            };
            // Also compare the stack pointer. A jump, or the return of another call in a recursion, can reach the same
            // address.
            let returns =
                |frame: &Frame| (frame.returns_to, frame.stack) == (address, registers.rsp);
            if frames.last().is_some_and(returns) {
                frames.pop();
                events.push(Event::Return);
                if frames.is_empty() {
                    return Ok(events);
                }
            }
            if let Some(function) = breakpoint.function {
                if frames.is_empty() {
                    self.plant_all(functions)?;
                }
                let returns_to = self.word(registers.rsp)?;
                self.plant(returns_to, None)?;
                frames.push(Frame {
                    returns_to,
                    stack: registers.rsp + 8,
                });
                events.push(Event::Call(function));
            }
            registers.rip = address;
            self.step_over(address, breakpoint.byte, registers)?;
        }
    }

    /// Sets a breakpoint at each function.
    fn plant_all(&mut self, functions: &Functions) -> Result<()> {
        for (index, function) in functions.all().iter().enumerate() {
            self.plant(self.base + function.address, Some(index))?;
        }
        Ok(())
    }

    fn run_to_breakpoint(&self) -> Result<user_regs_struct> {
        ptrace::cont(self.id, None)?;
        match waitpid(self.id, None)? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => Ok(ptrace::getregs(self.id)?),
            status => bail!("the program ended before the operation: {status:?}"),
        }
    }

    fn word(&self, address: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, address)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Executes the instruction that the breakpoint at `address` replaces.
    fn step_over(&self, address: u64, byte: u8, registers: user_regs_struct) -> Result<()> {
        ptrace::setregs(self.id, registers)?;
        self.memory.write_all_at(&[byte], address)?;
        ptrace::step(self.id, None)?;
        let stop = waitpid(self.id, None)?;
        let stepped = matches!(stop, WaitStatus::Stopped(_, Signal::SIGTRAP));
        ensure!(stepped, "a step ended otherwise: {stop:?}");
        self.memory.write_all_at(&[BREAKPOINT], address)?;
        Ok(())
    }
}

/// Continues a traced process until it has executed another program.
fn run_to_exec(id: Pid) -> Result<()> {
    loop {
        match waitpid(id, None)? {
            WaitStatus::PtraceEvent(_, _, event)
                if event == ptrace::Event::PTRACE_EVENT_EXEC as i32 =>
            {
                return Ok(());
            }
            WaitStatus::PtraceEvent(..) | WaitStatus::Stopped(..) => ptrace::cont(id, None)?,
            status => bail!("sh: {status:?}"),
        }
    }
}

/// Returns the address at which a program is loaded, from the text of `/proc/PID/maps`.
fn base(maps: &str, program: &Path) -> Result<u64> {
    let name = program.to_string_lossy();
    let first = maps.lines().find(|line| line.ends_with(name.as_ref()));
    let address = first.and_then(|line| line.split_once('-'));
    let (address, _) = address.context("the program is not mapped")?;
    Ok(u64::from_str_radix(address, 16)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;
    use crate::walk::calls::calls;
    use crate::walk::program::FLAGS;
    use crate::walk::stays::Walk;

    /// The source files of a test program. All functions except one are longer than accessors.
    const FILES: &[(&str, &str)] = &[
        (
            "main.rs",
            "
            mod low;
            mod other;
            fn operation(count: u32) -> u32 {
                let small = low::accessor(count);
                let sum = (0..small)
                    .map(|index| other::add(index, 1))
                    .sum::<u32>();
                let again = other::add(sum, 2);
                low::deep(again)
            }
            fn main() {
                low::deep(1);
                println!(\"{}\", operation(3));
                other::add(1, 2);
            }
            ",
        ),
        (
            "low.rs",
            "
            pub fn accessor(number: u32) -> u32 {
                number
            }
            pub fn deep(number: u32) -> u32 {
                if number > 1 {
                    return deep(number / 2);
                }
                let result = crate::other::new(number);
                result + number
            }
            ",
        ),
        (
            "other.rs",
            "
            #[inline(always)]
            pub fn add(one: u32, other: u32) -> u32 {
                let sum = one + other;
                let sum = sum + 1;
                let sum = sum - 1;
                sum
            }
            pub fn new(number: u32) -> u32 {
                let one = number + 1;
                let two = one + 1;
                let three = two + 1;
                one + two + three
            }
            ",
        ),
    ];

    /// A program without libraries. The second call of `measured` executes five instructions.
    #[cfg(target_arch = "x86_64")]
    const BARE: &str = "
        #![no_std]
        #![no_main]
        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
            loop {}
        }
        core::arch::global_asm!(
            \".globl _start, measured\",
            \".type measured, @function\",
            \"_start: mov ebx, 2\",
            \"call measured\",
            \"mov ebx, 64\",
            \"call measured\",
            \"2: jmp 2b\",
            \"measured: mov ecx, ebx\",
            \"lea rdi, [rsp - 128]\",
            \"xor eax, eax\",
            \"rep stosb\",
            \"ret\",
        );
    ";

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_repeated_instruction_counts_once() {
        use object::{Object, ObjectSymbol};

        let root = shell::target_folder().join("count-fixture");
        fs::create_dir_all(&root).expect("a folder");
        let (source, program) = (root.join("main.rs"), root.join("fixture"));
        fs::write(&source, BARE).expect("written");
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc
            .args(["--crate-name", "fixture", "--edition", "2024"])
            .args(["-Cpanic=abort", "-Clink-arg=-nostartfiles"])
            .args(["-Clink-arg=-nostdlib", "-Clink-arg=-static-pie"])
            .arg("-o")
            .arg(&program)
            .arg(&source);
        shell::run(&mut rustc).expect("it compiles");
        let bytes = fs::read(&program).expect("a program");
        let file = object::File::parse(&*bytes).expect("an ELF file");
        let measured = file.symbol_by_name("measured").expect("a symbol");
        let count = instructions(&program, measured.address(), &[]);
        assert_eq!(count.expect("a count"), 5);
    }

    #[test]
    fn a_walk_is_that_of_the_calls_that_a_program_makes() {
        let root = shell::target_folder().join("walk-fixture");
        let source = root.join("crates/fixture/src");
        fs::create_dir_all(&source).expect("a folder");
        for (name, text) in FILES {
            fs::write(source.join(name), text).expect("written");
        }
        let program = root.join("fixture");
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc
            .args(["--crate-name", "fixture", "--edition", "2024", "-g", "-o"])
            .arg(&program);
        shell::run(rustc.args(FLAGS).arg(source.join("main.rs"))).expect("it compiles");
        let functions = Functions::read(&program, &root).expect("symbols");
        let events = events(&program, &[], &functions, |path| {
            path == "fixture::operation"
        });
        let walk = Walk::of(&calls(&events.expect("a trace"), functions.all()));
        let stays: Vec<String> = walk
            .stays
            .iter()
            .map(|stay| format!("{} {}", stay.file, stay.functions.join(" ")))
            .collect();
        let [main, low, other] =
            ["main", "low", "other"].map(|name| format!("crates/fixture/src/{name}.rs"));
        let expected = [
            format!("{main} operation"),
            format!("{other} add"),
            format!("{main} operation"),
            format!("{low} deep"),
            format!("{other} new"),
            format!("{low} deep"),
            format!("{main} operation"),
        ];
        assert_eq!(stays, expected);
    }

    #[test]
    fn the_address_of_a_program_is_that_of_its_first_mapping() {
        let maps = "\
            7f00-7f10 r--p 00000000 00:00 0 /lib/libc.so\n\
            5500-5510 r--p 00000000 00:00 0 /a/walk\n\
            5510-5520 r-xp 00010000 00:00 0 /a/walk\n";
        for (program, expected) in [("/a/walk", Some(0x5500)), ("/a/other", None)] {
            assert_eq!(base(maps, Path::new(program)).ok(), expected, "{program}");
        }
    }
}
