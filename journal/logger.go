package journal

// The logger that the Raft library gets.

import (
	"fmt"
	"log/slog"
)

// raftLogger passes Raft's lines on. News of elections are for developers and become debug lines. What Raft calls fatal
// is a broken invariant, after which nothing may go on: it panics.
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
