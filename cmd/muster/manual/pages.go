package manual

// The man pages: which there are, and what is on each.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/job/jobfile"
)

// Pages returns the man pages by file name, such as muster-submit.1.
func (b Book) Pages() map[string]string {
	files := map[string]string{}
	for _, p := range append(b.verbPages(), b.mainPage(), b.configPage(), jobPage()) {
		files[fmt.Sprintf("%s.%d", p.name, p.section)] = p.roff(b.Date)
	}
	return files
}

func (b Book) verbPages() (all []page) {
	for _, v := range b.verbs() {
		all = append(all, b.verbPage(v))
	}
	return all
}

// verbPage returns the man page of a verb.
func (b Book) verbPage(v verb) page {
	p := page{name: v.file(), section: 1, brief: v.Usage}
	p.parts = append(p.parts, part{title: "SYNOPSIS", text: []string{"`" + b.usage(v) + "`"}})
	var text []string
	if v.Description != "" {
		text = append(text, b.fixed(v.Description))
	}
	if len(v.Aliases) > 0 {
		text = append(text, "Other names: `"+strings.Join(v.Aliases, "`, `")+"`.")
	}
	if len(text) > 0 {
		p.parts = append(p.parts, part{title: "DESCRIPTION", text: text})
	}
	see := []string{"muster(1)"}
	if len(v.Subcommands) > 0 {
		var items []item
		for _, sub := range v.Subcommands {
			if !sub.Hidden {
				items = append(items, item{v.name() + " " + sub.Name, sub.Usage})
				see = append(see, v.file()+"-"+sub.Name+"(1)")
			}
		}
		p.parts = append(p.parts, part{title: "COMMANDS", items: items})
	}
	own, groups := b.flagsOf(v)
	if items := b.items(own); len(items) > 0 {
		p.parts = append(p.parts, part{title: "OPTIONS", items: items})
	}
	for _, g := range groups {
		items := b.items(g.Flags)
		if g.Title == settingFlags {
			g.Text, items = "Each but --config is also a setting of the config file, muster-config(5).", append(b.beside(g), b.settingItems("--")...)
		}
		p.parts = append(p.parts, part{title: strings.ToUpper(g.Title), text: []string{g.Text}, items: items})
		if g.Title == jobFlags {
			see = append(see, "muster-job(5)")
		}
		if g.Title == settingFlags {
			see = append(see, "muster-config(5)")
		}
	}
	if text := screen(v.file()); text != "" {
		p.parts = append(p.parts, part{title: "EXAMPLE", screen: text})
	}
	p.parts = append(p.parts, part{title: "SEE ALSO", text: []string{strings.Join(see, ", ")}})
	return p
}

// The titles of the shared groups of flags to which pages refer.
const (
	jobFlags     = "Flags of a job"
	settingFlags = "Settings of a daemon"
)

// mainPage returns muster(1).
func (b Book) mainPage() page {
	p := page{name: "muster", section: 1, brief: b.App.Usage}
	p.parts = append(p.parts, part{title: "SYNOPSIS", text: []string{"`muster VERB [FLAGS] [ARGUMENTS]`"}})
	p.parts = append(p.parts, part{title: "DESCRIPTION", text: []string{
		"`muster daemon` is the service on each host. Every other verb talks to the daemon of this host, which answers for the whole cluster.",
	}})
	var groups []string
	items := map[string][]item{}
	for _, v := range b.verbs() {
		if len(v.path) > 1 {
			continue
		}
		if !slices.Contains(groups, v.Category) {
			groups = append(groups, v.Category)
		}
		items[v.Category] = append(items[v.Category], item{v.file() + "(1)", v.Usage})
	}
	for _, g := range groups {
		p.parts = append(p.parts, part{title: strings.ToUpper(g), items: items[g]})
	}
	p.parts = append(p.parts,
		part{title: "OPTIONS", items: b.items(b.App.Flags)},
		part{title: "SELECTORS", items: selectors()},
		part{title: "STATES", items: states()},
		part{title: "REASONS", text: []string{"Of tasks that wait, are held or have lost their node:"}, items: reasons()},
		part{title: "EXIT STATUS", items: exitCodes()},
		part{title: "ENVIRONMENT OF A TASK", items: variables()},
		part{title: "SEE ALSO", text: []string{"muster-config(5), muster-job(5)"}})
	return p
}

