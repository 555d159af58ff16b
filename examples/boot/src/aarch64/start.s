// From the entry in EL1, without paging, to Rust, and from user mode to the kernel and back.
//
// TPIDR_EL1 is the number of the CPU. Until paging is on, symbols that are addressed relative to PC are physical
// addresses.

    .globl start, second_start, enter_user, no_user
    .section .start.text, "ax", @progbits
start:
    mov x0, 0
    b 1f
second_start:
    mov x0, 1
1:  msr daifset, 0xf            // no interrupts
    msr tpidr_el1, x0
    ldr x1, ={mair}
    msr mair_el1, x1
    ldr x1, ={tcr}
    msr tcr_el1, x1
    adrp x1, root
    msr ttbr0_el1, x1
    msr ttbr1_el1, x1
    tlbi vmalle1
    ic iallu
    dsb nsh
    isb
    ldr x1, ={sctlr}
    msr sctlr_el1, x1
    isb
    ldr x1, =start_high
    br x1
start_high:
    adrp x1, vectors
    add x1, x1, :lo12:vectors
    msr vbar_el1, x1
    adrp x1, stacks
    add x1, x1, {stack}
    cbz x0, 2f
    add x1, x1, {stack}
2:  mov sp, x1
    cbz x0, 3f
    bl {second}
3:  bl {first}
    .ltorg

    .text
    // fn enter_user(context: *mut Context): leaves the kernel's registers and the context on the stack, and loads the
    // registers of the context. The next trap in user mode stores the program's registers into the context, and returns
    // to the caller.
enter_user:
    sub sp, sp, 112
    .irp register, 19,20,21,22,23,24,25,26,27,28,29,30
    str x\register, [sp, 8 * (\register - 19)]
    .endr
    str x0, [sp, 96]
    ldp x1, x2, [x0, 8 * 31]
    msr elr_el1, x1
    msr spsr_el1, x2
    .irp register, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30
    ldr x\register, [x0, 8 * \register]
    .endr
    ldr x0, [x0]
    eret

user_trap:
    str x0, [sp, 104]
    ldr x0, [sp, 96]
    .irp register, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30
    str x\register, [x0, 8 * \register]
    .endr
    ldr x1, [sp, 104]
    str x1, [x0]
    mrs x1, elr_el1
    mrs x2, spsr_el1
    stp x1, x2, [x0, 8 * 31]
    .irp register, 19,20,21,22,23,24,25,26,27,28,29,30
    ldr x\register, [sp, 8 * (\register - 19)]
    .endr
    add sp, sp, 112
    ret

    // 16 vectors of 128 bytes. The ninth one is that of synchronous exceptions in user mode.
    .balign 2048
vectors:
    .rept 8
    bl {kernel_trap}
    .balign 128
    .endr
    b user_trap
    .balign 128
    .rept 7
    bl {kernel_trap}
    .balign 128
    .endr

    // The first GiB, which contains devices, and the second one, which contains memory: at address 0 for the start, and at
    // MEMORY_BASE. Each is one block, which EL1 may read and write, and which has been accessed.
    .data
    .balign 4096
root:
    .quad gibibytes - {base} + 3
    .fill 255, 8, 0
    .quad gibibytes - {base} + 3
    .fill 255, 8, 0
gibibytes:
    .quad {device}
    .quad {memory} + (1 << 30)
    .fill 510, 8, 0

    // The root table of a CPU that runs no program: without entries.
    .bss
    .balign 4096
no_user:
    .skip 4096
stacks:
    .skip 2 * {stack}
