package main

// The verb config: the settings of a daemon, and the origin of each.

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/cmd/muster/table"
)

func (v hostVerbs) configCommand() *cli.Command {
	return &cli.Command{
		Name: "config", Usage: "show or validate the settings of a daemon on this host", ArgsUsage: "show | validate [FILE]",
		Subcommands: []*cli.Command{
			{Name: "show", Usage: "print each setting, its value and its origin", Flags: append(settingFlags(), jsonFlag()), Action: v.configShow},
			{Name: "validate", Usage: "check whether a daemon could start with them", ArgsUsage: "[FILE]", Flags: append(settingFlags(), jsonFlag()), Action: v.configValidate},
		},
	}
}

func (v hostVerbs) configShow(c *cli.Context) error {
	if err := wantArgs(c, 0, 0, "no argument"); err != nil {
		return err
	}
	cfg, err := configOf(c)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return v.printJSON(map[string]any{"schema": "muster.config/v1", "file": cfg.File, "items": cfg.Settings})
	}
	w := new(table.Sheet)
	row(w, "SETTING", "VALUE", "ORIGIN")
	for _, s := range cfg.Settings {
		row(w, s.Name, dash(s.Value), s.Origin)
	}
	return w.Print(v.out, 0)
}

func (v hostVerbs) configValidate(c *cli.Context) error {
	if err := wantArgs(c, 0, 1, "at most one file"); err != nil {
		return err
	}
	cfg, err := configFrom(c, cmp.Or(c.Args().First(), c.String("config")))
	if !c.Bool("json") {
		if err == nil {
			_, err = fmt.Fprintln(v.out, "the configuration is valid")
		}
		return err
	}
	doc := map[string]any{"schema": "muster.validation/v1", "valid": err == nil, "file": cfg.File}
	if err != nil {
		doc["error"] = err.Error()
	}
	return errors.Join(err, v.printJSON(doc))
}
