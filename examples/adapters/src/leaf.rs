//! Operations on one page of a table whose frames belong to the caller, as the interfaces of other crates have them.
//!
//! An entry has the bit `BORROWED`, so that it holds no reference to its frame. The caller owns the frame before, while
//! and after it is mapped.

use memwright_table::{
    Architecture, Bits, Change, Cursor, Entry, FlushPolicy, Gather, Machine, Page, PageRange,
    PageSize, Present, Table,
};

/// Why an operation on a page failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The page, or a smaller page that is part of it, is mapped.
    Mapped(Present),
    /// No page is mapped.
    NotMapped,
    /// The page is part of a larger page.
    InLarger,
    /// Smaller pages are mapped, or a table for them exists.
    HasTable,
    /// The page or the frame is not a multiple of the size.
    Misaligned,
    /// The page is not in user memory.
    NotUser,
    /// There is no frame for a table.
    OutOfFrames,
}

impl Failure {
    /// Whether the page cannot be changed because its address is mapped, or can be, by pages of another size.
    pub(crate) fn is_of_another_size(self) -> bool {
        match self {
            Failure::InLarger | Failure::HasTable => true,
            Failure::Mapped(_)
            | Failure::NotMapped
            | Failure::Misaligned
            | Failure::NotUser
            | Failure::OutOfFrames => false,
        }
    }
}

/// Creates a gather that also flushes, on every CPU, pages whose rights grew. Without the flush, another CPU could take
/// a spurious fault, for which the interfaces have no handler.
pub(crate) fn gather<M: Machine>(table: &Table<M>) -> Gather<'_, M> {
    table.gather_by(FlushPolicy::Elide)
}

/// Maps `page` to the frame of `new`. Frees tables for smaller pages if they are empty. `gather` makes the flush.
pub(crate) fn map<'t, M: Machine>(
    table: &'t Table<M>,
    page: Page,
    new: Present,
    gather: &mut Gather<'t, M>,
) -> Result<(), Failure> {
    let range = whole::<M>(page, new.size)?;
    if !u64::from(new.frame.number()).is_multiple_of(new.size.pages()) {
        return Err(Failure::Misaligned);
    }
    let mut cursor = table.cursor(range);
    if cursor.size() < new.size {
        while let Some(extent) = cursor.next_filled() {
            if let Some(smaller) = extent.entry.present() {
                return Err(Failure::Mapped(smaller));
            }
            cursor.advance();
        }
        drop(cursor);
        table.free_tables(range, gather);
        gather.flush();
        cursor = table.cursor(range);
    }
    if let Some(old) = cursor.peek().present() {
        return Err(if old.size > new.size {
            Failure::InLarger
        } else {
            Failure::Mapped(old)
        });
    }
    let bits = new.bits.union(Bits::BORROWED);
    let filled = cursor.fill(Entry::Present(Present { bits, ..new }));
    filled.map_err(|_| Failure::OutOfFrames)?;
    record_absent::<M>(page, new.size, gather);
    Ok(())
}

/// Records that CPUs may have cached that `page` could not be accessed. Not needed on x86-64, where CPUs do not cache
/// this, and a fault drops what they have cached.
fn record_absent<M: Machine>(page: Page, size: PageSize, gather: &mut Gather<'_, M>) {
    if !M::Arch::FAULT_DROPS_STALE {
        gather.record(page, size, Change::Grew);
    }
}

/// Unmaps `page`, and returns what it mapped. `gather` makes the flush.
pub(crate) fn unmap<'t, M: Machine>(
    table: &'t Table<M>,
    page: Page,
    size: PageSize,
    gather: &mut Gather<'t, M>,
) -> Result<Present, Failure> {
    let (mut cursor, old) = at(table, page, size)?;
    cursor.remove(gather);
    Ok(old)
}

/// Gives `page` these rights, and returns the new entry. Its other bits do not change. `gather` makes the flush.
pub(crate) fn protect<'t, M: Machine>(
    table: &'t Table<M>,
    page: Page,
    size: PageSize,
    rights: Bits,
    gather: &mut Gather<'t, M>,
) -> Result<Present, Failure> {
    let (mut cursor, _) = at(table, page, size)?;
    let lost = Bits::RIGHTS.difference(rights);
    let new = cursor.edit(rights.intersection(Bits::RIGHTS), lost, gather);
    record_absent::<M>(page, size, gather);
    Ok(new)
}

/// Maps `page` to the frame of `new`, with the rights of `new`. The old translation is flushed before the new one
/// exists.
pub(crate) fn remap<'t, M: Machine>(
    table: &'t Table<M>,
    page: Page,
    new: Present,
    gather: &mut Gather<'t, M>,
) -> Result<(), Failure> {
    if !u64::from(new.frame.number()).is_multiple_of(new.size.pages()) {
        return Err(Failure::Misaligned);
    }
    unmap(table, page, new.size, gather)?;
    gather.flush();
    map(table, page, new, gather)
}

/// Returns what is mapped at `page`, of any size. A page without rights counts as mapped.
pub(crate) fn find<M: Machine>(table: &Table<M>, page: Page) -> Option<Present> {
    if !M::Arch::USER.contains(page) {
        return None;
    }
    table.look(PageRange::single(page)).peek().present()
}

/// Returns a cursor at the entry that maps `page` with this size, and the entry.
fn at<M: Machine>(
    table: &Table<M>,
    page: Page,
    size: PageSize,
) -> Result<(Cursor<'_, M>, Present), Failure> {
    let cursor = table.cursor(whole::<M>(page, size)?);
    if cursor.size() < size {
        return Err(Failure::HasTable);
    }
    let old = cursor.peek().present().ok_or(Failure::NotMapped)?;
    if old.size > size {
        return Err(Failure::InLarger);
    }
    assert!(
        old.bits.contains(Bits::BORROWED),
        "{page:?} belongs to an address space"
    );
    Ok((cursor, old))
}

/// Returns the range of the page of this size that begins at `page`.
fn whole<M: Machine>(page: Page, size: PageSize) -> Result<PageRange, Failure> {
    if !page.number().is_multiple_of(size.pages()) {
        return Err(Failure::Misaligned);
    }
    if !M::Arch::USER.contains(page) {
        return Err(Failure::NotUser);
    }
    let range = PageRange::new(page, page.add(size.pages()));
    if M::Arch::USER.covers(range) {
        Ok(range)
    } else {
        Err(Failure::NotUser)
    }
}
