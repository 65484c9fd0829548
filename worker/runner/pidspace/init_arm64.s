// Init for arm64; see init_amd64.s.

#include "textflag.h"

// func initCode() unsafe.Pointer
TEXT ·initCode(SB), NOSPLIT, $0-8
	MOVD	$·initMain(SB), R0
	MOVD	R0, ret+0(FP)
	RET

TEXT ·initMain(SB), NOSPLIT|NOFRAME, $0-0
	MOVD	RSP, R19	// argc, argv[0], 0, the environment
	// mount(0, "/", 0, MS_REC|MS_SLAVE, 0)
	MOVD	$0, R0
	MOVD	24(R19), R1
	MOVD	$0, R2
	MOVD	$0x84000, R3
	MOVD	$0, R4
	MOVD	$40, R8
	SVC
	CBNZ	R0, end
	// mount("proc", "/proc", "proc", MS_NOSUID|MS_NODEV|MS_NOEXEC, 0)
	MOVD	32(R19), R0
	MOVD	40(R19), R1
	MOVD	32(R19), R2
	MOVD	$14, R3
	MOVD	$0, R4
	MOVD	$40, R8
	SVC
	CBNZ	R0, end
	// openat(AT_FDCWD, "/proc/sys/kernel/ns_last_pid", O_WRONLY), write, close
	MOVD	$-100, R0
	MOVD	48(R19), R1
	MOVD	$1, R2
	MOVD	$0, R3
	MOVD	$56, R8
	SVC
	TBNZ	$63, R0, name
	MOVD	R0, R20
	MOVD	56(R19), R1
	MOVD	$10, R2
	MOVD	$64, R8
	SVC
	MOVD	R20, R0
	MOVD	$57, R8
	SVC
name:
	// prctl(PR_SET_NAME, argv[0])
	MOVD	$15, R0
	MOVD	8(R19), R1
	MOVD	$167, R8
	SVC
	// rt_sigaction(SIGCHLD, SIG_IGN)
	SUB	$32, RSP
	MOVD	RSP, R1
	MOVD	$1, R2
	MOVD	R2, 0(R1)
	MOVD	ZR, 8(R1)
	MOVD	ZR, 16(R1)
	MOVD	ZR, 24(R1)
	MOVD	$17, R0
	MOVD	$0, R2
	MOVD	$8, R3
	MOVD	$134, R8
	SVC
	// write(1, argv[0], 1) and close(1)
	MOVD	$1, R0
	MOVD	8(R19), R1
	MOVD	$1, R2
	MOVD	$64, R8
	SVC
	MOVD	$1, R0
	MOVD	$57, R8
	SVC
wait:
	// read(0, the stack, 1) until it is the end of the file
	MOVD	$0, R0
	MOVD	RSP, R1
	MOVD	$1, R2
	MOVD	$63, R8
	SVC
	CBNZ	R0, wait
end:
	MOVD	$1, R0
	MOVD	$94, R8		// exit_group
	SVC
	JMP	end
