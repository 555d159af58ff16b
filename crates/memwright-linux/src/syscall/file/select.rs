//! The `select` and `pselect6` system calls.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::{
        call::{Kind, SystemCall, handler, real},
        file::poll::{
            Watch, Watches, deadline_after, finish, finish_timespec, timeout_argument, wait,
        },
        process::signal::with_signal_mask,
    },
};
use alloc::vec::Vec;
use linux_raw_sys::general as raw;
use memwright_linux_abi::{abi::Timeval, errno::Errno};
use memwright_linux_base::{paged::Paged, sync::PausePoints};
use memwright_linux_memory::oom::OomKiller;
use memwright_linux_vfs::user::UserMemory;
use memwright_table::TryPush;

/// Number of descriptors that are handled between two scheduling points.
const NUMBERS: u32 = 256;

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_select,
        "select",
        &[Kind::Int, Kind::Hex, Kind::Hex, Kind::Hex, Kind::InOut(16)],
        handler!(select, oom),
    ),
    real(
        raw::__NR_pselect6,
        "pselect6",
        &[
            Kind::Int,
            Kind::Hex,
            Kind::Hex,
            Kind::Hex,
            Kind::InOut(16),
            Kind::In(16),
        ],
        handler!(pselect6, oom),
    ),
];

/// The events that each of the three sets polls, in the order of the sets (`fs/select.c` of Linux 7.2).
const WANTED: [u16; 3] = [
    (raw::POLLRDNORM | raw::POLLRDBAND | raw::POLLIN | raw::POLLHUP | raw::POLLERR) as u16,
    (raw::POLLWRBAND | raw::POLLWRNORM | raw::POLLOUT | raw::POLLERR) as u16,
    raw::POLLPRI as u16,
];

/// A set of descriptors, as a bit map of 64-bit words.
type Set = Vec<u64>;

fn read_set(user: UserMemory<'_>, address: u64, words: usize) -> Result<Option<Set>, Errno> {
    if address == 0 {
        return Ok(None);
    }
    let mut set = empty_set(words)?;
    for (index, word) in set.iter_mut().enumerate() {
        *word = user.read_value(address.wrapping_add(index as u64 * 8))?;
    }
    Ok(Some(set))
}

/// Creates an empty set of `words` words. A set for one million descriptors, the maximum, takes 128 KiB.
fn empty_set(words: usize) -> Result<Set, Errno> {
    let mut set = Set::new();
    set.try_fill(words, 0).map_err(|_| Errno::ENOMEM)?;
    Ok(set)
}

fn contains(set: Option<&Set>, number: usize) -> bool {
    set.is_some_and(|set| set[number / 64] & (1 << (number % 64)) != 0)
}

fn select_until(
    current: &Current<'_>,
    oom: &OomKiller,
    arguments: &Arguments,
    deadline: Option<u64>,
) -> CallResult {
    let &[count, read, write, except, ..] = arguments;
    current.check_heap()?;
    let count = usize::try_from(count as i32).map_err(|_| Errno::EINVAL)?;
    let count = count.min(current.files().size());
    let words = count.div_ceil(64);
    let addresses = [read, write, except];
    let mut sets: [Option<Set>; 3] = [None, None, None];
    for (set, address) in sets.iter_mut().zip(addresses) {
        *set = read_set(current.user, address, words)?;
    }
    let files = current.files();
    let mut watches = Watches::default();
    let mut numbers = Paged::new();
    let mut points = PausePoints::every(NUMBERS);
    for number in 0..count {
        points.round();
        let mut wanted = 0_u16;
        for (set, bits) in sets.iter().zip(WANTED) {
            if contains(set.as_ref(), number) {
                wanted |= bits;
            }
        }
        if wanted != 0 {
            let open = Some(files.get_usable(number as i32)?);
            let watch = Watch::new(open, wanted);
            watches.add(watch)?;
            numbers.try_push(number).map_err(|_| Errno::ENOMEM)?;
        }
    }
    let mut results = [empty_set(words)?, empty_set(words)?, empty_set(words)?];
    let mut total = 0;
    wait(current, oom, &watches, deadline)?;
    for (&number, watch) in numbers.iter().zip(watches.iter()) {
        points.round();
        let found = watch.found();
        for ((set, bits), result) in sets.iter().zip(WANTED).zip(&mut results) {
            if found & bits != 0 && contains(set.as_ref(), number) {
                result[number / 64] |= 1 << (number % 64);
                total += 1;
            }
        }
    }
    for ((set, address), result) in sets.iter().zip(addresses).zip(&results) {
        if set.is_some() {
            for (index, word) in result.iter().enumerate() {
                points.round();
                current.user.write_value(address + index as u64 * 8, word)?;
            }
        }
    }
    Ok(total)
}

fn select(current: &Current<'_>, oom: &OomKiller, arguments: &Arguments) -> CallResult {
    let timeout = arguments[4];
    let deadline = match current.user.read_optional::<Timeval>(timeout)? {
        None => None,
        Some(time) => {
            if time.seconds < 0 || time.microseconds < 0 {
                return Err(Errno::EINVAL);
            }
            let seconds = (time.seconds as u64).saturating_mul(memwright_linux_abi::abi::SECOND);
            let rest = (time.microseconds as u64).saturating_mul(1000);
            deadline_after(current, seconds.saturating_add(rest))
        }
    };
    let result = select_until(current, oom, arguments, deadline);
    finish(current, result, deadline, |left| {
        current
            .user
            .write_optional(timeout, &Timeval::from_nanoseconds(left))
    })
}

fn pselect6(current: &Current<'_>, oom: &OomKiller, arguments: &Arguments) -> CallResult {
    let &[_, _, _, _, timeout, mask] = arguments;
    let deadline = timeout_argument(current, timeout)?;
    // The last argument points to the address and the size of the signal mask.
    let [address, size] = current
        .user
        .read_optional::<[u64; 2]>(mask)?
        .unwrap_or_default();
    let result = with_signal_mask(current, address, size, || {
        select_until(current, oom, arguments, deadline)
    });
    finish_timespec(current, result, deadline, timeout)
}
