package job

// In whose name a request is handled: queues use it to let askers take turns.

import "context"

type askerKey struct{}

// WithAsker returns a copy of ctx for a request in the name of a user of this host, or of another daemon. Both have
// names that differ: a daemon's is its ID.
func WithAsker(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, askerKey{}, name)
}

// AskerOf returns in whose name a request is handled; "" for what the daemon itself does.
func AskerOf(ctx context.Context) string {
	name, _ := ctx.Value(askerKey{}).(string)
	return name
}
