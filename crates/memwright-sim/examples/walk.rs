//! Performs one operation of the memory manager. `cargo xtask walk` runs this program and traces the function calls
//! inside [`operation`].
//!
//! The name of the operation is the only argument. The program prepares the state for the operation before it calls
//! `operation`, and checks the result afterwards.

use std::process::ExitCode;
use std::sync::Arc;

use memwright::{Access, Advice, FaultKind, MapRequest, Placement, Rights};
use memwright_sim::process::{Host, Process};
use memwright_sim::{HostSwap, MachineOptions};
use memwright_table::{CpuId, PAGE_SIZE, VirtAddr};

const CPU: CpuId = CpuId::new(0);
const START: u64 = 0x7000_0000_0000;
const READ_WRITE: Rights = Rights::READ.union(Rights::WRITE);
const STORE: Access = Access {
    write: true,
    fetch: false,
    user: true,
};
const LOAD: Access = Access {
    write: false,
    ..STORE
};

/// Performs the operation. The trace begins when this function is called and ends when it returns.
#[inline(never)]
fn operation<T>(perform: impl FnOnce() -> T) -> T {
    perform()
}

fn at(page: u64) -> VirtAddr {
    VirtAddr::new(START + page * PAGE_SIZE as u64)
}

fn bytes(pages: u64) -> u64 {
    pages * PAGE_SIZE as u64
}

fn boot() -> Arc<Host> {
    Host::boot(MachineOptions {
        frames: 1024,
        ..MachineOptions::default()
    })
}

fn map(process: &Process, page: u64, pages: u64) {
    let request = MapRequest::anonymous(bytes(pages), READ_WRITE).at(Placement::Fixed(at(page)));
    let mapped = process.on(CPU, |space| space.map(&request));
    assert_eq!(mapped, Ok(at(page)));
}

fn touch(process: &Process, page: u64, pages: u64) {
    for page in page..page + pages {
        process.write(CPU, at(page), &[1]).expect("writable");
    }
}

/// The first store to a page of private anonymous memory, next to a page that is present.
fn fault() {
    let process = Process::new(&boot());
    map(&process, 0, 16);
    touch(&process, 0, 1);
    let resolved = process.on(CPU, |space| operation(|| space.fault(at(1), STORE)));
    assert_eq!(resolved, Ok(FaultKind::DemandZero));
}

/// `mprotect` that makes a part of a read-only area writable. All of its pages are present.
fn mprotect() {
    let process = Process::new(&boot());
    map(&process, 0, 16);
    touch(&process, 0, 16);
    let protected = process.on(CPU, |space| {
        space.protect(at(0), bytes(16), Rights::READ)?;
        operation(|| space.protect(at(4), bytes(4), READ_WRITE))
    });
    assert_eq!(protected, Ok(()));
    touch(&process, 4, 4);
}

/// A fork of an address space with three areas, two of which have pages.
fn fork() {
    let process = Process::new(&boot());
    for area in 0..3 {
        map(&process, area * 32, 8);
    }
    touch(&process, 0, 2);
    touch(&process, 32, 2);
    let child = process.on(CPU, |space| operation(|| space.fork()));
    let child = child.expect("memory for a child");
    assert_eq!(child.usage().resident_pages(), 4);
    drop(child);
}

/// A load of a page that is in swap.
fn swap_in() {
    let host = boot();
    let added = host.memory().add_swap(Arc::new(HostSwap::new(16)), 0);
    assert_eq!(added, Ok(Some(0)));
    let process = Process::new(&host);
    map(&process, 0, 16);
    touch(&process, 0, 1);
    let resolved = process.on(CPU, |space| {
        space
            .advise(at(0), bytes(1), Advice::PageOut)
            .expect("mapped");
        operation(|| space.fault(at(0), LOAD))
    });
    assert_eq!(resolved, Ok(FaultKind::SwapIn));
}

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    match name.as_str() {
        "fault" => fault(),
        "mprotect" => mprotect(),
        "fork" => fork(),
        "swap-in" => swap_in(),
        _ => {
            eprintln!("usage: walk fault|mprotect|fork|swap-in");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
