//! The steps that map memory and change its properties.

use alloc::format;
use alloc::sync::Arc;

use memwright::SharedSetting;
use memwright::object::{ObjectIdentity, Shmem};
use memwright::{AreaFlags, MapError, MapKind, MapRequest, Placement, UnmapError};
use memwright_table::CpuId;

use super::kinds::{Kind, agree, disagree, kind_of_advise, kind_of_protect, kind_of_seal};
use super::{Difference, Lockstep, address, bytes, real_rights};
use crate::machine::TestMachine;
use crate::model::Source;
use crate::script::{Range, What};
use crate::terms::{Advice, Rights};

impl<M: TestMachine> Lockstep<M> {
    /// Returns the source of the pages of a new mapping, as the model and as the memory manager represent it.
    fn source(&mut self, pages: u64, what: What) -> Result<(Source, MapKind<M>), Difference> {
        Ok(match what {
            What::Anonymous => (Source::Anonymous, MapKind::Anonymous),
            What::SharedAnonymous => {
                let number = self.model.create_object(pages, true);
                let identity = ObjectIdentity {
                    device: 3,
                    inode: number as u64,
                };
                let memory = self.host.memory().clone();
                let object = Shmem::new(memory, bytes(pages), identity);
                let object = object.map_err(|_| Difference::Exhausted)?;
                let object = Arc::new(object.with_huge_pages(SharedSetting::Anonymous));
                (
                    Source::Shared {
                        object: number,
                        index: 0,
                    },
                    MapKind::Object {
                        object,
                        offset: 0,
                        shared: true,
                    },
                )
            }
            What::PrivateFile(file, index) | What::SharedFile(file, index) => {
                let object = self.file(file);
                let index = self.scale.index(index);
                let shared = matches!(what, What::SharedFile(..));
                let real = self.object(object);
                let source = if shared {
                    Source::Shared { object, index }
                } else {
                    Source::Private { object, index }
                };
                (
                    source,
                    MapKind::Object {
                        object: real,
                        offset: bytes(index),
                        shared,
                    },
                )
            }
        })
    }

    pub(super) fn map(
        &mut self,
        process: usize,
        cpu: CpuId,
        range: Range,
        rights: Rights,
        what: What,
        populate: bool,
    ) -> Result<(), Difference> {
        let (from, pages) = self.scale.range(range);
        let (source, kind) = self.source(pages, what)?;
        let request = MapRequest {
            length: bytes(pages),
            rights: real_rights(rights),
            max_rights: memwright::Rights::all(),
            kind,
            placement: Placement::Fixed(address(from)),
            flags: AreaFlags::empty(),
            populate,
        };
        let mapped = self.processes[&process].on(cpu, |space| space.map(&request));
        match mapped {
            Ok(at) if at == address(from) => {}
            Err(MapError::Sealed(_)) if self.model.check_seals(process, from, pages).is_err() => {
                self.succeeded("map over a seal refused");
                return Ok(());
            }
            Err(MapError::OutOfMemory) => return Err(Difference::Exhausted),
            other => return disagree(format!("a fixed mapping gave {other:?}")),
        }
        if let Err(refusal) = self.model.map(process, from, pages, rights, source) {
            return disagree(format!("a fixed mapping in spite of {refusal:?}"));
        }
        if populate && self.reclaims {
            self.model.populate_some(process, from, pages);
        } else if populate {
            self.model.populate(process, from, pages);
        }
        self.succeeded("map");
        Ok(())
    }

    pub(super) fn unmap(
        &mut self,
        process: usize,
        cpu: CpuId,
        range: Range,
    ) -> Result<(), Difference> {
        let (from, pages) = self.scale.range(range);
        let real = self.processes[&process]
            .on(cpu, |space| space.unmap(address(from), bytes(pages)))
            .map_err(|error| match error {
                UnmapError::Sealed(_) => Kind::Sealed,
                UnmapError::OutOfMemory | UnmapError::OverLimit(_) => Kind::Resources,
                UnmapError::NoLength | UnmapError::Misaligned | UnmapError::OutOfRange => {
                    Kind::Invalid
                }
            });
        let model = self.model.unmap(process, from, pages);
        if agree("unmap", model, real)? {
            self.succeeded("unmap");
        }
        Ok(())
    }

    pub(super) fn seal(
        &mut self,
        process: usize,
        cpu: CpuId,
        range: Range,
    ) -> Result<(), Difference> {
        let (from, pages) = self.scale.range(range);
        let real =
            self.processes[&process].on(cpu, |space| space.seal(address(from), bytes(pages)));
        let model = self.model.seal(process, from, pages);
        if agree("seal", model, real.map_err(kind_of_seal))? {
            self.succeeded("seal");
        }
        Ok(())
    }

    pub(super) fn protect(
        &mut self,
        process: usize,
        cpu: CpuId,
        range: Range,
        rights: Rights,
    ) -> Result<(), Difference> {
        let (from, pages) = self.scale.range(range);
        let real = self.processes[&process].on(cpu, |space| {
            space.protect(address(from), bytes(pages), real_rights(rights))
        });
        let model = self.model.protect(process, from, pages, rights);
        if agree("protect", model, real.map_err(kind_of_protect))? {
            self.succeeded("protect");
        }
        Ok(())
    }

    pub(super) fn advise(
        &mut self,
        process: usize,
        cpu: CpuId,
        range: Range,
        advice: Advice,
    ) -> Result<(), Difference> {
        let (from, pages) = self.scale.range(range);
        let populates = matches!(advice, Advice::PopulateRead | Advice::PopulateWrite);
        if populates && self.model.is_filled(process, from, pages) {
            // Skip the step: the population would stop at the first missing page, which a userfaultfd handler must
            // fill.
            return Ok(());
        }
        let real_advice = match advice {
            Advice::Drop => memwright::Advice::DontNeed,
            Advice::Free => memwright::Advice::Free,
            Advice::PopulateRead => memwright::Advice::PopulateRead,
            Advice::PopulateWrite => memwright::Advice::PopulateWrite,
            Advice::OmitOnFork => memwright::Advice::DontFork,
            Advice::InheritOnFork => memwright::Advice::DoFork,
            Advice::WipeOnFork => memwright::Advice::WipeOnFork,
            Advice::KeepOnFork => memwright::Advice::KeepOnFork,
            Advice::InstallGuard => memwright::Advice::GuardInstall,
            Advice::RemoveGuard => memwright::Advice::GuardRemove,
            Advice::WantHuge => memwright::Advice::Huge,
            Advice::RefuseHuge => memwright::Advice::NotHuge,
            Advice::Cold => memwright::Advice::Cold,
            Advice::PageOut => memwright::Advice::PageOut,
            Advice::Mergeable => memwright::Advice::Mergeable,
            Advice::Unmergeable => memwright::Advice::Unmergeable,
        };
        let real = self.processes[&process].on(cpu, |space| {
            space.advise(address(from), bytes(pages), real_advice)
        });
        let model = self.model.advise(process, from, pages, advice);
        if agree("advise", model, real.map_err(kind_of_advise))? {
            self.succeeded("advise");
        }
        Ok(())
    }
}
