//go:build amd64 || arm64

package pidspace

// The program init: some 40 instructions in an ELF file of its own. A program in Go would take a megabyte and a
// millisecond for each task.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// initName is what ps shows of init.
const initName = "muster-init"

// initWords returns the environment of init, in the order in which its code expects the words. The next process of the
// namespace gets the pid after last. If each namespace counted from 1, two tasks that name files by their pid would
// take the same name.
func initWords(last int64) []string {
	return []string{"/", "proc", "/proc", "/proc/sys/kernel/ns_last_pid", fmt.Sprintf("%10d", last)}
}

// initCode returns the code of init. It is position-independent, and is copied to a file.
func initCode() unsafe.Pointer

// initMain is the code of init. It is never called in this process.
func initMain() //nolint:unused // initCode takes its address

const (
	// maxCode is more than the code of init takes. What is copied beyond it is never executed.
	maxCode = 512
	// initAddress is where the kernel loads init.
	initAddress = 0x400000
	// elfHeader, programHeader and headers are lengths in bytes; see elf(5).
	elfHeader     = 64
	programHeader = 56
	headers       = elfHeader + 2*programHeader
)

// initProgram returns an executable file in memory.
func initProgram() (*os.File, error) {
	fd, err := unix.MemfdCreate(initName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // Linux before 6.3, where every such file can be executed
		fd, err = unix.MemfdCreate(initName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), initName)
	if _, err = f.Write(initFile()); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		_ = f.Close() // it is of no use
		return nil, fmt.Errorf("file in memory: %w", err)
	}
	return f, nil
}

// initFile returns init as an ELF file: two headers of segments, and the code.
func initFile() []byte {
	b := append(make([]byte, 0, headers+maxCode), "\x7fELF\x02\x01\x01"...) // 64 bits, little-endian, version 1
	b = b[:16]
	le := binary.LittleEndian
	b = le.AppendUint16(b, 2) // an executable
	b = le.AppendUint16(b, machine)
	b = le.AppendUint32(b, 1)                   // version
	b = le.AppendUint64(b, initAddress+headers) // where it begins
	b = le.AppendUint64(b, elfHeader)           // where the headers of segments are
	b = le.AppendUint64(b, 0)                   // no sections
	b = le.AppendUint32(b, 0)                   // flags
	for _, n := range []uint16{elfHeader, programHeader, 2, 0, 0, 0} {
		b = le.AppendUint16(b, n)
	}
	const load, stack, executable, writable, readable = 1, 0x6474e551, 1, 2, 4
	b = le.AppendUint32(b, load)
	b = le.AppendUint32(b, readable|executable)
	for _, n := range []uint64{0, initAddress, initAddress, headers + maxCode, headers + maxCode, 0x1000} {
		b = le.AppendUint64(b, n)
	}
	b = le.AppendUint32(b, stack)
	b = le.AppendUint32(b, readable|writable)
	for range 6 {
		b = le.AppendUint64(b, 0)
	}
	return append(b, unsafe.Slice((*byte)(initCode()), maxCode)...)
}
