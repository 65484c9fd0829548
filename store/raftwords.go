package store

// What Raft says, in the daemon's log.

import (
	"fmt"
	"log/slog"
)

// raftWords is Raft's way to the log. Its news of elections are a developer's;
// what it calls fatal are broken invariants, after which nothing may go on.
type raftWords struct{ log *slog.Logger }

func (w raftWords) Debug(...any)             {}
func (w raftWords) Debugf(string, ...any)    {}
func (w raftWords) Info(v ...any)            { w.log.Debug("raft", "detail", lazy{"%s", []any{fmt.Sprint(v...)}}) }
func (w raftWords) Infof(f string, v ...any) { w.log.Debug("raft", "detail", lazy{f, v}) }
func (w raftWords) Warning(v ...any)         { w.log.Warn("raft", "detail", fmt.Sprint(v...)) }
func (w raftWords) Warningf(f string, v ...any) {
	w.log.Warn("raft", "detail", fmt.Sprintf(f, v...))
}
func (w raftWords) Error(v ...any)            { w.log.Error("raft", "detail", fmt.Sprint(v...)) }
func (w raftWords) Errorf(f string, v ...any) { w.log.Error("raft", "detail", fmt.Sprintf(f, v...)) }
func (w raftWords) Fatal(v ...any)            { panic(fmt.Sprint(v...)) }
func (w raftWords) Fatalf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
func (w raftWords) Panic(v ...any)            { panic(fmt.Sprint(v...)) }
func (w raftWords) Panicf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
