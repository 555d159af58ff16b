// From the 32-bit entry of the PVH protocol to 64-bit Rust, and from user mode to the kernel and back.
//
// `lift`, added to a link address modulo 2^64, gives the physical address.

    .section .note.pvh, "a", @note
    .balign 4
    .long 4, 8, 18              // lengths of the name and of the value; XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .quad start + {lift}

    .globl start, enter_user, vectors, trampoline, trampoline_end, root, gdt
    .section .start.text, "ax", @progbits
    .code32
start:                          // EBX: the physical address of the start info; 0 on the second CPU
    cld
    mov eax, cr4
    or eax, 0x20                // PAE
    mov cr4, eax
    mov eax, offset root + {lift}
    mov cr3, eax
    mov ecx, 0xc0000080         // EFER
    rdmsr
    or eax, 0x900               // LME, NXE
    wrmsr
    mov eax, cr0
    and eax, 0x9fffffff         // caches on
    or eax, 0x80010001          // PG, WP, PE
    mov cr0, eax
    mov eax, offset gdt_pointer + {lift}
    lgdt [eax]
    push 0x10
    mov eax, offset start64 + {lift}
    push eax
    retf
    .code64
start64:
    movabs rax, offset start_high
    jmp rax
start_high:
    mov edi, ebx
    test ebx, ebx
    jz 2f
    lea rsp, [rip + stacks + {stack}]
    call {first}
2:  lea rsp, [rip + stacks + 2 * {stack}]
    call {second}

    // The second CPU starts in real mode, in a copy of this code in a page below 1 MiB. It needs a stack only for the
    // far return in `start`: the end of this page.
    .code16
trampoline:
    .byte 0x66                  // the whole 32-bit base
    lgdt cs:[32]
    mov eax, cr0
    or al, 1                    // PE
    mov cr0, eax
    .byte 0x66, 0xea            // a far jump to 32-bit code
    .long trampoline32 + {lift}
    .word 0x08
    .org trampoline + 32
    .word 79
    .long gdt + {lift}
trampoline_end:
    .code32
trampoline32:
    mov eax, 0x18
    mov ds, eax
    mov ss, eax
    mov esp, {trampoline_page} + 4096
    xor ebx, ebx
    jmp start
    .code64

    .text
    // fn enter_user(context: *mut Context): leaves the kernel's registers on the stack, and loads those of the context.
    // The next trap in user mode stores the program's registers into the context, and returns to the caller.
enter_user:
    .irp register, rbx, rbp, r12, r13, r14, r15
    push \register
    .endr
    mov [rdi + {context}], rsp
    mov rsp, rdi
    .irp register, r15, r14, r13, r12, r11, r10, r9, r8, rbp, rdi, rsi, rdx, rcx, rbx, rax
    pop \register
    .endr
    add rsp, 16                 // the vector and the error code
    iretq

trap:                           // in user mode, it pushed onto the end of the context, to which the task state points
    test byte ptr [rsp + 24], 3 // CS
    jz 3f
    .irp register, rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15
    push \register
    .endr
    cld
    mov rsp, [rsp + {context}]
    .irp register, r15, r14, r13, r12, rbp, rbx
    pop \register
    .endr
    ret
3:  pop rdi
    pop rsi
    mov rdx, [rsp]
    and rsp, -16
    call {kernel_trap}

    // The handler of each vector, 16 bytes apart. For some exceptions, the processor pushes an error code.
    .balign 16
vectors:
    .set vector, 0
    .rept 256
    .balign 16
    .if vector >= 32 || (0x60227d00 >> vector) & 1 == 0
    push 0
    .endif
    push vector
    jmp trap
    .set vector, vector + 1
    .endr

    // The first 4 GiB in pages of 1 GiB, at address 0 for the start, and at MEMORY_BASE; and 1 GiB at the link address.
    .data
    .balign 4096
root:
    .quad low + {lift} + 3
    .fill 255, 8, 0
    .quad low + {lift} + 3
    .fill 254, 8, 0
    .quad high + {lift} + 3
low:
    .quad 0x83, 0x40000083, 0x80000083, 0xc0000083
    .fill 508, 8, 0
high:
    .fill 510, 8, 0
    .quad 0x83, 0
gdt:                            // code of 32 bits; the kernel's code and data; user data and code; two task states
    .quad 0, 0x00cf9b000000ffff, 0x00af9b000000ffff, 0x00cf93000000ffff, 0x00cff3000000ffff, 0x00affb000000ffff
    .quad 0, 0, 0, 0
gdt_pointer:
    .word 79
    .long gdt + {lift}

    .bss
    .balign 4096
stacks:
    .skip 2 * {stack}
