package main

// The connection of a verb to its daemon, and output that several verbs share.

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
	"github.com/musterhq/muster/internal/daemon"
)

// clientFlags returns the flags of every verb that talks to a daemon. They may come before the verb.
func clientFlags(more ...cli.Flag) []cli.Flag {
	return append(more,
		&cli.StringFlag{Name: "socket", Usage: "`PATH` of the daemon's socket", EnvVars: []string{"MUSTER_SOCKET"}, Value: daemon.FindSocket()},
		&cli.StringFlag{Name: "addr", Usage: "`HOST:PORT` of a daemon elsewhere, instead of the socket", EnvVars: []string{"MUSTER_ADDR"}},
		&cli.StringFlag{Name: "api-token", Usage: "`FILE` with the token for --addr", EnvVars: []string{"MUSTER_API_TOKEN_FILE"}},
	)
}

func jsonFlag() *cli.BoolFlag {
	return &cli.BoolFlag{Name: "json", Usage: "print one JSON document", DisableDefaultText: true}
}

func watchFlag(when string) *cli.BoolFlag {
	return &cli.BoolFlag{Name: "watch", Aliases: []string{"w"}, Usage: when, DisableDefaultText: true}
}

// clientOf returns the client of the daemon that the flags or the environment name.
func clientOf(c *cli.Context) (*api.Client, error) {
	cfg := daemonOf(c)
	if file := c.String("api-token"); file != "" && cfg.Addr != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, usagef("--api-token %s: %w", file, cause(err))
		}
		cfg.Token = strings.TrimSpace(string(text))
	}
	client, err := api.NewClient(cfg)
	if err != nil {
		return nil, usageError{err}
	}
	return client, nil
}

// daemonOf returns which daemon the flags or the environment name.
func daemonOf(c *cli.Context) api.ClientConfig {
	cfg := api.ClientConfig{Socket: c.String("socket"), Addr: c.String("addr")}
	if given := c.LocalFlagNames(); slices.Contains(given, "socket") && !slices.Contains(given, "addr") {
		cfg.Addr = ""
	}
	return cfg
}

// asUsage turns an error that says that a request is invalid into a usage error.
func asUsage(err error) error {
	if errors.Is(err, api.ErrBad) || errors.Is(err, api.ErrTooLarge) || errors.Is(err, api.ErrNotYet) {
		return usageError{err}
	}
	return err
}

// wantArgs checks the number of arguments of a verb; most < 0 means any number.
func wantArgs(c *cli.Context, least, most int, what string) error {
	if n := c.NArg(); n < least || (most >= 0 && n > most) {
		return usagef("%s: want %s; see `%s --help`", strings.TrimPrefix(c.Command.HelpName, c.App.Name+" "), what, c.Command.HelpName)
	}
	return nil
}

// printJSON writes one document.
func (s streams) printJSON(doc any) error {
	enc := json.NewEncoder(s.out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(doc)
}

// dash replaces an empty cell of a table.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func withDetail(word, detail string) string {
	if detail == "" {
		return printable(localTimes(word))
	}
	return printable(localTimes(word + ": " + detail))
}

// printable replaces characters of foreign text that could control a terminal or break a line.
func printable(s string) string { return table.Clean(s) }

// row adds a line to a table.
func row(w *table.Sheet, cells ...string) { w.Add(cells...) }

// wrapFlag returns the flag of verbs whose text is wrapped on a terminal.
func wrapFlag() *cli.BoolFlag {
	return &cli.BoolFlag{Name: "wide", Usage: "wrap no lines on a terminal", DisableDefaultText: true}
}

// roomOf returns the width in columns to which a verb with wrapFlag wraps its text; 0: it does not.
func (s streams) roomOf(c *cli.Context) int {
	if c.Bool("wide") {
		return 0
	}
	return terminalWidth(s.out)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// pause waits for d; it returns false if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
