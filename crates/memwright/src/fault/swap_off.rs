//! Pages come back because their device is taken out of use (Linux 7.2 `mm/swapfile.c`, `unuse_mm`).

use memwright_table::{Bits, Cursor, Entry, Machine, Page, PageRange, PageSize, Present, Swapped};

use super::{Access, Fault};
use crate::error::FaultError;
use crate::space::AddressSpace;
use crate::swap::Place;

impl<M: Machine> AddressSpace<M> {
    /// Takes pages from `from` on back that are on the swap device with this number, `most` of them. Returns where to
    /// go on when these are taken, or `None` at the end.
    ///
    /// # Errors
    /// `OutOfMemory` or `Io`; what came back before stays.
    pub fn bring_back(
        &self,
        device: usize,
        from: Page,
        most: u64,
    ) -> Result<Option<Page>, FaultError> {
        let core = &*self.core;
        let cpu = core.cpu();
        let areas = core.areas.read(cpu);
        let rest = PageRange::new(from.min(Page::USER_END), Page::USER_END);
        let mut left = most;
        for area in areas.map.overlapping(rest) {
            let mut cursor = core.table.cursor(area.range().intersect(rest));
            while let Some(extent) = cursor.next_filled() {
                match extent.entry {
                    Entry::Swapped(page) if Place::of(page.slot).device == device => {
                        if left == 0 {
                            return Ok(Some(cursor.position()));
                        }
                        left -= 1;
                        let fault = Fault {
                            core,
                            cpu,
                            areas: &areas,
                            area,
                            page: cursor.position(),
                            access: Access::READ,
                        };
                        fault.bring_unasked(&mut cursor, page)?;
                    }
                    Entry::Swapped(_)
                    | Entry::Empty
                    | Entry::Marker(_)
                    | Entry::Migrating(_)
                    | Entry::Present(_) => {}
                }
                if !cursor.advance() {
                    break;
                }
            }
        }
        Ok(None)
    }
}

impl<M: Machine> Fault<'_, M> {
    /// Maps the page that the entry under the cursor names, though nobody asked for it: it does not look used.
    fn bring_unasked(self, cursor: &mut Cursor<'_, M>, swapped: Swapped) -> Result<(), FaultError> {
        let back = self.bring(swapped, false)?;
        let bits = self.bits_of(swapped.bits, back.exclusive, false) - Bits::ACCESSED;
        cursor.swap_in(Present {
            frame: back.frame.into_raw(),
            size: PageSize::Size4K,
            bits,
        });
        self.core.note_filled(self.cpu, 1);
        self.core.note_swapped(-1);
        Ok(())
    }
}
