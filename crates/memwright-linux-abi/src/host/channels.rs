//! The channels between the machine and the `memwright` command.

pub use crate::channel::Channel;

/// The machine's side of the channels: output, input, control bytes and requests for the lower tree.
pub trait Channels: Sync {
    /// Writes one frame to the output channel. `Account`, `Trace`, `Log` and `SystemCalls` frames take no guest time.
    fn output(&self, channel: Channel, bytes: &[u8]);

    /// Requests standard input from the command and waits for it, with the guest clock and the other CPUs stopped.
    /// Returns the number of bytes stored in `to`; 0 at the end of the input. Returns `None` if a control byte arrived
    /// first; [`control`](Self::control) then returns that byte.
    fn input(&self, to: &mut [u8]) -> Option<usize>;

    /// Takes the next control byte, if there is one.
    fn control(&self) -> Option<u8>;

    /// Sends the encoded [`LowerRequest`](crate::channel::lower::LowerRequest) `request` to the command and waits for
    /// the answer, with the guest clock and the other CPUs stopped. Copies as much of the answer into `answer` as fits.
    /// Returns the length of the complete answer; 0 if there is none.
    fn lower(&self, request: &[u8], answer: &mut [u8]) -> usize;
}
