package store

// Ending the process when the database cannot go on.

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	// hookTime bounds OnFatal. A database that lost its write-ahead log may hold any lock, so a hook that uses the store
	// never returns.
	hookTime = 2 * time.Second
	// fatalStatus is the exit code of the process.
	fatalStatus = 1
)

// fatality ends the process, once.
type fatality struct {
	hook func(error)
	log  *slog.Logger
	exit func(int)
	once sync.Once
}

func newFatality(hook func(error), log *slog.Logger) *fatality {
	return &fatality{hook: hook, log: log, exit: os.Exit} //nolint:forbidigo // a database without its log must not go on, and cannot be closed
}

// end logs the reason, calls the hook and ends the process. It never returns: a second caller waits until the first has
// ended the process.
func (f *fatality) end(err error) {
	f.once.Do(func() {
		f.log.Error("cannot write to the data directory: the daemon ends, its tasks keep running", "error", err)
		if f.hook != nil {
			returned := make(chan struct{})
			go func() {
				defer close(returned)
				f.hook(err)
			}()
			timer := time.NewTimer(hookTime)
			defer timer.Stop()
			select {
			case <-returned:
			case <-timer.C:
			}
		}
		f.exit(fatalStatus)
	})
	select {}
}

// engineLog is the logger for Pebble. Lines about files and compactions are of use to developers only, so they are
// logged as debug.
type engineLog struct{ fatal *fatality }

func (l engineLog) Infof(format string, args ...any) {
	l.fatal.log.Debug("database", "detail", lazy{format, args})
}

func (l engineLog) Errorf(format string, args ...any) {
	l.fatal.log.Warn("database", "detail", fmt.Sprintf(format, args...))
}

func (l engineLog) Fatalf(format string, args ...any) {
	l.fatal.end(fmt.Errorf("store: "+format, args...))
}

// lazy is a log line that is formatted only if it is logged.
type lazy struct {
	format string
	args   []any
}

func (l lazy) String() string { return fmt.Sprintf(l.format, l.args...) }

// LogValue formats the line.
func (l lazy) LogValue() slog.Value { return slog.StringValue(l.String()) }
