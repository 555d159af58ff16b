//! Decodes the control messages (ancillary data) that a program passes to `sendmsg`.

use memwright_linux_abi::errno::Errno;

/// Size in bytes of `struct cmsghdr` of `linux/socket.h`, which is a multiple of the alignment of control messages.
pub const HEADER: usize = 16;
const ALIGNMENT: usize = 8;

/// A control message of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlMessage<'a> {
    /// The level, such as `SOL_SOCKET`.
    pub level: u32,
    /// The type of the message, such as `SCM_RIGHTS`.
    pub kind: u32,
    /// The data after the header.
    pub data: &'a [u8],
}

/// Iterates over the control messages in the buffer that a program passes to `sendmsg` (`for_each_cmsghdr` and
/// `CMSG_OK` of Linux 7.2, `include/linux/socket.h`). Ends when the rest of the buffer is too short for a header.
#[derive(Clone, Copy, Debug)]
pub struct ControlMessages<'a>(pub &'a [u8]);

impl<'a> Iterator for ControlMessages<'a> {
    type Item = Result<ControlMessage<'a>, Errno>;

    /// Returns the next message.
    ///
    /// # Errors
    /// `EINVAL` if the length of the message is less than that of a header, or if the message extends beyond the
    /// buffer.
    fn next(&mut self) -> Option<Self::Item> {
        let (&header, _) = self.0.split_first_chunk::<HEADER>()?;
        let [length @ .., _, _, _, _, _, _, _, _] = header;
        let [.., a, b, c, d, e, f, g, h] = header;
        let (level, kind) = ([a, b, c, d], [e, f, g, h]);
        let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
        let Some(data) = self.0.get(HEADER..length) else {
            self.0 = &[];
            return Some(Err(Errno::EINVAL));
        };
        let end = length.next_multiple_of(ALIGNMENT);
        self.0 = self.0.get(end..).unwrap_or_default();
        Some(Ok(ControlMessage {
            level: u32::from_le_bytes(level),
            kind: u32::from_le_bytes(kind),
            data,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn message(length: u64, kind: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn messages_are_found_and_checked() {
        type Found<'a> = Result<(u32, &'a [u8]), Errno>;
        const BAD: Found<'_> = Err(Errno::EINVAL);
        let rows: [(Vec<u8>, &[Found<'_>]); 9] = [
            (Vec::new(), &[]),
            (message(16, 7, b"")[..15].to_vec(), &[]),
            (message(16, 7, b""), &[Ok((7, b""))]),
            (message(15, 7, b""), &[BAD]),
            (message(17, 7, b""), &[BAD]),
            (message(u64::MAX, 7, b"abcd"), &[BAD]),
            (message(20, 7, b"abcd"), &[Ok((7, b"abcd"))]),
            // The last message need not be padded to the alignment.
            (
                [message(20, 7, b"abcd----"), message(17, 8, b"e")].concat(),
                &[Ok((7, b"abcd")), Ok((8, b"e"))],
            ),
            (
                [message(20, 7, b"abcd----"), message(99, 8, b"e")].concat(),
                &[Ok((7, b"abcd")), BAD],
            ),
        ];
        for (bytes, expected) in rows {
            let found = ControlMessages(&bytes)
                .map(|message| message.map(|message| (message.kind, message.data)));
            assert_eq!(found.collect::<Vec<_>>(), expected, "{bytes:?}");
        }
    }
}
