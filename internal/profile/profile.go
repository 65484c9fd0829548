// Package profile writes a CPU profile of this program. The compiler uses such profiles (see make profile). Only programs
// that are built with the tag profile contain it.
package profile

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
)

// dir is the directory of the profiles, set by the linker.
var dir string

// Start profiles this process until stop is called.
func Start() (stop func()) {
	if dir == "" {
		return func() {}
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d", filepath.Base(os.Args[0]), os.Getpid())))
	if err == nil {
		err = pprof.StartCPUProfile(f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "muster: profile:", err)
		return func() {}
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
	}
}
