//! `arch_prctl` and `prctl`.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    thread_registers::ThreadRegisters,
};
use core::sync::atomic::Ordering;
use linux_raw_sys::prctl;
use memwright_linux_abi::{
    arch::x86_64::uapi::{ARCH_GET_FS, ARCH_GET_GS, ARCH_SET_FS, ARCH_SET_GS},
    errno::Errno,
    signal::Signal,
};
use memwright_linux_memory::merge_scan::MergeScan;
use memwright_linux_tasks::process::{TIMER_SLACK, Tasks};
use memwright_linux_vfs::user::USER_END;

/// Implements `arch_prctl`.
pub fn arch_prctl(
    current: &Current<'_>,
    registers: &ThreadRegisters<'_>,
    arguments: &Arguments,
) -> CallResult {
    let [operation, address, ..] = *arguments;
    registers.store_bases();
    match operation {
        ARCH_SET_FS | ARCH_SET_GS if address >= USER_END => Err(Errno::EPERM),
        ARCH_SET_FS | ARCH_SET_GS => {
            let mut state = *registers.state();
            if operation == ARCH_SET_FS {
                state.fs_base = address;
            } else {
                state.gs_base = address;
            }
            registers.replace_state(state);
            Ok(0)
        }
        ARCH_GET_FS => {
            let base = registers.state().fs_base;
            current.user.write_value(address, &base).map(|()| 0)
        }
        ARCH_GET_GS => {
            let base = registers.state().gs_base;
            current.user.write_value(address, &base).map(|()| 0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Implements `prctl`: thread names, dumpability, the parent-death signal, child subreapers, timer slack, memory
/// settings and capabilities.
pub fn prctl(
    current: &Current<'_>,
    tasks: &Tasks,
    merge_scan: &MergeScan,
    arguments: &Arguments,
) -> CallResult {
    let [operation, value, ..] = *arguments;
    let process = current.process();
    match operation as u32 {
        prctl::PR_SET_NAME => {
            let mut name = [0; 16];
            let text = current.user.read_string(value, 16, Errno::E2BIG);
            match text {
                Ok(text) => name[..text.len()].copy_from_slice(&text),
                // Longer names are truncated.
                Err(Errno::E2BIG) => current.user.read_bytes(value, &mut name)?,
                Err(error) => return Err(error),
            }
            current.thread.set_name(&name[..15]);
            Ok(0)
        }
        prctl::PR_GET_NAME => current
            .user
            .write_bytes(value, &current.thread.name())
            .map(|()| 0),
        prctl::PR_SET_PDEATHSIG => {
            if value != 0 && Signal::new(value).is_none() {
                return Err(Errno::EINVAL);
            }
            process
                .parent_death_signal
                .store(value as u8, Ordering::SeqCst);
            Ok(0)
        }
        prctl::PR_GET_PDEATHSIG => {
            let signal = i32::from(process.parent_death_signal.load(Ordering::SeqCst));
            current.user.write_value(value, &signal).map(|()| 0)
        }
        prctl::PR_GET_DUMPABLE => Ok(process.dumpable.load(Ordering::SeqCst).into()),
        prctl::PR_SET_DUMPABLE if value <= 1 => {
            process.dumpable.store(value as u8, Ordering::SeqCst);
            Ok(0)
        }
        prctl::PR_GET_SECCOMP => Ok(0),
        prctl::PR_SET_CHILD_SUBREAPER => {
            tasks.lock().set_subreaper(process, value != 0);
            Ok(0)
        }
        prctl::PR_GET_CHILD_SUBREAPER => {
            let adopts = i32::from(process.adopts.load(Ordering::SeqCst));
            current.user.write_value(value, &adopts).map(|()| 0)
        }
        prctl::PR_GET_TID_ADDRESS => {
            let word = current.thread.clear_child_tid.load(Ordering::Relaxed);
            current.user.write_value(value, &word).map(|()| 0)
        }
        prctl::PR_SET_MDWE => crate::syscall::memory::set_exec_gain(current, arguments),
        prctl::PR_GET_MDWE => crate::syscall::memory::get_exec_gain(current, arguments),
        prctl::PR_SET_THP_DISABLE => crate::syscall::memory::set_huge_refusal(current, arguments),
        prctl::PR_GET_THP_DISABLE => crate::syscall::memory::get_huge_refusal(current, arguments),
        prctl::PR_SET_MEMORY_MERGE => {
            crate::syscall::memory::set_merging(current, merge_scan, arguments)
        }
        prctl::PR_SET_VMA => crate::syscall::memory::set_area_attribute(current, arguments),
        prctl::PR_GET_MEMORY_MERGE => crate::syscall::memory::get_merging(current, arguments),
        prctl::PR_GET_TIMERSLACK => Ok(current.thread.timer_slack.load(Ordering::Relaxed)),
        prctl::PR_SET_TIMERSLACK => {
            let slack = if (value as i64) <= 0 {
                TIMER_SLACK
            } else {
                value
            };
            current.thread.timer_slack.store(slack, Ordering::Relaxed);
            Ok(0)
        }
        _ => {
            let [_, rest @ .., _] = *arguments;
            let mut credentials = process.identity.credentials.lock();
            let result = credentials.capabilities.control(operation as u32, rest);
            result.unwrap_or(Err(Errno::EINVAL))
        }
    }
}
