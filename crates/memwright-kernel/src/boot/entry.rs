//! The first instructions: from the 32-bit entry of the PVH protocol to 64-bit Rust.
//!
//! PVH hands over in 32-bit protected mode without paging, EBX holding the physical address of the
//! start info. The boot tables map the first GiB twice, at zero and at the link address; `paging`
//! replaces them before anything else runs, so the identity mapping is short-lived.
//!
//! Written with nothing but absolute addresses: until the last jump it runs 2 GiB below its link address.

use core::arch::global_asm;

/// Added to a link address, modulo 2^64, it gives the physical address (`IMAGE_BASE` negated).
const LIFT: u64 = crate::paging::IMAGE_BASE.wrapping_neg();

/// Bytes of the stack the boot processor starts on; it later serves as its idle stack.
pub const BOOT_STACK_SIZE: usize = 64 * 1024;

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
    lea rsp, [rip + boot_stack_end]
    xor ebp, ebp
    mov edi, ebx
    push rbp                    // the end of every backtrace: no caller, no frame
    jmp kernel_main

    .section .boot.data, "aw", @progbits
    .balign 4096
boot_top:
    .quad boot_directory_low + {lift} + 3
    .fill 510, 8, 0
    .quad boot_directory_high + {lift} + 3
boot_directory_low:
    .quad boot_pages + {lift} + 3
    .fill 511, 8, 0
boot_directory_high:
    .fill 510, 8, 0
    .quad boot_pages + {lift} + 3
    .quad 0
boot_pages:
    .set boot_index, 0
    .rept 512
    .quad (boot_index << 21) + 0x83
    .set boot_index, boot_index + 1
    .endr
boot_gdt:
    .quad 0
    .quad 0
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
    .skip 4096                  // becomes the guard page
    .skip {stack}
    .globl boot_stack_end
boot_stack_end:
    .text
"#,
    lift = const LIFT,
    stack = const BOOT_STACK_SIZE,
);
