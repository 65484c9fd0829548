package main

// The verb that shows who did what.

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/job"
)

func (v watchVerbs) auditCommand() *cli.Command {
	return &cli.Command{
		Name: "audit", Usage: "show who did what, from where, and with what outcome",
		Description: "Each daemon keeps a log of what it was asked to do, and of what it refused. WHO is a user and the way by which the\n" +
			"request came: socket, http, or the name of the daemon that sent it, whose word the user then is. Entries that are\n" +
			"too many are counted as one: +N is how many more there were. Who is no operator sees only what they did themselves.",
		Flags: shapeFlags(
			sinceFlag("only entries"),
			&cli.StringFlag{Name: "user", Aliases: []string{"u"}, Usage: "only what `USER` did"},
			&cli.BoolFlag{Name: "me", Usage: "only what you did yourself", DisableDefaultText: true},
			&cli.StringFlag{Name: "action", Usage: "only the action `A`, such as submit, exec, join or revoke"},
			&cli.StringFlag{Name: "node", Usage: "only the log of the node `N`"},
			&cli.IntFlag{Name: "limit", Aliases: []string{"n"}, Usage: "at most `N` entries, the newest; up to 1000", Value: 100}),
		Action: v.audit,
	}
}

func (v watchVerbs) audit(c *cli.Context) error {
	if err := wantArgs(c, 0, 0, "no argument"); err != nil {
		return err
	}
	if n := c.Int("limit"); n < 1 || n > 1000 {
		return usagef("--limit %d: want 1 to 1000", n)
	}
	f := api.AuditFilter{User: c.String("user"), Mine: c.Bool("me"), Action: c.String("action"), Node: c.String("node"), Limit: c.Int("limit")}
	if err := onlyMe(c); err != nil {
		return err
	}
	var err error
	if f.Since, err = sinceOf(c.String("since"), time.Now()); err != nil {
		return usagef("--since: %w", err)
	}
	view, err := viewOf(v.streams, c, same(auditColumns()))
	if err != nil {
		return err
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
	if view.form == formTable || view.form == formTemplate {
		slices.Reverse(l.Items) // the oldest first, as a log
	}
	return view.print(l)
}

// auditColumns returns the columns of an entry of the audit log.
func auditColumns() table.Columns[api.AuditEntry] {
	type entry = api.AuditEntry
	at := func(e entry) *time.Time { return &e.Time }
	return table.Columns[entry]{
		{Name: "time", Help: "when it was", Cell: func(e entry) string { return e.Time.Local().Format("01-02 15:04 MST") }, Order: byTime(at)},
		{Name: "date", Help: "when it was, with the year and seconds", Level: table.Wide, Cell: func(e entry) string { return clock(&e.Time) }, Order: byTime(at)},
		{Name: "node", Help: "the node whose log has it", Least: 6, Cell: func(e entry) string { return e.Node }},
		{Name: "who", Help: "the user, and the way by which the request came", Least: 8, Cell: func(e entry) string { return auditActor(&e) }},
		{Name: "action", Help: "what was asked for", Cell: func(e entry) string { return string(e.Action) }},
		{Name: "outcome", Help: "ok, refused or failed", Level: table.Wide, Cell: func(e entry) string { return string(e.Outcome) }},
		{Name: "reason", Help: "why it was refused", Level: table.Chosen, Cell: func(e entry) string { return dash(e.Reason) }},
		{Name: "count", Help: "how many entries this one stands for", Level: table.Chosen, Cell: func(e entry) string { return strconv.Itoa(e.Count) }, Order: table.By(func(e entry) int { return e.Count })},
		{Name: "object", Help: "the id of what it was about", Level: table.Chosen, IsKey: true, Cell: func(e entry) string { return dash(e.Object) }},
		{Name: "what", Help: "what it was about, and how it ended if it was not done", Least: 10, Cell: func(e entry) string { return auditObject(&e) }},
	}
}

// auditActor returns who acted, and from where.
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

// auditObject returns the object of the act, and how the act ended if it was not done.
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
