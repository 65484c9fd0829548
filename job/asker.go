package job

// In whose name a request is handled: queues use it to let askers take turns.

import "context"

type askerKey struct{}

// WithAsker returns a copy of ctx for a request in the name of a user of this host, or of another daemon. Names of
// users and of daemons differ: a daemon's name is its ID.
func WithAsker(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, askerKey{}, name)
}

// AskerOf returns the name of the asker of a request; "" if the daemon itself is the asker.
func AskerOf(ctx context.Context) string {
	name, _ := ctx.Value(askerKey{}).(string)
	return name
}
