//! The cgroup of a process.

use super::{Cgroup, Image, Membership, Process, faults};
use alloc::sync::Arc;
use memwright::Memcg;
use memwright_linux_abi::Space;
use memwright_linux_sched::scheduler::Work;

impl Process {
    /// Returns the group of the process; `None` for the root.
    pub fn cgroup(&self) -> Option<Arc<Cgroup>> {
        self.membership.lock().group.clone()
    }

    /// Returns the group that is charged for the memory of the process, if there is one.
    pub fn charged_group(&self) -> Option<Arc<Cgroup>> {
        self.membership.lock().charged.clone()
    }

    /// Returns whether the process is in `group` itself.
    pub fn is_in(&self, group: &Cgroup) -> bool {
        let own = self.cgroup();
        own.map_or(0, |own| own.id) == group.id
    }

    /// Returns whether the process is in `group` or in one below it.
    pub fn is_within(&self, group: &Cgroup) -> bool {
        self.cgroup().is_some_and(|own| own.is_within(group))
    }

    /// Returns the memcg that the swap slots of the process are charged to.
    pub fn memcg(&self) -> Memcg {
        let charged = self.charged_group();
        charged.map_or(Memcg::NOBODY, |group| group.memcg())
    }

    /// Replaces the group that is charged for the process.
    ///
    /// # Locks
    /// The caller holds the lock of the process table.
    pub fn set_charged(&self, group: Option<Arc<Cgroup>>) {
        let memcg = group.as_ref().map_or(Memcg::NOBODY, |group| group.memcg());
        let old = core::mem::replace(&mut self.membership.lock().charged, group);
        drop(old);
        if let Some(space) = self.space() {
            space.set_memcg(memcg);
        }
        self.mark_threads();
    }

    /// Puts a new process into the group of its parent. No thread of the new process runs yet.
    ///
    /// # Locks
    /// The caller holds the lock of the process table.
    pub fn inherit_membership(&self, parent: &Self) {
        let (group, charged) = {
            let membership = parent.membership.lock();
            (membership.group.clone(), membership.charged.clone())
        };
        *self.membership.lock() = Membership {
            group,
            charged: None,
            before: [0; 2],
        };
        if charged.is_some() {
            self.set_charged(charged);
        }
    }

    /// Sets the work flag that makes the threads of the process check the limits of their groups before they return to
    /// user mode.
    pub fn mark_threads(&self) {
        self.each_thread(|thread| thread.set_work(Work::CGROUP, true));
    }

    /// Adds the faults that the process has had since it joined its group, or since the last call, to the counts of the
    /// charged group and of those above it.
    pub fn settle_faults(&self) {
        let now = faults(&self.total_usage());
        let mut membership = self.membership.lock();
        membership.settle(now);
    }

    /// Returns the minor and major faults since the process joined its group.
    pub fn faults_in_group(&self) -> [u64; 2] {
        let now = faults(&self.total_usage());
        let before = self.membership.lock().before;
        [
            now[0].saturating_sub(before[0]),
            now[1].saturating_sub(before[1]),
        ]
    }

    /// Replaces the address space and the image. Charges the swap slots of the new address space to the memcg of the
    /// process. Returns the old address space and image.
    pub fn replace_space(
        &self,
        space: Arc<Space>,
        image: Arc<Image>,
    ) -> (Option<Arc<Space>>, Option<Arc<Image>>) {
        space.set_memcg(self.memcg());
        let old = self.image.lock().replace(image);
        (self.space.lock().replace(space), old)
    }
}
