//! Brings up a secondary CPU, and passes it to the personality.

use core::sync::atomic::Ordering;

use super::processor;
use crate::percpu::{self, PerCpu};
use crate::trap::idt;
use crate::{apic, arch, clock, selftest, smp, usercopy};

/// The entry point of Rust code on a secondary CPU. It runs on the CPU's idle stack and with the kernel's tables.
#[unsafe(no_mangle)]
extern "C" fn secondary_main(cpu: *const PerCpu) -> ! {
    // SAFETY: `smp` created the structure for this CPU alone, and never frees it.
    let cpu: &'static PerCpu = unsafe { &*cpu };
    // SAFETY: each CPU runs this code once, with interrupts disabled; the first CPU has filled the table.
    unsafe {
        cpu.setup();
        idt::load();
    }
    processor::setup();
    apic::start_cpu();
    // Account the time before this point as idle, and begin the first stretch here. Otherwise the stretch would begin
    // at power-on, and the host would determine its length.
    percpu::add(&cpu.idle_ticks, clock::ticks());
    cpu.changed.store(arch::ticks(), Ordering::Relaxed);
    percpu::set_online(cpu);
    if smp::is_for_tests() {
        selftest::secondary()
    }
    match usercopy::events() {
        Some(events) => events.cpu_start(),
        None => arch::halt_forever(),
    }
}
