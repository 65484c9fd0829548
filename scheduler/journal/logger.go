package journal

// The logger for the Raft library.

import (
	"fmt"
	"log/slog"
)

// raftLogger passes Raft's log lines on. Lines about elections are only of interest to developers and are logged as
// debug. A line that Raft calls fatal means a broken invariant, so the logger panics.
type raftLogger struct{ log *slog.Logger }

func (l raftLogger) Debug(...any)          {}
func (l raftLogger) Debugf(string, ...any) {}
func (l raftLogger) Info(v ...any)         { l.log.Debug("raft", "detail", fmt.Sprint(v...)) }

func (l raftLogger) Infof(f string, v ...any)    { l.log.Debug("raft", "detail", fmt.Sprintf(f, v...)) }
func (l raftLogger) Warning(v ...any)            { l.log.Warn("raft", "detail", fmt.Sprint(v...)) }
func (l raftLogger) Warningf(f string, v ...any) { l.log.Warn("raft", "detail", fmt.Sprintf(f, v...)) }

func (l raftLogger) Error(v ...any) { l.log.Error("raft", "detail", fmt.Sprint(v...)) }

func (l raftLogger) Errorf(f string, v ...any) { l.log.Error("raft", "detail", fmt.Sprintf(f, v...)) }
func (l raftLogger) Fatal(v ...any)            { panic(fmt.Sprint(v...)) }
func (l raftLogger) Fatalf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
func (l raftLogger) Panic(v ...any)            { panic(fmt.Sprint(v...)) }
func (l raftLogger) Panicf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
