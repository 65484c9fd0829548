//go:build !linux

package hostinfo

// Systems other than Linux: there are no cgroups, and a boot is identified by its time.

import (
	"context"
	"fmt"

	"github.com/shirou/gopsutil/v4/host"
)

func readGroup() group { return group{} }

// Incarnation returns the time of boot.
func Incarnation(ctx context.Context) (string, error) {
	at, err := host.BootTimeWithContext(ctx)
	if err != nil {
		return "", fmt.Errorf("machine: read the time of boot: %w", err)
	}
	return fmt.Sprint(at), nil
}

// BootID is Incarnation.
func BootID(ctx context.Context) (string, error) { return Incarnation(ctx) }
