//! Processes and threads.

mod alarm;
mod cgroup;
mod cgroup_charge;
mod cgroup_tree;
mod counted;
mod cpu_alarm;
mod cpu_clock;
mod cpu_deadline;
mod cpu_limit;
mod cpu_timers;
mod cpu_usage;
mod futex_wait;
mod image;
mod interval_timers;
mod membership;
mod placement;
mod posix_timer;
mod posix_timer_state;
mod record;
mod relations;
mod report;
mod restartable;
mod roster;
mod send;
mod signals;
mod status;
mod stepping;
mod tasks;
mod thread;
mod traced;
mod tracees;
mod tracing;
mod usage;

pub use alarm::Alarm;
pub use cgroup::{Cgroup, Membership};
pub use cgroup::{Event, Events, NO_MOST, PathError, UNLIMITED, faults};
pub use cgroup_charge::{CountedPages, Walked};

pub use counted::Counted;
pub use cpu_alarm::CpuAlarms;
pub use cpu_clock::CpuClock;
pub use cpu_clock::wait_for;
pub use futex_wait::{FutexKey, FutexPlace, FutexPosition, Scope, WaitRequest};
pub use image::{Heap, Image, ImageAddresses};
pub use placement::ThreadPlacement;
pub use posix_timer_state::{Notice, PosixTimer, PosixTimers, TimerClock};
pub use record::{FIXED_ADDRESSES, Parts, Process};
pub use restartable::{
    Change as RegistrationChange, FEATURE_SIZE as RESTARTABLE_SIZE,
    FIRST_SIZE as RESTARTABLE_ALIGNMENT, Registration, Section,
};
pub use send::{
    ChangeNotice, Sent, begin_end, end_others, ignores_ended, report_change, send_change,
    send_timer_signal, waits_for_ended, wake_parent,
};
pub use send::{
    force_default, force_fault, kill_process, queue, send_to_group, send_to_process, send_to_thread,
};
pub use signals::{Signals, Stop, ThreadSignals};
pub use status::{Change, ExitStatus, Life};
pub use stepping::Stepping;
pub use tasks::Among;
pub use tasks::{END as ID_END, Member, PROGRAM, REAPER, TaskTable, Tasks};
pub use thread::{RestartBlock, Start, TIMER_SLACK, Thread};
pub use tracees::{Ended, Tracees, is_visible};
pub use tracing::{AtCalls, Report, Resume, Standing, TraceOptions, Tracer, Tracing};
pub use usage::peak_resident_kib;
pub use usage::{ResourceUsage, TICKS_PER_SECOND, ticks};
