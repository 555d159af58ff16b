//! `madvise` in the model.

use super::page::{Source, Stored};
use super::{Model, Refusal};
use crate::terms::{Advice, Intent};

impl Model {
    /// Applies advice page by page. Advice that populates stops at the first hole. Other advice skips holes, and
    /// reports the first hole at the end.
    ///
    /// # Errors
    /// The refusal that stopped the call, or else the first hole.
    pub fn advise(
        &mut self,
        process: usize,
        from: u64,
        pages: u64,
        advice: Advice,
    ) -> Result<(), Refusal> {
        let mut hole = Ok(());
        for page in from..from + pages {
            if let Err(refusal) = self.advise_page(process, page, advice) {
                let skips = !matches!(advice, Advice::PopulateRead | Advice::PopulateWrite);
                match refusal {
                    Refusal::Hole(_) if skips => hole = hole.and(Err(refusal)),
                    _ => return Err(refusal),
                }
            }
        }
        hole
    }

    fn advise_page(&mut self, process: usize, page: u64, advice: Advice) -> Result<(), Refusal> {
        let mapped = self.mapped(process, page)?;
        let anonymous = mapped.source == Source::Anonymous;
        let discards = matches!(
            advice,
            Advice::Drop
                | Advice::Free
                | Advice::OmitOnFork
                | Advice::WipeOnFork
                | Advice::InstallGuard
        );
        if discards && mapped.sealed && anonymous && !mapped.rights.write {
            return Err(Refusal::Sealed(page));
        }
        match advice {
            Advice::Drop => mapped.dropped(),
            Advice::WantHuge
            | Advice::RefuseHuge
            | Advice::Cold
            | Advice::PageOut
            | Advice::Mergeable
            | Advice::Unmergeable => {}
            Advice::Free if anonymous => mapped.may_go(),
            Advice::OmitOnFork => mapped.on_fork.omit = true,
            Advice::InheritOnFork => mapped.on_fork.omit = false,
            Advice::WipeOnFork if anonymous => mapped.on_fork.wipe = true,
            Advice::KeepOnFork => mapped.on_fork.wipe = false,
            Advice::InstallGuard => {
                mapped.dropped();
                (mapped.guard, mapped.since_protected) = (true, Stored::Maybe);
            }
            Advice::RemoveGuard => mapped.guard = false,
            Advice::Free | Advice::WipeOnFork => return Err(Refusal::NotApplicable(page)),
            Advice::PopulateRead => {
                self.permit_populate(process, page, Intent::Read)?;
                self.accessed(process, page);
            }
            Advice::PopulateWrite => {
                let permitted = self.permit_populate(process, page, Intent::Write);
                if let Err(Refusal::Protected(page)) = permitted {
                    self.refuse_store(process, page);
                }
                permitted?;
                if !matches!(self.mapped(process, page)?.source, Source::Shared { .. }) {
                    self.own(process, page);
                }
                self.accessed(process, page);
                let mapped = self.mapped(process, page)?;
                mapped.since_protected.blur();
                mapped.since_cleared.blur();
            }
        }
        Ok(())
    }

    /// Checks whether a page can be populated. Missing rights are reported as an invalid argument, not as a refused
    /// access. Unlike for an access, the right to write does not imply the right to read.
    fn permit_populate(&self, process: usize, page: u64, intent: Intent) -> Result<(), Refusal> {
        let mapped = self.spaces[&process].pages.get(&page);
        if intent == Intent::Read && mapped.is_some_and(|mapped| !mapped.rights.read) {
            return Err(Refusal::NotApplicable(page));
        }
        self.permit(process, page, intent)
            .map_err(|refusal| match refusal {
                Refusal::Denied(page) => Refusal::NotApplicable(page),
                other => other,
            })
    }
}
