package main

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents returns the pages for users, by their names.
func documents(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(names) < 10 {
		t.Fatalf("got %d pages, %v, want at least 10", len(names), err)
	}
	all := map[string]string{}
	for _, name := range append(names, "../../README.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimPrefix(name, "../../")] = string(text)
	}
	return all
}

// printsNoTable reports whether a listing with this word prints something other than a table with the usual columns.
func printsNoTable(word string) bool {
	return slices.Contains([]string{"-q", "-o", "--json", "--jsonl", "--format", "-w"}, word)
}

// shellWord is a word as a shell takes it, or one of its operators.
var shellWord = regexp.MustCompile(`'[^']*'|"[^"]*"|[|;&>#·]+|[^\s|;&>'"]+`)

// commandWords returns the words of the command that a line begins with, up to an operator of the shell or a comment.
func commandWords(line string) (words []string) {
	for _, w := range shellWord.FindAllString(line, -1) {
		if strings.IndexAny(w, "|;&>#·") == 0 {
			break
		}
		words = append(words, strings.Trim(w, `'"`))
	}
	return words
}

// Each command in the documents has a verb and flags that exist.
func TestCommandsInDocumentsExist(t *testing.T) {
	inLine := regexp.MustCompile("`(?:[A-Z_]+=\\S+ )*(?:sudo )?(?:bin/)?muster ([a-z][^`]*[^` ])`")
	onLine := regexp.MustCompile(`^(?:\$ )?(?:\w+=\S+ )*(?:sudo )?(?:bin/)?muster ([a-z].*)$`)
	app, found := newApp(streams{}), 0
	check := func(file string, n int, line string) {
		words := commandWords(line)
		if len(words) == 0 {
			return
		}
		found++
		for i, w := range words { // placeholders such as show|validate and [-f]
			words[i] = strings.Trim(w, "[]…")
		}
		words = slices.DeleteFunc(words, func(w string) bool { return w == "" || w == "..." })
		if _, err := arrange(app, append([]string{"muster"}, words...)); err != nil && !strings.Contains(err.Error(), "needs a value") {
			t.Errorf("%s:%d: muster %s: %v", file, n, line, err)
		}
	}
	for file, text := range documents(t) {
		fenced := false
		for i, line := range strings.Split(text, "\n") {
			switch m := onLine.FindStringSubmatch(line); {
			case strings.HasPrefix(line, "```"):
				fenced = !fenced
			case fenced && m != nil && (strings.HasPrefix(line, "$ ") || find(app.Commands, strings.Fields(m[1])[0]) != nil): // some lines are output
				check(file, i+1, m[1])
			case !fenced:
				for _, m := range inLine.FindAllStringSubmatch(line, -1) {
					check(file, i+1, m[1])
				}
			}
		}
	}
	if found < 200 {
		t.Errorf("got %d commands, want at least 200", found)
	}
}

// The screens of listings in the documents have the columns of the listings.
func TestScreensInDocumentsHaveTheColumns(t *testing.T) {
	empty := answer(http.StatusOK, `{"items":[]}`)
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/stats": answer(http.StatusOK, `{"waits":null}`), "GET /v1/jobs": empty, "GET /v1/nodes": empty, "GET /v1/gpus": empty, "GET /v1/peers": empty, "GET /v1/users": empty, "GET /v1/audit": empty,
	})
	found := map[string]int{}
	for file, text := range documents(t) {
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			if !strings.HasPrefix(line, "$ muster ") {
				continue
			}
			args := commandWords(strings.TrimPrefix(line, "$ muster "))
			if len(args) == 0 || strings.HasPrefix(lines[i+1], "$ ") || slices.ContainsFunc(args, printsNoTable) || !slices.Contains([]string{"jobs", "nodes", "gpus", "peers", "users", "audit"}, args[0]) || i+1 == len(lines) {
				continue
			}
			r := f.muster(args...)
			if want := strings.Fields(r.stdout); r.code != 0 || !slices.Equal(strings.Fields(lines[i+1]), want) {
				t.Errorf("%s:%d: %s: got the columns %q, want %q (exit %d, %s)", file, i+2, line, lines[i+1], want, r.code, r.err)
			}
			for _, row := range lines[i+1:] {
				if row == "```" || strings.HasPrefix(row, "$ ") {
					break
				}
				if strings.Contains(row, "h0m0s") || strings.Contains(row, "(simulated)") {
					t.Errorf("%s: got %q, want the present format", file, row)
				}
			}
			found[args[0]]++
		}
	}
	for _, verb := range []string{"jobs", "nodes", "gpus", "users", "audit"} {
		if found[verb] == 0 {
			t.Errorf("no document shows muster %s", verb)
		}
	}
}
