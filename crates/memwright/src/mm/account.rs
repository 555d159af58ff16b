//! The account: counters of events, with the values that are computed when it is read.

use memwright_table::sync::stat;
use memwright_table::{Machine, Usage};

use crate::mm::memory::{Memory, lock_statistics};
use crate::types::stats::{Account, ROW_COUNT, ROWS, Row};

impl<M: Machine> Memory<M> {
    /// Returns the current values of all counters.
    pub fn account(&self) -> Account {
        self.account_with(self.frames.usage())
    }

    /// Like `account`, but returns `None` instead of waiting for a lock. For reports of failures, which must not wait.
    pub fn try_account(&self) -> Option<Account> {
        self.frames
            .try_usage()
            .map(|usage| self.account_with(usage))
    }

    fn account_with(&self, usage: Usage) -> Account {
        let requested = self.policy.count_locks();
        let (locks, lines) = if requested {
            lock_statistics()
        } else {
            Default::default()
        };
        let slots = self.swap.slots_in_use();
        let unshared = self.frames.unshared_counts();
        let mut values = [0; ROW_COUNT];
        for definition in ROWS {
            values[definition.row as usize] = match definition.row {
                Row::FramesPeak => usage.used_peak,
                Row::FramesInUse => usage.used,
                Row::SwapSlots => slots,
                Row::TableFrames => usage.tables,
                Row::TableFramesPeak => usage.tables_peak,
                Row::TablesCopied => unshared.copied,
                Row::TablesTaken => unshared.taken,
                Row::LocksTaken => locks.taken,
                Row::LocksBounced => locks.bounced,
                Row::LockWordsShared => locks.shared,
                Row::LocksWaited => locks.waited,
                Row::LinesBounced => lines.bounced,
                Row::LinesShared => lines.shared,
                Row::LinesMissed => stat::missed(),
                row => self.counters.sum(row),
            };
        }
        // The page counts of an address space do not include zero pages that faults mapped, so add those here: each
        // full flush may have dropped the translations of all of them.
        values[Row::FlushDropped as usize] +=
            values[Row::FlushLocalFull as usize] * values[Row::FaultZeroPage as usize];
        // The memory manager counts only the flushes of its own operations. The flushes for copied shared page tables
        // are performed and counted by `memwright-table`.
        for (row, flushes) in [
            (Row::FlushLocal, unshared.local),
            (Row::FlushLocalFull, unshared.local),
            (Row::FlushRemote, unshared.remote),
            (Row::FlushCpusInterrupted, unshared.interrupted),
        ] {
            values[row as usize] += flushes;
        }
        // Changed entries are counted only by kind: the total is the sum over the kinds.
        values[Row::EntriesChanged as usize] = [
            Row::EntriesGrew,
            Row::EntriesShrank,
            Row::EntriesMoved,
            Row::EntriesFreed,
            Row::EntriesLostCachedBit,
            Row::EntriesFilled,
        ]
        .iter()
        .map(|row| values[*row as usize])
        .sum();
        Account { values, requested }
    }
}
