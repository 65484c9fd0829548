package main

// The hidden verb manual: man pages, and the parts of docs/manual.md that are made from the tables of the program.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/manual"
)

func (v programVerbs) manualCommand() *cli.Command {
	return &cli.Command{
		Name: "manual", Usage: "write what is made from the tables of the program", Hidden: true,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "man", Usage: "write the man pages below `DIR`"},
			&cli.StringFlag{Name: "fill", Usage: "make the parts of the manual in `FILE` anew"},
			&cli.BoolFlag{Name: "openapi", Usage: "print the OpenAPI document", DisableDefaultText: true},
		},
		Action: v.manual,
	}
}

func (v programVerbs) manual(c *cli.Context) error {
	if err := wantArgs(c, 0, 0, "no argument"); err != nil {
		return err
	}
	b, err := book()
	if err != nil {
		return err
	}
	switch {
	case c.Bool("openapi"):
		_, err = v.out.Write(append(b.OpenAPI, '\n'))
		return err
	case c.IsSet("man"):
		return writePages(b, c.String("man"))
	case c.IsSet("fill"):
		return fillManual(b, c.String("fill"))
	}
	return usagef("manual: want --man, --fill or --openapi")
}

// book returns what the manual is made from.
func book() (manual.Book, error) {
	doc, err := api.OpenAPI(version)
	if err != nil {
		return manual.Book{}, err
	}
	b := manual.Book{
		App: newApp(streams{}), OpenAPI: doc, Date: date, Replace: strings.NewReplacer(defaultConfigFile(), "/etc/muster/config.yaml"),
		Defaults: map[string]string{
			"--socket": "/run/muster/muster.sock; without root $XDG_RUNTIME_DIR/muster/muster.sock",
			"socket":   "/run/muster/muster.sock; without root $XDG_RUNTIME_DIR/muster/muster.sock",
			"data-dir": "/var/lib/muster; without root ~/.local/share/muster",
			"name":     "the name of the host",
		},
		Shared: []manual.Shared{
			{Title: "Flags of a job", Text: "What a job asks for. `submit`, `run`, `alloc` and `offers` have them, and so do lines `#MUSTER` at the beginning of a script.", Flags: jobFlags()},
			{Title: "Settings of a daemon", Text: "Each setting of [the config file](#the-config-file) is a flag too, and there is one more flag.", Flags: settingFlags()},
			{Title: "Flags of the connection", Text: "Which daemon to ask. They may also come before the verb.", Flags: clientFlags()},
		},
	}
	cfg := defaultConfig()
	for _, s := range settings() {
		b.Settings = append(b.Settings, manual.Setting{Name: s.name, Usage: s.usage, Default: s.get(cfg), Env: s.env(), Many: s.many, Live: s.live})
	}
	return b, nil
}

// writePages writes the man pages below a directory, each into that of its section.
func writePages(b manual.Book, dir string) error {
	for name, text := range b.Pages() {
		section := filepath.Join(dir, "man"+strings.TrimPrefix(filepath.Ext(name), "."))
		if err := os.MkdirAll(section, 0o755); err != nil { //nolint:gosec // all users read man pages
			return fmt.Errorf("manual: %w", err)
		}
		if err := os.WriteFile(filepath.Join(section, name), []byte(text), 0o644); err != nil { //nolint:gosec // all users read man pages
			return fmt.Errorf("manual: %w", err)
		}
	}
	return nil
}

func fillManual(b manual.Book, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("manual: %w", err)
	}
	full, err := b.Fill(string(text))
	if err != nil {
		return fmt.Errorf("manual: %s: %w", path, err)
	}
	return os.WriteFile(path, []byte(full), 0o644) //nolint:gosec // it is a page of the documentation
}
