//! Decodes the messages that programs send.

/// Size in bytes of `struct nlmsghdr` of `linux/netlink.h`.
pub const HEADER: usize = 16;
/// Alignment of messages and attributes.
pub const ALIGNMENT: usize = 4;
/// Size in bytes of `struct nlattr`.
const ATTRIBUTE: usize = 4;
/// The bits of the type of an attribute that are flags (`NLA_TYPE_MASK`).
const TYPE: u16 = 0x3fff;

/// A message from a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The type of the message.
    pub kind: u16,
    /// The `NLM_F_` flags.
    pub flags: u16,
    /// The sequence number, which the reply repeats.
    pub sequence: u32,
    /// The bytes of the complete message.
    pub whole: &'a [u8],
}

impl<'a> Request<'a> {
    /// Returns the bytes after the header.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        self.whole.get(HEADER..).unwrap_or_default()
    }

    /// Returns the data of the first attribute of type `kind` after the first `size` bytes of the body, or `None` if
    /// there is no such attribute. Stops at the first incomplete attribute (`nla_ok` of Linux 7.2,
    /// `include/net/netlink.h`).
    #[must_use]
    pub fn attribute(&self, size: usize, kind: u16) -> Option<&'a [u8]> {
        let mut rest = self.body().get(size.next_multiple_of(ALIGNMENT)..)?;
        loop {
            let &[a, b, c, d] = rest.first_chunk()?;
            let length = usize::from(u16::from_le_bytes([a, b]));
            let data = rest.get(ATTRIBUTE..length)?;
            if u16::from_le_bytes([c, d]) & TYPE == kind {
                return Some(data);
            }
            rest = rest.get(length.next_multiple_of(ALIGNMENT)..)?;
        }
    }
}

/// Iterates over the messages of one send (`netlink_rcv_skb` of Linux 7.2, `net/netlink/af_netlink.c`). Ends at the
/// first message that is shorter than its header or extends beyond the send.
#[derive(Clone, Copy, Debug)]
pub struct Requests<'a>(pub &'a [u8]);

impl<'a> Iterator for Requests<'a> {
    type Item = Request<'a>;

    fn next(&mut self) -> Option<Request<'a>> {
        let &[a, b, c, d, e, f, g, h, i, j, k, l, _, _, _, _] = self.0.first_chunk()?;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length < HEADER {
            return None;
        }
        let whole = self.0.get(..length)?;
        let end = length.next_multiple_of(ALIGNMENT);
        self.0 = self.0.get(end..).unwrap_or_default();
        Some(Request {
            kind: u16::from_le_bytes([e, f]),
            flags: u16::from_le_bytes([g, h]),
            sequence: u32::from_le_bytes([i, j, k, l]),
            whole,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Returns a message whose header states the length `length`.
    pub fn message(length: u32, kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(kind.to_le_bytes());
        bytes.extend([1, 0, 7, 0, 0, 0, 9, 9, 9, 9]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn messages_are_found() {
        type Found<'a> = &'a [(u16, &'a [u8])];
        let two = [message(17, 18, b"a---"), message(16, 22, b"")].concat();
        let rows: [(Vec<u8>, Found<'_>); 7] = [
            (Vec::new(), &[]),
            (message(16, 18, b""), &[(18, b"")]),
            (message(16, 18, b"")[..15].to_vec(), &[]),
            (message(15, 18, b"abc"), &[]),
            (message(20, 18, b"abc"), &[]),
            (message(u32::MAX, 18, b"abc"), &[]),
            (two, &[(18, b"a"), (22, b"")]),
        ];
        for (bytes, expected) in rows {
            let found = Requests(&bytes).map(|request| (request.kind, request.body()));
            assert_eq!(found.collect::<Vec<_>>(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn attributes_are_found() {
        let body = b"head\x05\0\x01\x80x---\x06\0\x03\0lo--\x09\0\x04\0";
        let bytes = message(16 + body.len() as u32, 18, body);
        let request = Requests(&bytes).next().unwrap();
        for (kind, expected) in [(1, Some(&b"x"[..])), (3, Some(b"lo")), (4, None), (5, None)] {
            assert_eq!(request.attribute(4, kind), expected);
        }
        assert_eq!(request.attribute(100, 1), None);
    }
}