// configPage returns muster-config(5).
func (b Book) configPage() page {
	p := page{name: "muster-config", section: 5, brief: "configuration file of the muster daemon"}
	p.parts = append(p.parts, part{title: "DESCRIPTION", text: []string{
		"The daemon of root reads /etc/muster/config.yaml, and that of a user $XDG_CONFIG_HOME/muster/config.yaml. Each line is `setting: value`; a list is `[a, b]`, and pairs are `{k: v}`. A flag of `muster daemon` goes before a variable of its environment, and that goes before the file.",
		"On SIGHUP (`systemctl reload muster`) the daemon reads the file again. Settings that say so change at once, the others at the next start. It also lists the GPUs at once.",
	}})
	p.parts = append(p.parts, part{title: "SETTINGS", items: b.settingItems("")})
	if text := screen("config-file"); text != "" {
		p.parts = append(p.parts, part{title: "EXAMPLE", screen: text})
	}
	p.parts = append(p.parts, part{title: "SEE ALSO", text: []string{"muster-daemon(1), muster-config(1)"}})
	return p
}

// beside describes the flags of a group that are not settings.
func (b Book) beside(g Shared) []item {
	flags := slices.DeleteFunc(slices.Clone(g.Flags), func(f cli.Flag) bool {
		return slices.ContainsFunc(b.Settings, func(s Setting) bool { return s.Name == f.Names()[0] })
	})
	return b.items(flags)
}

// settingItems describes all settings; dashes come before the name of each.
func (b Book) settingItems(dashes string) (items []item) {
	for _, s := range b.Settings {
		items = append(items, item{strings.TrimSpace(dashes + s.Name + " " + valueOf(s.Usage)), b.settingText(s)})
	}
	return items
}

// settingText describes a setting in one paragraph.
func (b Book) settingText(s Setting) string {
	text := b.fixed(s.Usage) + "."
	if d := b.standard(s); d != "" {
		text += " Default: " + d + "."
	}
	if s.Many {
		text += " Several values are possible."
	}
	if s.Live {
		text += " Changes at once."
	}
	return text + " Variable: " + s.Env + "."
}

// standard returns the default of a setting, as the manual gives it.
func (b Book) standard(s Setting) string {
	if d := b.Defaults[s.Name]; d != "" {
		return d
	}
	return s.Default
}

// jobPage returns muster-job(5).
func jobPage() page {
	p := page{name: "muster-job", section: 5, brief: "job file of muster"}
	p.parts = append(p.parts, part{title: "DESCRIPTION", text: []string{
		"A job file is YAML or JSON; `muster submit -F FILE` submits it. Several jobs are separated by lines of three dashes. An unknown field, and a value of a wrong kind, is an error that names the field and its line.",
		"Sizes and durations have a unit: 8GiB, 500MB, 90m, 1h30m, 2d.",
	}})
	var items []item
	for _, f := range jobfile.Fields() {
		kind := f.Kind()
		if r := f.Range(); r != "" {
			kind += "; " + r
		}
		if d := f.Default(); d != "" {
			kind += "; default " + d
		}
		items = append(items, item{f.Name + ": " + f.Example, f.Text + " (" + kind + ")"})
	}
	p.parts = append(p.parts, part{title: "FIELDS", items: items})
	if text := screen("job-file"); text != "" {
		p.parts = append(p.parts, part{title: "EXAMPLE", screen: text})
	}
	p.parts = append(p.parts, part{title: "SEE ALSO", text: []string{"muster-submit(1)"}})
	return p
}

func states() (all []item) {
	for _, s := range job.States() {
		all = append(all, item{fmt.Sprintf("%s (%s)", s, s.Code()), s.Meaning()})
	}
	return all
}

func reasons() (all []item) {
	for _, r := range job.Reasons() {
		all = append(all, item{r.Word, r.Text})
	}
	return all
}
