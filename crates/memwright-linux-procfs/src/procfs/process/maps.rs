//! `/proc/PID/maps`.

use crate::procfs::node::{Line, Subject, Text};
use alloc::sync::Arc;
use core::fmt::{self, Write};
use memwright::{Area, AreaFlags, AreaName, Rights, object::Object};
use memwright_linux_abi::{M, Space};
use memwright_linux_base::batch::Batch;
use memwright_table::VirtAddr;

/// The fields of an area's line, except the name.
#[derive(Clone, Copy, Debug)]
pub struct AreaLine {
    /// The first address of the area.
    pub start: u64,
    /// The end address of the area, exclusive.
    pub end: u64,
    /// The access rights.
    pub rights: Rights,
    /// Whether the mapping is shared, so that stores change the object.
    pub shared: bool,
    /// The offset in the object, in bytes.
    pub offset: u64,
    /// The device of the object.
    pub device: u64,
    /// The inode of the object.
    pub inode: u64,
}

/// The width to which a line is padded before the name (`seq_setwidth` in `fs/proc/task_mmu.c` of Linux 7.2).
const NAME_COLUMN: usize = 72;

impl AreaLine {
    /// Returns the major and minor number of the device.
    pub fn device_numbers(&self) -> (u32, u32) {
        let device = self.device;
        (
            (device >> 8 & 0xfff) as u32,
            ((device & 0xff) | (device >> 12 & 0xf_ff00)) as u32,
        )
    }

    /// Writes the line up to the name, followed by a space.
    ///
    /// # Errors
    /// The errors of `text`.
    pub fn write(&self, text: &mut Text) -> fmt::Result {
        let right = |right, letter| {
            if self.rights.contains(right) {
                letter
            } else {
                "-"
            }
        };
        let (major, minor) = self.device_numbers();
        let mut line = Line::new();
        line.hex(self.start, 8).text("-").hex(self.end, 8);
        line.text(" ").text(right(Rights::READ, "r"));
        line.text(right(Rights::WRITE, "w"));
        line.text(right(Rights::EXECUTE, "x"));
        line.text(if self.shared { "s " } else { "p " });
        line.hex(self.offset, 8).text(" ");
        line.hex(major.into(), 2).text(":").hex(minor.into(), 2);
        line.text(" ").decimal(self.inode, 0).text(" ").write(text)
    }
}

/// Pads the line that begins at the offset `start` of `text` to [`NAME_COLUMN`] columns, and adds one space.
fn pad(text: &mut Text, start: usize) -> fmt::Result {
    let missing = NAME_COLUMN.saturating_sub(text.len() - start);
    Line::new().spaces(missing + 1).write(text)
}

/// A copy of the fields of an area, made while the address space is locked. The line is written after the lock is
/// released.
pub struct Noted {
    line: AreaLine,
    name: &'static str,
    /// The name that the program has set for anonymous memory (`PR_SET_VMA_ANON_NAME`).
    given: Option<Arc<AreaName>>,
    object: Option<Arc<dyn Object<M>>>,
}

impl Noted {
    /// Copies the fields of an area.
    pub(super) fn of(area: &Area<M>) -> Self {
        let object = area.object();
        let identity = object.map(|object| object.identity()).unwrap_or_default();
        let flags = area.flags();
        let line = AreaLine {
            start: area.start().address().as_u64(),
            end: area.end().address().as_u64(),
            rights: area.rights(),
            shared: area.is_shared(),
            offset: if object.is_some() {
                area.offset() * 4096
            } else {
                0
            },
            device: identity.device,
            inode: identity.inode,
        };
        let name = if object.is_some() {
            ""
        } else if flags.contains(AreaFlags::HEAP) {
            "[heap]"
        } else if flags.contains(AreaFlags::STACK) {
            "[stack]"
        } else {
            ""
        };
        Self {
            line,
            name,
            given: area.backing().name().cloned(),
            object: object.cloned(),
        }
    }

    /// Returns the fields of the line.
    pub fn line(&self) -> &AreaLine {
        &self.line
    }

    /// Returns the object that the area maps.
    pub(super) fn object(&self) -> Option<&dyn Object<M>> {
        self.object.as_deref()
    }

