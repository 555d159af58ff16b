//! Tests of heap allocations that can fail.

use std::vec::Vec;

use crate::handle::fail_heap_after;
use crate::{OutOfMemory, Shared, TryPush};

/// Checks that handles share a value, that a vector grows, and that `Shared::try_new` reports an injected heap failure.
#[test]
fn heap_failures_are_reported_and_nothing_is_lost() {
    let shared = Shared::try_new(std::vec![1, 2]).unwrap();
    let again = shared.clone();
    assert!(Shared::ptr_eq(&shared, &again));
    assert_eq!(Shared::references(&again), 2);
    drop(shared);
    assert_eq!(*again, [1, 2]);

    let mut list: Vec<u32> = Vec::new();
    list.try_push(1).unwrap();
    list.try_insert(0, 0).unwrap();
    list.try_make_room(100).unwrap();
    assert_eq!(list, [0, 1]);
    // At least one of these allocations must report the injected failure.
    let failed = (0..1000).any(|_| {
        fail_heap_after(Some(0));
        Shared::try_new(5).is_err_and(|error| error == OutOfMemory)
    });
    assert!(failed);
    fail_heap_after(None);
}
