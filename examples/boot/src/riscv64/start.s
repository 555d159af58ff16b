// From the entry in supervisor mode, without paging, to Rust, and from user mode to the kernel and back.
//
// TP is the number of the CPU. Until paging is on, symbols that are addressed relative to PC are physical addresses.

    .globl start, second_start, enter_user, root
    .section .start.text, "ax", @progbits
start:                          // A0: the number of the hart; A1: the physical address of the device tree
    li tp, 0
    j 1f
second_start:
    li tp, 1
1:  la t0, root
    srli t0, t0, 12
    li t1, {mode}
    or t0, t0, t1
    sfence.vma
    csrw satp, t0
    la t0, start_high
    li t1, {base}
    add t0, t0, t1
    jr t0
start_high:
    la t0, trap
    csrw stvec, t0
    csrw sie, zero              // no interrupts
    la sp, stacks
    li t0, {stack}
    add sp, sp, t0
    bnez tp, 2f
    call {first}
2:  add sp, sp, t0
    call {second}

    .text
    // fn enter_user(context: *mut Context): leaves the kernel's registers on the stack, and loads those of the context.
    // The next trap in user mode stores the program's registers into the context, and returns to the caller.
enter_user:
    addi sp, sp, -32 * 8
    .irp register, 1,4,8,9,18,19,20,21,22,23,24,25,26,27
    sd x\register, 8 * \register(sp)
    .endr
    sd sp, {kernel_stack}(a0)
    csrw sscratch, a0
    la t0, user_trap
    csrw stvec, t0
    ld t0, 0(a0)
    csrw sepc, t0
    li t0, 1 << 8               // SPP: the mode to which SRET returns
    csrc sstatus, t0
    fence.i                     // the kernel may have written the program's instructions
    .irp register, 1,2,3,4,5,6,7,8,9,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    ld x\register, 8 * \register(a0)
    .endr
    ld a0, 80(a0)
    sret

    .balign 4
user_trap:
    csrrw a0, sscratch, a0
    .irp register, 1,2,3,4,5,6,7,8,9,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    sd x\register, 8 * \register(a0)
    .endr
    csrr t0, sscratch
    sd t0, 80(a0)
    csrr t0, sepc
    sd t0, 0(a0)
    la t0, trap
    csrw stvec, t0
    ld sp, {kernel_stack}(a0)
    .irp register, 1,4,8,9,18,19,20,21,22,23,24,25,26,27
    ld x\register, 8 * \register(sp)
    .endr
    addi sp, sp, 32 * 8
    ret

    .balign 4
trap:                           // in the kernel
    call {kernel_trap}

    // The first 512 GiB (4 GiB with Sv39), at address 0 for the start, and at MEMORY_BASE, as pages of 512 GiB (1 GiB):
    // readable, writable, executable, accessed and dirty.
    .data
    .balign 4096
root:
    .rept 2
    .if {sv39}
    .quad 0xcf, 0xcf + (1 << 28), 0xcf + (2 << 28), 0xcf + (3 << 28)
    .fill 252, 8, 0
    .else
    .quad 0xcf
    .fill 255, 8, 0
    .endif
    .endr

    .bss
    .balign 4096
stacks:
    .skip 2 * {stack}
