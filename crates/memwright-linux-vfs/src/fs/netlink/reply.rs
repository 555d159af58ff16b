//! The replies that wait in a netlink socket until the program receives them.

use crate::fs::netlink::{
    describe,
    route::Dump,
    writer::{Return, Writer},
};
use alloc::vec::Vec;
use memwright_linux_abi::errno::Errno;
use memwright_table::OutOfMemory;

/// Charge in bytes of a reply, in addition to that of its contents.
const OVERHEAD: usize = 512;
/// Charge in bytes of a description. Its bytes are generated only when the program receives it.
const DESCRIPTION: usize = 1024;
/// `NLMSG_ERROR` and `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `NLM_F_MULTI`, the flag of the messages of a dump.
const MANY: u16 = 2;
/// `NLM_F_CAPPED`, the flag of an acknowledgement that does not repeat the body of the request.
const CAPPED: u16 = 0x100;

/// The content of a reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Content {
    /// The description of the interface.
    Link,
    /// The entries that a dump lists.
    Dump(Dump),
    /// The end of a dump.
    End,
    /// The result of a request.
    Result {
        /// The error; `None` for an acknowledgement.
        error: Option<Errno>,
        /// The complete request, or only its header if `capped` is set.
        request: Vec<u8>,
        /// Whether the reply omits the body of the request.
        capped: bool,
    },
}

/// A reply.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    /// The fields of the request that the headers of the reply repeat.
    pub to: Return,
    /// The content of the reply.
    pub content: Content,
}

impl Reply {
    /// Returns the charge in bytes against the receive buffer.
    #[must_use]
    pub const fn charge(&self) -> usize {
        match &self.content {
            Content::Link | Content::Dump(_) => OVERHEAD + DESCRIPTION,
            Content::End => OVERHEAD,
            Content::Result { request, .. } => OVERHEAD + request.len(),
        }
    }

    /// Generates the bytes of the reply.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn to_bytes(&self) -> Result<Vec<u8>, OutOfMemory> {
        let mut writer = Writer::default();
        let to = self.to;
        match &self.content {
            Content::Link => describe::link(&mut writer, 0, to)?,
            Content::Dump(Dump::Links) => describe::link(&mut writer, MANY, to)?,
            &Content::Dump(Dump::Addresses(families)) => {
                describe::addresses(&mut writer, families, MANY, to)?;
            }
            &Content::Dump(Dump::Routes(families)) => {
                describe::routes(&mut writer, families, MANY, to)?;
            }
            Content::Dump(Dump::Nothing) => {}
            Content::End => writer.begin((DONE, MANY), to, &[0; 4])?,
            Content::Result {
                error,
                request,
                capped,
            } => {
                let number = error.map_or(0, |errno| -i32::from(errno.number()));
                let flags = if *capped { CAPPED } else { 0 };
                writer.begin((ERROR, flags), to, &number.to_le_bytes())?;
                writer.append(request)?;
            }
        }
        Ok(writer.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::netlink::{request::Requests, route::Families};

    const TO: Return = Return {
        sequence: 7,
        port: 9,
    };

    #[test]
    fn replies_have_messages() {
        type Found<'a> = &'a [(u16, u16, usize)];
        let result = |error, request: &[u8], capped| Content::Result {
            error,
            request: request.to_vec(),
            capped,
        };
        let request = [1; 20];
        let rows: [(Content, Found<'_>); 8] = [
            (Content::Link, &[(16, 0, 148)]),
            (Content::Dump(Dump::Links), &[(16, MANY, 148)]),
            (Content::Dump(Dump::Nothing), &[]),
            (
                Content::Dump(Dump::Addresses(Families::All)),
                &[(20, MANY, 76), (20, MANY, 80)],
            ),
            (
                Content::Dump(Dump::Routes(Families::All)),
                &[
                    (24, MANY, 60),
                    (24, MANY, 60),
                    (24, MANY, 60),
                    (24, MANY, 80),
                ],
            ),
            (Content::End, &[(DONE, MANY, 20)]),
            (result(None, &request[..16], true), &[(ERROR, CAPPED, 36)]),
            (
                result(Some(Errno::ENODEV), &request, false),
                &[(ERROR, 0, 40)],
            ),
        ];
        for (content, expected) in rows {
            let reply = Reply { to: TO, content };
            let bytes = reply.to_bytes().unwrap();
            let found = Requests(&bytes).map(|message| {
                assert_eq!(message.sequence, 7);
                (message.kind, message.flags, message.whole.len())
            });
            assert_eq!(found.collect::<Vec<_>>(), expected, "{reply:?}");
        }
    }
}
