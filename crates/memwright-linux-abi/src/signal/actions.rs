//! The actions of a process for all signals. They are private, or shared with other processes.

use super::{Action, ActionFlags, Handler, Signal};
use crate::errno::Errno;
use alloc::boxed::Box;
use memwright_linux_base::sync::{Lock, Rank};
use memwright_table::Shared;

/// A table with the action for each signal; index 0 is signal 1.
type Table = [Action; Signal::MAX as usize];

/// The actions of a process. Processes created with `CLONE_SIGHAND` but without `CLONE_THREAD` share one table until
/// they call `execve` (`sighand_struct` of Linux 7.2, `include/linux/sched/signal.h`).
#[derive(Default)]
pub struct Actions {
    /// The private table, or `None` if every action is the default. It is unused while the process shares a table.
    own: Option<Box<Table>>,
    shared: Option<Shared<Lock<Table>>>,
}

/// Returns a table in which every action is the default.
fn default_table() -> Table {
    [Action::default(); Signal::MAX as usize]
}

impl Actions {
    fn with<R>(&mut self, change: impl FnOnce(&mut Table) -> R) -> R {
        match &self.shared {
            None => change(self.own.get_or_insert_with(|| Box::new(default_table()))),
            Some(shared) => change(&mut shared.lock()),
        }
    }

    /// Returns the action for `signal`.
    pub fn get(&self, signal: Signal) -> Action {
        let index = signal.number() as usize - 1;
        match &self.shared {
            None => self
                .own
                .as_ref()
                .map_or_else(Action::default, |own| own[index]),
            Some(shared) => shared.lock()[index],
        }
    }

    /// Replaces the action for `signal`. Returns the previous action.
    pub fn replace(&mut self, signal: Signal, action: Action) -> Action {
        let index = signal.number() as usize - 1;
        self.with(|table| core::mem::replace(&mut table[index], action))
    }

    /// Returns the action for `signal`, which is being delivered. With `SA_RESETHAND`, also resets the action to the
    /// default.
    pub fn deliver(&mut self, signal: Signal) -> Action {
        let index = signal.number() as usize - 1;
        self.with(|table| {
            let action = table[index];
            let handled = matches!(action.handler, Handler::Function(_));
            if handled && action.flags.contains(ActionFlags::RESETHAND) {
                table[index].handler = Handler::Default;
            }
            action
        })
    }

    /// Resets the action for `signal` to the default if `forced` is set or if the signal is ignored. Returns whether
    /// the action was reset.
    pub fn force_default(&mut self, signal: Signal, forced: bool) -> bool {
        let index = signal.number() as usize - 1;
        self.with(|table| {
            let handler = &mut table[index].handler;
            let reset = forced || *handler == Handler::Ignore;
            if reset {
                *handler = Handler::Default;
            }
            reset
        })
    }

    /// Returns a copy of the actions for all signals; index 0 is signal 1.
    pub fn copy(&self) -> Table {
        match &self.shared {
            None => self.own.as_deref().copied().unwrap_or_else(default_table),
            Some(shared) => *shared.lock(),
        }
    }

    /// Creates the actions of a child, with a copy of the parent's table.
    pub fn inherit(&self) -> Self {
        let own = match &self.shared {
            None => self.own.clone(),
            Some(_) => Some(Box::new(self.copy())),
        };
        Self { own, shared: None }
    }

    /// Creates the actions of a child that shares the table of the parent, `self`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn share(&mut self) -> Result<Self, Errno> {
        let shared = match &self.shared {
            Some(shared) => shared.clone(),
            None => {
                let table = Lock::new(Rank::Leaf, self.copy());
                Shared::try_new(table).map_err(|_| Errno::ENOMEM)?
            }
        };
        self.shared = Some(shared.clone());
        Ok(Self {
            shared: Some(shared),
            ..Self::default()
        })
    }

    /// Resets the actions for `execve` and `CLONE_CLEAR_SIGHAND`: the table becomes private, handlers are reset to the
    /// default, and ignored signals stay ignored (`flush_signal_handlers` of Linux 7.2, `kernel/signal.c`).
    pub fn reset(&mut self) {
        if self.shared.is_some() {
            self.own = Some(Box::new(self.copy()));
            self.shared = None;
        }
        for action in self.own.iter_mut().flat_map(|own| own.iter_mut()) {
            let handler = match action.handler {
                Handler::Ignore => Handler::Ignore,
                Handler::Default | Handler::Function(_) => Handler::Default,
            };
            *action = Action {
                handler,
                ..Action::default()
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Action, ActionFlags, Actions, Handler, Signal};
    use crate::errno::Errno;

    const HANDLED: Action = Action {
        handler: Handler::Function(0x1000),
        flags: ActionFlags::RESETHAND,
        restorer: 0,
        mask: crate::signal::SignalSet::EMPTY,
    };

    #[test]
    fn changes_are_seen_by_who_shares_until_a_reset() {
        let mut parent = Actions::default();
        parent.replace(Signal::SIGUSR1, HANDLED);
        let copied = parent.inherit();
        let mut child = parent.share().unwrap();
        let mut grandchild = child.share().unwrap();
        assert_eq!(child.get(Signal::SIGUSR1), HANDLED);
        grandchild.replace(Signal::SIGUSR2, HANDLED);
        assert_eq!(parent.get(Signal::SIGUSR2), HANDLED);
        assert_eq!(copied.get(Signal::SIGUSR2), Action::default());
        child.reset();
        assert_eq!(child.get(Signal::SIGUSR2), Action::default());
        child.replace(Signal::SIGHUP, HANDLED);
        assert_eq!(parent.get(Signal::SIGHUP), Action::default());
        assert_eq!(
            parent.copy()[Signal::SIGUSR2.number() as usize - 1],
            HANDLED
        );
    }

    #[test]
    fn one_delivery_gets_a_handler_that_is_reset() {
        let mut parent = Actions::default();
        let mut child = parent.share().unwrap();
        child.replace(Signal::SIGUSR1, HANDLED);
        assert_eq!(parent.deliver(Signal::SIGUSR1), HANDLED);
        let left = child.deliver(Signal::SIGUSR1);
        assert_eq!(left.handler, Handler::Default);
        assert_eq!(left.flags, ActionFlags::RESETHAND);
    }

    #[test]
    fn sharing_fails_without_memory() {
        let mut parent = Actions::default();
        memwright_table::handle::fail_heap_after(Some(0));
        assert_eq!(parent.share().err(), Some(Errno::ENOMEM));
        assert!(parent.share().is_ok());
    }
}
