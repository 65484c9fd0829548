package nvml

// Release and Resume: no child runs while the cards must not be open. Anew: everything is looked at again at once.

import (
	"context"
	"fmt"
	"time"
)

// Release ends the child, so that no process of the driver has a card open. Until Resume, List and Status return
// gpu.ErrReleased. After an error the child may still have cards open; call Release again.
func (d *Driver) Release(ctx context.Context) error {
	if err := d.take(ctx); err != nil {
		return err
	}
	defer d.give()
	d.released = true
	if d.agent != nil {
		d.drop()
	}
	if !d.ended() {
		return fmt.Errorf("nvml: release the GPUs: %w", errNotEnded)
	}
	return nil
}

// Resume ends a Release. Cards and driver may have changed meanwhile, so nothing that went wrong before counts.
func (d *Driver) Resume(ctx context.Context) error {
	if err := d.take(ctx); err != nil {
		return err
	}
	defer d.give()
	if d.released {
		d.released, d.hung, d.lost, d.none = false, hung{}, again{}, none{}
		d.pause, d.retryAt = 0, time.Time{}
	}
	return nil
}

// Anew ends all pauses after what went wrong: the next List looks for the library and at every card. A child that works
// goes on, unless a card is lost.
func (d *Driver) Anew(ctx context.Context) error {
	if err := d.take(ctx); err != nil {
		return err
	}
	defer d.give()
	d.hung, d.none = hung{}, none{}
	d.lost.at, d.lost.pause = time.Time{}, 0
	d.pause, d.retryAt = 0, time.Time{}
	return nil
}
