//! Processes items on all processors, and hands the results over in the order of the items.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result};

/// Calls `act` for each item, on as many threads as there are processors. Calls `take` with each result, on the calling
/// thread and in the order of the items, as soon as the results before it exist.
///
/// # Errors
/// The first error of `take`. No item is begun after it.
pub fn each<T: Sync, R: Send>(
    items: &[T],
    act: impl Fn(&T) -> R + Sync,
    mut take: impl FnMut(&T, R) -> Result<()>,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let work = |sender: mpsc::Sender<(usize, R)>| {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else {
                break;
            };
            if sender.send((index, act(item))).is_err() {
                break;
            }
        }
    };
    thread::scope(|scope| {
        // Dropped at an error, so that the threads end.
        let receiver = receiver;
        let width = thread::available_parallelism().map_or(1, NonZero::get);
        for _ in 0..width.min(items.len()) {
            let sender = sender.clone();
            scope.spawn(|| work(sender));
        }
        drop(sender);
        let mut early = BTreeMap::new();
        for (index, item) in items.iter().enumerate() {
            let result = loop {
                if let Some(result) = early.remove(&index) {
                    break result;
                }
                let (ended, result) = receiver.recv().context("a thread panicked")?;
                early.insert(ended, result);
            };
            take(item, result)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..50).collect();
        let mut results = Vec::new();
        let late_if_even = |item: &u64| {
            thread::sleep(std::time::Duration::from_millis((item + 1) % 2));
            item * 2
        };
        let taken = each(&items, late_if_even, |item, result| {
            results.push((*item, result));
            Ok(())
        });
        taken.expect("no error");
        let expected: Vec<(u64, u64)> = items.iter().map(|item| (*item, item * 2)).collect();
        assert_eq!(results, expected);
        each(&[], late_if_even, |_, _| panic!("there is no item")).expect("no error");
    }
    #[test]
    fn an_error_is_the_last_result() {
        let items: Vec<u64> = (0..50).collect();
        let mut taken = 0;
        let failed = each(
            &items,
            |item| *item,
            |_, item| {
                taken += 1;
                anyhow::ensure!(item < 3, "item {item}");
                Ok(())
            },
        );
        assert_eq!(failed.expect_err("an error").to_string(), "item 3");
        assert_eq!(taken, 4);
    }
}
