//! Transfers of pages to and from devices.

use alloc::sync::Arc;
use memwright_table::sync::Threads;
use memwright_table::{Frame, Frames, Machine};

use crate::swap::Swap;
use crate::swap::device::{DeviceError, Direction, Submission, SwapDevice, Ticket, Transfer};
use crate::swap::place::Place;

/// The state of a transfer.
enum State<M: Machine> {
    /// The transfer was not begun, or its result was already returned.
    Nothing,
    Over(Result<(), DeviceError>),
    Pending(Arc<dyn SwapDevice<M>>, Ticket),
}

/// A group of up to `MOST` transfers, each with a number. They are begun together and finished one after another. The
/// caller must finish each of them, because the device may stay busy until all are finished.
pub(crate) struct Transfers<M: Machine, const MOST: usize> {
    states: [State<M>; MOST],
    /// The device of the last transfer. Most transfers of a group use the same device.
    last: Option<(usize, Arc<dyn SwapDevice<M>>)>,
    /// Whether a device has returned `Submission::Pending` for one of the transfers.
    is_pending: bool,
}

impl<M: Machine, const MOST: usize> Transfers<M, MOST> {
    /// No transfer has begun.
    pub(crate) const NONE: Self = Self {
        states: [const { State::Nothing }; MOST],
        last: None,
        is_pending: false,
    };

    /// Begins transfer `number`. While the device is busy, finishes earlier transfers of this group, one at a time, and
    /// retries.
    pub(crate) fn begin(
        &mut self,
        swap: &Swap<M>,
        frames: &Frames<M>,
        number: usize,
        direction: Direction,
        page: (u64, Frame),
    ) {
        while !self.try_begin(swap, frames, number, direction, page) {
            make_room(&mut self.states, frames);
        }
    }

    /// Begins transfer `number`, unless the device is busy. Returns whether the transfer was begun.
    #[inline(always)]
    pub(crate) fn try_begin(
        &mut self,
        swap: &Swap<M>,
        frames: &Frames<M>,
        number: usize,
        direction: Direction,
        (slot, frame): (u64, Frame),
    ) -> bool {
        let place = Place::of(slot);
        let transfer = Transfer {
            direction,
            slot: place.offset,
            frame,
        };
        if self
            .last
            .as_ref()
            .is_some_and(|last| last.0 != place.device)
        {
            self.last = None;
        }
        let (_, device) = self
            .last
            .get_or_insert_with(|| (place.device, swap.device_of(slot)));
        self.states[number] = match submit(device.as_ref(), place, frames, transfer) {
            Submission::Done(result) => State::Over(result),
            Submission::Pending(ticket) => {
                self.is_pending = true;
                State::Pending(device.clone(), ticket)
            }
            Submission::Busy => return false,
        };
        true
    }

    /// Returns whether a device did not finish one of the transfers at once.
    pub(crate) fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Returns the device's result for transfer `number`. If the transfer is pending, the result is a ticket, and the
    /// caller must complete the transfer.
    pub(crate) fn take(&mut self, number: usize) -> Submission {
        match core::mem::replace(&mut self.states[number], State::Nothing) {
            State::Pending(_, ticket) => Submission::Pending(ticket),
            State::Over(result) => Submission::Done(result),
            State::Nothing => Submission::Busy,
        }
    }

    /// Waits until transfer `number` has finished.
    ///
    /// # Errors
    /// The errors of [`SwapDevice::complete`].
    pub(crate) fn finish(&mut self, frames: &Frames<M>, number: usize) -> Result<(), DeviceError> {
        end(&mut self.states[number], frames)
    }
}

/// Submits a transfer to the device of `place`.
///
/// # Panics
/// In debug builds, if [`SwapDevice::most_pending`] is 0 but the device leaves the transfer pending or is busy. The
/// library would otherwise retry without end.
#[inline]
fn submit<M: Machine>(
    device: &dyn SwapDevice<M>,
    place: Place,
    frames: &Frames<M>,
    transfer: Transfer,
) -> Submission {
    let submission = device.submit(frames, transfer);
    debug_assert!(
        matches!(submission, Submission::Done(_)) || device.most_pending() > 0,
        "swap device {} has `most_pending` 0, but returned {submission:?} for slot {}",
        place.device,
        place.offset
    );
    submission
}

/// Waits until one of the pending transfers has finished. If none is pending, calls [`Threads::relax`] once.
#[cold]
fn make_room<M: Machine>(states: &mut [State<M>], frames: &Frames<M>) {
    let pending = |state: &&mut State<M>| matches!(state, State::Pending(..));
    match states.iter_mut().find(pending) {
        Some(state) => *state = State::Over(end(state, frames)),
        None => M::Threads::relax(),
    }
}

fn end<M: Machine>(state: &mut State<M>, frames: &Frames<M>) -> Result<(), DeviceError> {
    match core::mem::replace(state, State::Nothing) {
        State::Pending(device, ticket) => device.complete(frames, ticket),
        State::Over(result) => result,
        State::Nothing => {
            debug_assert!(false, "a transfer is ended that was not begun");
            Err(DeviceError::Io)
        }
    }
}

impl<M: Machine> Swap<M> {
    /// Writes the page in `frame` to `slot`.
    pub(super) fn write(
        &self,
        frames: &Frames<M>,
        slot: u64,
        frame: Frame,
    ) -> Result<(), DeviceError> {
        let (device, place) = (self.device_of(slot), Place::of(slot));
        let transfer = Transfer {
            direction: Direction::Out,
            slot: place.offset,
            frame,
        };
        loop {
            match submit(device.as_ref(), place, frames, transfer) {
                Submission::Done(result) => return result,
                Submission::Pending(ticket) => return device.complete(frames, ticket),
                Submission::Busy => M::Threads::relax(),
            }
        }
    }

    /// Begins to read the page in `slot` into `frame`.
    pub(crate) fn begin_read(&self, frames: &Frames<M>, slot: u64, frame: Frame) -> Submission {
        let (device, place) = (self.device_of(slot), Place::of(slot));
        let transfer = Transfer {
            direction: Direction::In,
            slot: place.offset,
            frame,
        };
        submit(device.as_ref(), place, frames, transfer)
    }
}
