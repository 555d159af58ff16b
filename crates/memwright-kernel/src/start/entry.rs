//! The first instructions: from the 32-bit entry of the PVH protocol to 64-bit Rust.
//!
//! The PVH protocol enters the kernel in 32-bit protected mode without paging, with the physical address of the start
//! info in EBX. The boot tables map the first 4 GiB at address zero, and the first GiB also at the link address.
//! `paging` replaces the boot tables early in the boot, so the identity mapping is short-lived.
//!
//! A secondary CPU starts in real mode in the page that [`smp`](crate::smp) fills. It then enters this code with zero
//! in EBX. Before its first push, it switches from the boot tables to the kernel's own tables.
//!
//! The code uses only absolute addresses, because until the last jump it runs 2 GiB below its link address.

use core::arch::global_asm;

use crate::memory::paging::{BOOT_STACK_SIZE, IMAGE_BASE};
use crate::smp::{START, TRAMPOLINE};

/// The value that converts a link address to its physical address by addition modulo 2^64 (`IMAGE_BASE` negated).
const LIFT: u64 = IMAGE_BASE.wrapping_neg();

global_asm!(
    r#"
    .section .note.pvh, "a", @note
    .balign 4
    .long 4                     // length of the name
    .long 8                     // length of the value
    .long 18                    // XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .quad pvh_entry + {lift}

    .section .boot.text, "ax", @progbits
    .code32
    .globl pvh_entry
pvh_entry:
    cli
    cld
    mov eax, cr4
    or eax, 0x20                // PAE
    mov cr4, eax
    mov eax, offset boot_top + {lift}
    mov cr3, eax
    mov ecx, 0xc0000080         // EFER
    rdmsr
    or eax, 0x901               // SCE, LME, NXE
    wrmsr
    mov eax, cr0
    and eax, 0x9fffffff         // caches on
    or eax, 0x80010001          // PG, WP, PE
    mov cr0, eax
    mov eax, offset boot_gdt_pointer + {lift}
    lgdt [eax]
    push 0x10
    mov eax, offset boot_long_mode + {lift}
    push eax
    retf
    .code64
boot_long_mode:
    movabs rax, offset boot_high
    jmp rax
boot_high:
    mov eax, 0x18
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor eax, eax
    mov fs, eax
    mov gs, eax
    xor ebp, ebp
    test ebx, ebx
    jz boot_secondary
    lea rsp, [rip + boot_stack_end]
    mov edi, ebx
    push rbp                    // the end of every backtrace: no caller, no frame
    jmp kernel_main

boot_secondary:
    mov rax, [rip + {start}]    // the kernel's own tables: from now on, the identity mapping is gone
    mov cr3, rax
    mov rsp, [rip + {start} + 8]
    mov rdi, [rip + {start} + 16]
    push rbp
    jmp secondary_main

    // The page in which other CPUs start contains a copy of this code. This page is also the base of their code
    // segment.
    .globl secondary_trampoline, secondary_trampoline_end
    .code16
secondary_trampoline:
    cli
    .byte 0x66                  // prefix: load the whole 32-bit base
    lgdt cs:[32]
    mov eax, cr0
    or al, 1                    // PE
    mov cr0, eax
    .byte 0x66, 0xea            // a far jump to 32-bit code
    .long secondary_protected + {lift}
    .word 0x08
    .org secondary_trampoline + 32
    .word 31
    .long boot_gdt + {lift}
secondary_trampoline_end:
    .code32
secondary_protected:
    mov eax, 0x18
    mov ds, eax
    mov ss, eax
    mov esp, {trampoline} + 4096
    xor ebx, ebx
    jmp pvh_entry
    .code64

    .section .boot.data, "aw", @progbits
    .balign 4096
boot_top:
    .quad boot_directory_low + {lift} + 3
    .fill 510, 8, 0
    .quad boot_directory_high + {lift} + 3
boot_directory_low:
    .quad boot_pages + {lift} + 0x0003
    .quad boot_pages + {lift} + 0x1003
    .quad boot_pages + {lift} + 0x2003
    .quad boot_pages + {lift} + 0x3003
    .fill 508, 8, 0
boot_directory_high:
    .fill 510, 8, 0
    .quad boot_pages + {lift} + 3
    .quad 0
boot_pages:
    .set boot_index, 0
    .rept 2048
    .quad (boot_index << 21) + 0x83
    .set boot_index, boot_index + 1
    .endr
boot_gdt:
    .quad 0
    .quad 0x00cf9b000000ffff    // 0x08: 32-bit code
    .quad 0x00af9b000000ffff    // 0x10: 64-bit code
    .quad 0x00cf93000000ffff    // 0x18: data
boot_gdt_pointer:
    .word 31
    .long boot_gdt + {lift}
    .long 0

    .section .bss.boot_stack, "aw", @nobits
    .balign 4096
    .globl boot_stack
boot_stack:
    .skip 4096                  // this page becomes the guard page
    .skip {stack}
    .globl boot_stack_end
boot_stack_end:
    .text
"#,
    lift = const LIFT,
    start = sym START,
    trampoline = const TRAMPOLINE,
    stack = const BOOT_STACK_SIZE,
);
