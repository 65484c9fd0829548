package main

// The connection of a verb to its daemon, and output that several verbs share.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/node"
)

// clientFlags are the flags of every verb that talks to a daemon. They may come before the verb.
func clientFlags(more ...cli.Flag) []cli.Flag {
	return append(more,
		&cli.StringFlag{Name: "socket", Usage: "`PATH` of the daemon's socket", EnvVars: []string{"MUSTER_SOCKET"}, Value: node.FindSocket()},
		&cli.StringFlag{Name: "addr", Usage: "`HOST:PORT` of a daemon elsewhere, instead of the socket", EnvVars: []string{"MUSTER_ADDR"}},
		&cli.StringFlag{Name: "api-token", Usage: "`FILE` with the token for --addr", EnvVars: []string{"MUSTER_API_TOKEN_FILE"}},
	)
}

func jsonFlag() *cli.BoolFlag {
	return &cli.BoolFlag{Name: "json", Usage: "print one JSON document", DisableDefaultText: true}
}

func listFlags(more ...cli.Flag) []cli.Flag {
	return clientFlags(append(more,
		jsonFlag(),
		&cli.BoolFlag{Name: "jsonl", Usage: "print one JSON object per line", DisableDefaultText: true})...)
}

func watchFlag(when string) *cli.BoolFlag {
	return &cli.BoolFlag{Name: "watch", Aliases: []string{"w"}, Usage: "print again " + when, DisableDefaultText: true}
}

// clientOf returns the client of the daemon that the flags or the environment name.
func clientOf(c *cli.Context) (*api.Client, error) {
	cfg := api.ClientConfig{Socket: c.String("socket"), Addr: c.String("addr")}
	if given := c.LocalFlagNames(); slices.Contains(given, "socket") && !slices.Contains(given, "addr") {
		cfg.Addr = ""
	}
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

// listBytes is how much of a listing is written at a time.
const listBytes = 64 << 10

// printList writes a listing in the format that the flags select, and names the nodes that did not answer.
func printList[T any](s streams, c *cli.Context, l api.Listing[T], table func(w io.Writer, items []T)) error {
	out := bufio.NewWriterSize(s.out, listBytes) // one write for many rows
	switch {
	case c.Bool("json"):
		return s.printJSON(l)
	case c.Bool("jsonl"):
		enc := json.NewEncoder(out)
		for _, item := range l.Items {
			if err := enc.Encode(item); err != nil {
				return err
			}
		}
	default:
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		table(w, l.Items)
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if len(l.Partial) > 0 {
		fmt.Fprintf(s.err, "muster: incomplete: no answer from %s\n", printable(strings.Join(l.Partial, ", ")))
	}
	return nil
}

// dash replaces an empty cell of a table.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func clock(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}

// latest tells until when a waiting job should start.
func latest(t *time.Time) string {
	if t == nil {
		return "unknown"
	}
	return clock(t) + " or before"
}

// elapsed returns how long the job has run, in whole seconds from one minute on.
func elapsed(from, to *time.Time) string {
	if from == nil {
		return "-"
	}
	end := time.Now()
	if to != nil {
		end = *to
	}
	d := end.Sub(*from)
	if d >= time.Minute {
		return job.Duration(d.Round(time.Second)).String()
	}
	return d.Round(time.Millisecond).String()
}

func size(n int64) string {
	if n == 0 {
		return "-"
	}
	for _, u := range []struct {
		name string
		b    int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}} {
		if n >= u.b {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/float64(u.b)), ".0") + u.name
		}
	}
	return job.Size(n).String()
}

func withDetail(word, detail string) string {
	if detail == "" {
		return printable(word)
	}
	return printable(word + ": " + detail)
}

// printable replaces characters of foreign text that could control a terminal or break a line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, s)
}

// row writes a line of a table.
func row(w io.Writer, cells ...string) {
	for i, c := range cells {
		cells[i] = printable(c)
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// pause waits; it returns false if ctx has ended.
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
