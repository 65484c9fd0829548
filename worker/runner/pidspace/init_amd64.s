// Init: the first process of a task's namespaces. It mounts /proc, says that it is ready, and lives as long as the
// runner. It is a program of its own, without the Go runtime: it starts with its words on the stack (initWords).
//
// Descriptor 0 is a pipe that nobody can write to once the runner has ended. Descriptor 1 is where it says that it is
// ready.

#include "textflag.h"

// func initCode() unsafe.Pointer
TEXT ·initCode(SB), NOSPLIT, $0-8
	LEAQ	·initMain(SB), AX
	MOVQ	AX, ret+0(FP)
	RET

TEXT ·initMain(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ	SP, BX		// argc, argv[0], 0, the environment
	// mount(0, "/", 0, MS_REC|MS_SLAVE, 0): nothing that is mounted here appears in the host
	XORL	DI, DI
	MOVQ	24(BX), SI
	XORL	DX, DX
	MOVL	$0x84000, R10
	XORL	R8, R8
	MOVL	$165, AX
	SYSCALL
	TESTQ	AX, AX
	JNE	end
	// mount("proc", "/proc", "proc", MS_NOSUID|MS_NODEV|MS_NOEXEC, 0)
	MOVQ	32(BX), DI
	MOVQ	40(BX), SI
	MOVQ	32(BX), DX
	MOVL	$14, R10
	XORL	R8, R8
	MOVL	$165, AX
	SYSCALL
	TESTQ	AX, AX
	JNE	end
	// open("/proc/sys/kernel/ns_last_pid", O_WRONLY) and write the number, where the kernel has that file
	MOVQ	48(BX), DI
	MOVL	$1, SI
	XORL	DX, DX
	MOVL	$2, AX
	SYSCALL
	TESTQ	AX, AX
	JLT	name
	MOVQ	AX, R12
	MOVQ	AX, DI
	MOVQ	56(BX), SI
	MOVL	$10, DX
	MOVL	$1, AX
	SYSCALL
	MOVQ	R12, DI
	MOVL	$3, AX		// close
	SYSCALL
name:
	// prctl(PR_SET_NAME, argv[0])
	MOVL	$15, DI
	MOVQ	8(BX), SI
	MOVL	$157, AX
	SYSCALL
	// rt_sigaction(SIGCHLD, SIG_IGN): the kernel reaps the processes that lost their parent
	SUBQ	$32, SP
	MOVQ	$1, 0(SP)
	MOVQ	$0, 8(SP)
	MOVQ	$0, 16(SP)
	MOVQ	$0, 24(SP)
	MOVL	$17, DI
	MOVQ	SP, SI
	XORL	DX, DX
	MOVL	$8, R10
	MOVL	$13, AX
	SYSCALL
	// write(1, argv[0], 1) and close(1)
	MOVL	$1, DI
	MOVQ	8(BX), SI
	MOVL	$1, DX
	MOVL	$1, AX
	SYSCALL
	MOVL	$1, DI
	MOVL	$3, AX
	SYSCALL
wait:
	// read(0, the stack, 1) until it is the end of the file
	XORL	DI, DI
	MOVQ	SP, SI
	MOVL	$1, DX
	XORL	AX, AX
	SYSCALL
	TESTQ	AX, AX
	JNE	wait
end:
	MOVL	$1, DI
	MOVL	$231, AX	// exit_group
	SYSCALL
	JMP	end
