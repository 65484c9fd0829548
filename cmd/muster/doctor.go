package main

// The verb doctor: problems of this host that could keep muster from working.

import (
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
	"github.com/musterhq/muster/internal/daemon"
)

func (v hostVerbs) doctorCommand() *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "look for problems that keep muster from working on this host",
		Flags:  append(settingFlags(), wrapFlag(), jsonFlag()),
		Action: v.doctor,
	}
}

func (v hostVerbs) doctor(c *cli.Context) error {
	if err := wantArgs(c, 0, 0, "no argument"); err != nil {
		return err
	}
	facts, err := hostFacts(c)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = v.printJSON(map[string]any{"schema": "muster.doctor/v1", "items": facts})
	} else {
		w := new(table.Sheet)
		for _, f := range facts {
			row(w, string(f.State), f.Name, localTimes(f.Detail))
			if f.Advice != "" {
				row(w, "", "", "→ "+f.Advice)
			}
		}
		err = w.Print(v.out, v.roomOf(c))
	}
	if err == nil && slices.ContainsFunc(facts, func(f api.Fact) bool { return f.State == api.FactFail }) {
		err = exitError{code: exitFailed}
	}
	return err
}

// hostFacts asks the daemon on this host, which knows its own settings. If there is none, it examines the host
// itself.
func hostFacts(c *cli.Context) ([]api.Fact, error) {
	cfg, err := configOf(c)
	if err != nil {
		return nil, err
	}
	client, err := api.NewClient(api.ClientConfig{Socket: cfg.Socket})
	if err != nil {
		return nil, usageError{err}
	}
	defer client.Close()
	d, err := client.Daemon(c.Context, true)
	if err == nil {
		return append([]api.Fact{{Name: "daemon", State: api.FactOK, Detail: fmt.Sprintf("%s, version %s, pid %d", d.Name, d.Version, d.PID)}}, d.Facts...), nil
	}
	if !errors.Is(err, api.ErrUnavailable) {
		return nil, err
	}
	facts, errAlone := daemon.DoctorAlone(c.Context, cfg.Config)
	return append([]api.Fact{{Name: "daemon", State: api.FactWarn, Detail: err.Error()}}, facts...), errAlone
}
