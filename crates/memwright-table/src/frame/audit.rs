//! Counts of frames and references from a walk over all metadata, for audits.

use core::sync::atomic::Ordering;

use super::frames::Frames;
use super::kind::FrameKind;
use super::meta::State;
use super::order::FOLIO_FRAMES;
use crate::machine::Machine;

/// The result of [`Frames::audit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameAudit {
    /// The number of free frames.
    pub free: u64,
    /// The number of frames of each kind, in the order of [`FrameKind::ALL`].
    pub by_kind: [u64; FrameKind::COUNT],
    /// The total number of references to allocated blocks.
    pub references: u64,
}

impl FrameAudit {
    /// The number of frames of `kind`.
    pub fn of(&self, kind: FrameKind) -> u64 {
        self.by_kind[kind.index()]
    }
}

impl<M: Machine> Frames<M> {
    /// Counts frames and references by walking all metadata.
    pub fn audit(&self) -> FrameAudit {
        let mut audit = FrameAudit {
            free: 0,
            by_kind: [0; FrameKind::COUNT],
            references: 0,
        };
        let metas = self.metas();
        let mut number = metas.lowest;
        while let Some(meta) = metas.find(number) {
            let state = meta.state();
            let mut references = meta.references.load(Ordering::Relaxed);
            let mut frames = 1;
            if state.has(State::FOLIO) {
                references = references - 1 + meta.whole.load(Ordering::Relaxed);
                if !state.has(State::PARTED) {
                    frames = FOLIO_FRAMES;
                }
            } else if state.has(State::PART) {
                references -= 1;
            }
            audit.by_kind[state.kind().index()] += u64::from(frames);
            audit.references += u64::from(references);
            number += frames;
        }
        audit.free = audit.of(FrameKind::Free);
        audit
    }
}
