//! Helpers that several tests share: a booted machine, programs on it, and short functions.
#![allow(dead_code, reason = "no test uses everything")]

use std::sync::Arc;

use memwright::{MapRequest, Placement, Rights};
use memwright_sim::programs::{self, Host, Process};
use memwright_sim::{MachineOptions, SimulatedMachine};
use memwright_table::{CpuId, PAGE_SIZE, Page, VirtAddr};
use memwright_testkit::process::Signal;

pub const FIRST: CpuId = CpuId::new(0);
pub const SECOND: CpuId = CpuId::new(1);
pub const READ: Rights = Rights::READ;
pub const READ_WRITE: Rights = Rights::READ.union(Rights::WRITE);

/// The first page that tests map by default: two pages below a boundary between page tables.
pub const START: Page = Page::new(3 * 512 * 512 - 2);

pub fn boot() -> Arc<Host> {
    programs::boot(MachineOptions {
        frames: 512,
        ..MachineOptions::default()
    })
}

pub fn bytes(pages: u64) -> u64 {
    pages * PAGE_SIZE as u64
}

pub fn at(page: u64) -> VirtAddr {
    START.add(page).address()
}

/// Creates a program with `pages` pages of private anonymous memory at `START`.
pub fn program(host: &Arc<Host>, pages: u64, rights: Rights) -> Process {
    let process = Process::new(host);
    map(&process, MapRequest::anonymous(bytes(pages), rights), 0);
    process
}

/// Maps at page `page`, counted from `START`.
pub fn map(process: &Process, request: MapRequest<SimulatedMachine>, page: u64) {
    let request = request.at(Placement::Fixed(at(page)));
    process
        .on(FIRST, |space| space.map(&request))
        .expect("room to map");
}

pub fn protect(process: &Process, cpu: CpuId, page: u64, pages: u64, rights: Rights) {
    process
        .on(cpu, |space| space.protect(at(page), bytes(pages), rights))
        .expect("mapped");
}

pub fn unmap(process: &Process, cpu: CpuId, page: u64, pages: u64) {
    process
        .on(cpu, |space| space.unmap(at(page), bytes(pages)))
        .expect("mapped");
}

pub fn fork(process: &Process, cpu: CpuId) -> Process {
    process.fork(cpu).expect("memory for a child")
}

pub fn write(process: &Process, cpu: CpuId, page: u64, value: u8) -> Result<(), Signal> {
    process.write(cpu, at(page), &[value])
}

pub fn read(process: &Process, cpu: CpuId, page: u64) -> Result<u8, Signal> {
    let mut byte = [0];
    process.read(cpu, at(page), &mut byte).map(|()| byte[0])
}

/// Checks that no CPU has a stale translation, and that the machine has recorded no violation.
pub fn assert_coherent(host: &Host) {
    assert_eq!(host.machine().audit(), []);
    assert_eq!(host.machine().take_violations(), Vec::<String>::new());
}
