package main

// The verb that shows who did what.

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/audit"
	"github.com/musterhq/muster/job"
)

func (v clusterVerbs) auditCommand() *cli.Command {
	return &cli.Command{
		Name: "audit", Usage: "show who did what, from where, and with what outcome",
		Description: "Each daemon keeps a log of what it was asked to do, and of what it refused. WHO is a user and the way by which the\n" +
			"request came: socket, http, or the name of the daemon that sent it, whose word the user then is. Entries that are\n" +
			"too many are counted as one: +N is how many more there were. Who is no operator sees only what they did themselves.",
		Flags: listFlags(
			&cli.StringFlag{Name: "since", Usage: "only entries from `T` on: a duration such as 2h, or a date and time"},
			&cli.StringFlag{Name: "user", Usage: "only what the user `U` did"},
			&cli.StringFlag{Name: "action", Usage: "only the action `A`, such as submit, exec, join or revoke"},
			&cli.StringFlag{Name: "node", Usage: "only the log of the node `N`"},
			&cli.IntFlag{Name: "limit", Aliases: []string{"n"}, Usage: "at most `N` entries, the newest; up to 1000", Value: 100}),
		Action: v.audit,
	}
}

func (v clusterVerbs) audit(c *cli.Context) error {
	if err := wantArgs(c, 0, 0, "no argument"); err != nil {
		return err
	}
	if n := c.Int("limit"); n < 1 || n > 1000 {
		return usagef("--limit %d: want 1 to 1000", n)
	}
	f := api.AuditFilter{User: c.String("user"), Action: c.String("action"), Node: c.String("node"), Limit: c.Int("limit")}
	if text := c.String("since"); text != "" {
		var err error
		if f.Since, err = sinceTime(text, time.Now()); err != nil {
			return usagef("--since %q: want a duration such as 2h, or a time such as 2026-01-02T15:04", text)
		}
	}
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	l, err := client.Audit(c.Context, f)
	if err != nil {
		return asUsage(err)
	}
	width := 0
	if out, ok := v.out.(*os.File); ok && term.IsTerminal(int(out.Fd())) { //nolint:gosec // a descriptor is small
		width = auditWhat
	}
	return printList(v.streams, c, l, func(w io.Writer, all []api.AuditEntry) { auditTable(w, all, width) })
}

// sinceTime returns a time in the past: a date and time, or a duration before now.
func sinceTime(text string, now time.Time) (time.Time, error) {
	if d, err := job.ParseDuration(text); err == nil {
		return now.Add(-d.D()), nil
	}
	for _, form := range dateForms {
		if t, err := time.ParseInLocation(form, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time", text)
}

// The widest cells of the table: with them a line has 80 columns.
const (
	auditNode = 8
	auditWho  = 16
	auditWhat = 25
)

// auditTable prints the oldest entry first, as a log. width bounds the last column; 0: none is bounded.
func auditTable(w io.Writer, all []api.AuditEntry, width int) {
	row(w, "TIME", "NODE", "WHO", "ACTION", "WHAT")
	for i := len(all) - 1; i >= 0; i-- {
		e := &all[i]
		node, who, what := e.Node, auditActor(e), auditObject(e)
		if width > 0 {
			node, who, what = clip(node, auditNode), clip(who, auditWho), clip(what, width)
		}
		row(w, e.Time.Local().Format("01-02 15:04"), node, who, string(e.Action), what)
	}
}

// auditActor says who it was, and from where.
func auditActor(e *api.AuditEntry) string {
	from := string(e.From)
	switch {
	case e.From == audit.Network:
		return addressOf(e.Address)
	case e.Peer != "":
		from = cmp.Or(e.PeerName, e.Peer.Short())
	case e.User == "":
		from = cmp.Or(e.Address, from)
	}
	if e.User == "" {
		return from
	}
	return e.User + "@" + from
}

// addressOf returns the host of a multiaddr such as /ip4/10.0.0.7/tcp/4701.
func addressOf(multiaddr string) string {
	if parts := strings.Split(multiaddr, "/"); len(parts) > 2 {
		return parts[2]
	}
	return multiaddr
}

// auditObject says what it was about, and how it ended if it was not done.
func auditObject(e *api.AuditEntry) string {
	text := e.Object
	if e.Peer != "" && string(e.Peer) == text || len(text) > 40 {
		text = job.Peer(text).Short()
	}
	if name := e.Details["name"]; name != "" && e.Action != audit.Submit {
		text = name
	}
	if e.From == audit.Network {
		text = cmp.Or(e.PeerName, e.Peer.Short())
	}
	if e.Outcome != audit.OK {
		text = string(e.Outcome) + " (" + e.Code + ") " + text
	}
	if e.Count > 1 {
		text = fmt.Sprintf("+%d %s", e.Count, text)
	}
	return dash(strings.TrimSpace(text))
}

// clip cuts text to a number of columns.
func clip(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most-1]) + "…"
}
