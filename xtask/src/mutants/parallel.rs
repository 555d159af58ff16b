//! Processes items on all processors, and hands the results over in the order of the items.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Calls `act` for each item, on as many threads as there are processors. Calls `take` with each result, on the calling
/// thread and in the order of the items, as soon as the results before it exist.
pub fn each<T: Sync, R: Send>(
    items: &[T],
    act: impl Fn(&T) -> R + Sync,
    mut take: impl FnMut(&T, R),
) {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let work = |sender: mpsc::Sender<(usize, R)>| loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(item) = items.get(index) else {
            break;
        };
        if sender.send((index, act(item))).is_err() {
            break;
        }
    };
    thread::scope(|scope| {
        let width = thread::available_parallelism().map_or(1, NonZero::get);
        for _ in 0..width.min(items.len()) {
            let sender = sender.clone();
            scope.spawn(|| work(sender));
        }
        drop(sender);
        let mut early = BTreeMap::new();
        let mut items = items.iter().enumerate().peekable();
        for (index, result) in receiver {
            early.insert(index, result);
            while let Some((index, item)) = items.peek() {
                let Some(result) = early.remove(index) else {
                    break;
                };
                take(item, result);
                items.next();
            }
        }
    });
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
        each(&items, late_if_even, |item, result| {
            results.push((*item, result));
        });
        let expected: Vec<(u64, u64)> = items.iter().map(|item| (*item, item * 2)).collect();
        assert_eq!(results, expected);
        each(&[], late_if_even, |_, _| panic!("there is no item"));
    }
}
