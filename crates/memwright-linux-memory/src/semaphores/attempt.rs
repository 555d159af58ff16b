//! Applies a list of operations to the values of a semaphore set: all of them or none (Linux 7.2 `ipc/sem.c`,
//! `perform_atomic_semop`).

/// The maximum value of a semaphore (`SEMVMX`). It is also the maximum adjustment on exit (`SEMAEM`).
pub const MOST_VALUE: i32 = 32767;

/// One operation of a list of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The index of the semaphore.
    pub number: u16,
    /// The number to add to the value. 0 means to wait until the value is 0.
    pub add: i16,
    /// Whether the call fails if this operation would have to wait (`IPC_NOWAIT`).
    pub never_waits: bool,
    /// Whether the operation is undone when the process exits (`SEM_UNDO`).
    pub undone: bool,
}

/// The reason why a list of operations was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The operation at this index must wait.
    Waits(usize),
    /// A value, or an adjustment on exit, would leave its range.
    OutOfRange,
}

/// Applies all operations to `values`, or none of them. `undo` contains the adjustments that the exit of the process
/// makes to the values. Only operations with `undone` use `undo`, so it may be shorter than `values` if no operation
/// has `undone`.
///
/// # Errors
/// One of [`Refusal`]. `values` and `undo` are then unchanged.
///
/// # Panics
/// If an operation refers to a semaphore that does not exist.
pub fn attempt(
    values: &mut [i32],
    undo: &mut [i32],
    operations: &[Operation],
) -> Result<(), Refusal> {
    for (place, operation) in operations.iter().enumerate() {
        if let Err(refusal) = perform(values, undo, operation, place) {
            for done in operations[..place].iter().rev() {
                apply(values, undo, done, -i32::from(done.add));
            }
            return Err(refusal);
        }
    }
    Ok(())
}

fn perform(
    values: &mut [i32],
    undo: &mut [i32],
    operation: &Operation,
    place: usize,
) -> Result<(), Refusal> {
    let number = usize::from(operation.number);
    let add = i32::from(operation.add);
    let result = values[number] + add;
    if result < 0 || add == 0 && result != 0 {
        return Err(Refusal::Waits(place));
    }
    let undone = operation.undone.then(|| undo[number] - add);
    let fits = |undone: i32| (-MOST_VALUE - 1..=MOST_VALUE).contains(&undone);
    if result > MOST_VALUE || !undone.is_none_or(fits) {
        return Err(Refusal::OutOfRange);
    }
    apply(values, undo, operation, add);
    Ok(())
}

fn apply(values: &mut [i32], undo: &mut [i32], operation: &Operation, add: i32) {
    let number = usize::from(operation.number);
    values[number] += add;
    if operation.undone {
        undo[number] -= add;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of two semaphores, or the adjustments of these values when the process exits.
    type Two = [i32; 2];
    /// The values and the adjustments after the operations, or the reason why no operation was applied.
    type Outcome = Result<(Two, Two), Refusal>;

    fn operation(number: u16, add: i16, undone: bool) -> Operation {
        Operation {
            number,
            add,
            never_waits: false,
            undone,
        }
    }

    #[test]
    fn all_is_done_or_nothing() {
        let plain = |number, add| operation(number, add, false);
        let undone = |number, add| operation(number, add, true);
        #[rustfmt::skip]
        let rows: &[(&str, Two, Two, &[Operation], Outcome)] = &[
            ("up",                     [0, 0], [0, 0], &[plain(0, 2)],                Ok(([2, 0], [0, 0]))),
            ("down",                   [2, 0], [0, 0], &[plain(0, -2)],               Ok(([0, 0], [0, 0]))),
            ("down below nothing",     [1, 0], [0, 0], &[plain(0, -2)],               Err(Refusal::Waits(0))),
            ("wait for nothing",       [0, 1], [0, 0], &[plain(0, 0)],                Ok(([0, 1], [0, 0]))),
            ("wait for less",          [0, 1], [0, 0], &[plain(1, 0)],                Err(Refusal::Waits(0))),
            ("the second waits",       [1, 0], [0, 0], &[plain(0, -1), plain(1, -1)], Err(Refusal::Waits(1))),
            ("in order: down and 0",   [1, 0], [0, 0], &[plain(0, -1), plain(0, 0)],  Ok(([0, 0], [0, 0]))),
            ("in order: 0 and down",   [1, 0], [0, 0], &[plain(0, 0), plain(0, -1)],  Err(Refusal::Waits(0))),
            ("too much",               [1, 0], [0, 0], &[plain(0, 32767)],            Err(Refusal::OutOfRange)),
            ("undone",                 [3, 0], [1, 0], &[undone(0, -2)],              Ok(([1, 0], [3, 0]))),
            ("undone back",            [3, 0], [2, 0], &[undone(0, 2)],               Ok(([5, 0], [0, 0]))),
            ("too much to undo",       [5, 0], [32766, 0], &[undone(0, -2)],          Err(Refusal::OutOfRange)),
            ("undone, then it waits",  [5, 0], [0, 0], &[undone(0, -2), plain(1, -1)], Err(Refusal::Waits(1))),
        ];
        for (name, values, undo, operations, expected) in rows {
            let (mut now, mut later) = (*values, *undo);
            let result = attempt(&mut now, &mut later, operations);
            match expected {
                Ok(after) => assert_eq!((result, (now, later)), (Ok(()), *after), "{name}"),
                Err(refusal) => {
                    assert_eq!(result, Err(*refusal), "{name}");
                    assert_eq!((now, later), (*values, *undo), "{name}");
                }
            }
        }
    }
}