    /// Writes the name of the area, if it has one.
    ///
    /// # Errors
    /// The errors of `text`.
    pub fn write_name(&self, text: &mut dyn Write) -> fmt::Result {
        match (&self.object, &self.given) {
            (Some(_), Some(name)) => write_given(text, "anon_shmem", name),
            (Some(object), None) => object.describe(text),
            (None, Some(name)) if self.name.is_empty() => write_given(text, "anon", name),
            (None, _) => text.write_str(self.name),
        }
    }

    /// Returns whether the area has a name.
    pub(super) fn has_name(&self) -> bool {
        self.object.is_some() || !self.name.is_empty() || self.given.is_some()
    }

    /// Writes the complete line.
    pub(super) fn write(&self, text: &mut Text) -> fmt::Result {
        let start = text.len();
        self.line.write(text)?;
        if self.has_name() {
            pad(text, start)?;
            self.write_name(text)?;
        }
        text.write_char('\n')
    }
}

/// Writes the name that a program has set for anonymous memory, as `[KIND:NAME]` (`get_vma_name` in
/// `fs/proc/task_mmu.c` of Linux 7.2).
fn write_given(text: &mut dyn Write, kind: &str, name: &AreaName) -> fmt::Result {
    write!(text, "[{kind}:")?;
    for byte in name.bytes() {
        text.write_char(char::from(*byte))?;
    }
    text.write_char(']')
}

/// Writes the header line of `/proc/PID/smaps_rollup`. The line describes an area from the start of the first area to
/// the end of the last.
pub(super) fn write_rollup(text: &mut Text, start: u64, end: u64) -> fmt::Result {
    let before = text.len();
    let mut line = Line::new();
    line.hex(start, 8).text("-").hex(end, 8);
    line.text(" ---p 00000000 00:00 0 ").write(text)?;
    pad(text, before)?;
    text.write_str("[rollup]\n")
}

/// Returns a copy of the area that contains `address`.
pub fn area_at(space: &Space, address: u64) -> Option<Noted> {
    let noted = space.find(VirtAddr::new(address), Noted::of)?;
    (noted.line.start <= address).then_some(noted)
}

/// The number of areas that are copied in one batch.
const TOGETHER: usize = 32;

/// Writes `/proc/PID/maps`. The cursor is the end address of the last area that was written, as in `m_next` of Linux
/// 7.2 (`fs/proc/task_mmu.c`).
///
/// # Errors
/// The errors of `text`.
pub fn maps(subject: &Subject, text: &mut Text) -> fmt::Result {
    let Some(space) = subject.space_of(text) else {
        return Ok(());
    };
    let note = |from, batch: &mut Batch<Noted>| {
        space.areas_from(VirtAddr::new(from), &mut |area| batch.push(Noted::of(area)));
    };
    text.records(TOGETHER, note, |text, area| {
        area.write(text)?;
        Ok(area.line.end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_linux_columns() {
        let line = AreaLine {
            start: 0x40_0000,
            end: 0x40_1000,
            rights: Rights::READ | Rights::EXECUTE,
            shared: false,
            offset: 0x1000,
            device: 0x801,
            inode: 1234,
        };
        let mut text = Text::new();
        line.write(&mut text).unwrap();
        pad(&mut text, 0).unwrap();
        text.write_str("/bin/x").unwrap();
        let expected = "00400000-00401000 r-xp 00001000 08:01 1234                               \
                        /bin/x";
        assert_eq!(core::str::from_utf8(text.bytes()).unwrap(), expected);
        assert_eq!(expected.find("/bin").unwrap(), 73);

        let line = AreaLine {
            start: 0x7fff_ffff_e000,
            end: 0x7fff_ffff_f000,
            rights: Rights::READ | Rights::WRITE,
            shared: true,
            offset: 0,
            device: 0,
            inode: 0,
        };
        let mut text = Text::new();
        line.write(&mut text).unwrap();
        let expected = "7fffffffe000-7ffffffff000 rw-s 00000000 00:00 0 ";
        assert_eq!(text.bytes(), expected.as_bytes());
    }
}
