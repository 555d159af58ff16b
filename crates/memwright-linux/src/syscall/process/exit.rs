//! `exit` and `exit_group`.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    lifecycle::end_group,
    syscall::call::int,
};
use memwright_linux_tasks::process::ExitStatus;

/// Implements `exit`: terminates the calling thread. The process exits with its last thread.
pub fn exit(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    current.thread.end_alone(int(arguments[0]));
    Ok(0)
}

/// Implements `exit_group`.
pub fn exit_group(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let status = ExitStatus::Exited(int(arguments[0]));
    end_group(current.process(), status);
    Ok(0)
}
