//go:build !cgo || nonvml

package nvml

// A build without the library: hosts have no GPU.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
)

// Serve reports that this build has no NVML.
func Serve(_ context.Context, _ io.Reader, out io.Writer) error {
	h := hello{None: "this muster was built without NVML"}
	if err := json.NewEncoder(out).Encode(message{Hello: &h}); err != nil {
		return fmt.Errorf("nvml: write a message: %w", err)
	}
	return nil
}
