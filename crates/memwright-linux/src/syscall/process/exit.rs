//! `exit` and `exit_group`.

use crate::{
    context::{Arguments, CallResult, Context},
    lifecycle::end_group,
    process::ExitStatus,
    syscall::call::int,
};

/// Implements `exit`: terminates the calling thread, and the process if it is the last thread.
pub fn exit(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    context.thread.end_alone(int(arguments[0]));
    Ok(0)
}

/// Implements `exit_group`.
pub fn exit_group(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let status = ExitStatus::Exited(int(arguments[0]));
    end_group(context.process(), status);
    Ok(0)
}
