package main

// The daemon's settings: the precedence of their sources, and invalid ones.

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// aDaemon is the address of another daemon.
const aDaemon = "/ip4/1.2.3.4/tcp/1/p2p/12D3KooWGRUpVFaPZ6jZLBCrjnYpMJoVqrHfyKbv7KkZEGyrjXxv"

// TestReloadsAreDocumented compares the settings that a running daemon can reload with the manual.
func TestReloadsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var live []string
	for _, s := range settings() {
		if s.live {
			live = append(live, "`"+s.name+"`")
		}
	}
	if want := strings.Join(live, ", ") + " and the content of the HTTP token file change at once"; !strings.Contains(string(text), want) {
		t.Errorf("docs/operations.md does not say: %s", want)
	}
}

func TestSettingsHaveAPrecedence(t *testing.T) {
	clearEnvironment(t)
	file := configFile(t, "# a comment\nname: file\nsocket: /file\ngpus: none\ncpus: 2\nmemory: 8GiB # half\nlabel: {rack: r1, zone: 'b'}\nlisten: [/ip4/0.0.0.0/tcp/1, /ip4/0.0.0.0/tcp/2]\nno-worker: true\nhttp:\nlog-level: warn\n")
	t.Setenv("MUSTER_CONFIG", file)
	t.Setenv("MUSTER_NAME", "environment")
	t.Setenv("MUSTER_SOCKET", "/environment")
	t.Setenv("MUSTER_LISTEN", "/ip4/0.0.0.0/tcp/3 /ip4/0.0.0.0/tcp/4")
	t.Setenv("MUSTER_NO_WORKER", "false")
	t.Setenv("MUSTER_TOKEN", "secret")
	t.Setenv("MUSTER_BOOTSTRAP", aDaemon)
	r := program(t.Context(), "", "config", "show", "--name", "flag", "--allow-root", "--data-dir=/d")
	if r.code != 0 {
		t.Fatalf("exit %d, want 0: %s", r.code, r.err)
	}
	want := strings.ReplaceAll(`SETTING       VALUE                                    ORIGIN
data-dir      /d                                       flag
socket        /environment                             environment
listen        /ip4/0.0.0.0/tcp/3 /ip4/0.0.0.0/tcp/4    environment
bootstrap     `+aDaemon+` environment
token         (set)                                    environment
token-file    -                                        default
http          -                                        default
http-token    -                                        default
http-metrics-token -                                        default
http-user     -                                        default
http-cert     -                                        default
http-key      -                                        default
http-host     -                                        default
name          flag                                     flag
label         rack=r1 zone=b                           FILE:7
gpus          none                                     FILE:4
gpu-libraries -                                        default
cpus          2                                        FILE:5
memory        8GiB                                     FILE:6
limits        per_user.priority=50                     default
shares        -                                        default
output-limit  256MiB                                   default
client-timeout 5m                                    default
no-worker     false                                    environment
no-scheduler  false                                    default
allow-root    true                                     flag
run-others-as-me  false                                    default
cgroups-off   false                                    default
private-tmp   true                                     default
cpu-quota     false                                    default
set-aside     10m                                    default
preempt-grace 5m                                     default
loss-limit    3                                        default
policy        frag                                     default
order         age                                      default
max-wait      0s                                       default
trusted-labels false                                    default
visibility    all                                      default
default-time  0s                                     default
metrics-tasks 1000                                    default
dcgm-job-mapping -                                    default
gang-hold     10m                                    default
task-pids     16384                                    default
scratch-quota 0B                                       default
ulimit        memlock=unlimited stack=64MiB:unlimited nofile=65536:524288 default
docker-host   unix:///var/run/docker.sock              default
docker-mount  -                                        default
docker-user   -                                        default
log-level     warn                                     FILE:11
log-format    text                                     default
`, "FILE", file)
	spaces := regexp.MustCompile(` +`)
	if got, want := spaces.ReplaceAllString(r.stdout, "\t"), spaces.ReplaceAllString(want, "\t"); got != want {
		t.Errorf("config show: got\n%s\nwant\n%s", got, want)
	}
	if r := program(t.Context(), "", "config", "show", "--json"); r.code != 0 || !strings.Contains(r.stdout, `"file": "`+file+`"`) || strings.Contains(r.stdout, "secret") {
		t.Errorf("config show --json: exit %d, %s, want 0 with the file and without the secret", r.code, r.stdout)
	}
	if r := program(t.Context(), "", "--socket", "/flag", "config", "show"); !regexp.MustCompile(`socket +/flag +flag`).MatchString(r.stdout) {
		t.Errorf("--socket before the verb: got %s, want the flag", r.stdout)
	}
	if r := program(t.Context(), "", "config", "validate"); r.code != 0 || r.stdout != "the configuration is valid\n" {
		t.Errorf("config validate: exit %d, %q %q, want 0, valid", r.code, r.stdout, r.err)
	}
}

func TestInvalidSettingsAreRefused(t *testing.T) {
	clearEnvironment(t)
	for text, want := range map[string]string{
		"name: a\n\nbogus: 1\n":               ":3: no such setting: \"bogus\"",
		"name: a\nname: b\n":                  ":2: ",
		"just words\n":                        ":1: want lines such as",
		"a: [\n":                              ":1: ",
		"limits: {per_user: {gpu: 1}}\n":      ":1): \"per_user.gpu\": want per_user.WHAT",
		"limits: {users: {a: {memory: 8}}}\n": ":1): users.a.memory: ",
		"name: {a: {b: c}}\n":                 ":1: want K: V",
		"listen: [[a]]\n":                     ":1: want a list of words",
		"cpus: many\n":                        ":1): \"many\": want a whole number",
		"\nmemory: 8\n":                       ":2): size \"8\"",
		"no-worker: maybe\n":                  ":1): \"maybe\": want true or false",
		"label: [rack]\n":                     ":1): \"rack\": want K=V",
		"label: {arch: x}\n":                  ":1): label \"arch=x\": each node tells its arch by itself",
		"cpus: -1\n":                          ":1): -1: must be at least 0",
		"name: [a, b]\n":                      ":1: name: want one value, not a list",
		"z: 1\na: 2\n":                        ":1: no such setting: \"z\"",
		"listen: [here]\n":                    ":1): \"here\": want a multiaddr",
		"bootstrap: /ip4/::1\n":               ":1): \"/ip4/::1\": want a multiaddr with /p2p/ID",
		"\ngpus: two\n":                       ":2): \"two\": want auto",
		"gpus: sim:8\n":                       ":1): ",
		"no-worker: 1\n\nno-scheduler: 1\n":   ":1): set only one",
		"log-level: loud\n":                   ":1): \"loud\": want debug",
		"log-format: xml\n":                   ":1): \"xml\": want text or json",
		"name: a b\n":                         "name (from ",
		"\nmetrics-tasks: 5001\n":             ":2): 5001: want 0 to 5000",
		"dcgm-job-mapping: jobs\n":            ":1): \"jobs\": want an absolute path",
		"http-metrics-token: /f\n":            ":1): without --http-token",
		strings.Repeat("#", 2<<20):            "larger than 1MiB",
		"token: t\n":                          "--bootstrap",
		"name: *nowhere\n":                    ":1: ",
		"\ndocker-user: root\n":               ":2): user \"root\": want UID",
		"docker-mount: [data]\n":              ":1): \"data\": want an absolute path",
		"docker-host: somewhere\n":            ":1): \"somewhere\": want an address",
	} {
		r := program(t.Context(), "", "config", "validate", "--config", configFile(t, text))
		if r.code != 2 || !strings.Contains(r.err, want) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%.40q: exit %d, %q; want %q", text, r.code, r.err, want)
		}
	}
	r := program(t.Context(), "", "config", "validate", "--json", configFile(t, "cpus: x\n"))
	if r.code != 2 || !strings.Contains(r.stdout, `"valid": false`) || !strings.Contains(r.stdout, `:1): \"x\"`) {
		t.Errorf("validate --json: exit %d, %s, want 2 and the line", r.code, r.stdout)
	}
	for _, text := range []string{"", "# only a comment\n", "---\n", "name: \"a\"\n---\ncpus: 0\n"} {
		if r := program(t.Context(), "", "config", "validate", "--config", configFile(t, text)); r.code != 0 {
			t.Errorf("%q: exit %d, %s, want exit 0", text, r.code, r.err)
		}
	}
	if r := program(t.Context(), "", "daemon", "--config", "/nowhere"); r.code != 2 || r.err != "muster: config file /nowhere: no such file or directory\n" {
		t.Errorf("a missing file: exit %d, %q, want 2 and the path", r.code, r.err)
	}
	t.Setenv("MUSTER_CPUS", "x")
	if r := program(t.Context(), "", "doctor"); r.code != 2 || !strings.Contains(r.err, "cpus (from environment): \"x\"") {
		t.Errorf("environment: exit %d, %q, want exit 2 and stderr with %q", r.code, r.err, "cpus (from environment): \"x\"")
	}
}

// FuzzConfig checks that no config file crashes the program.
func FuzzConfig(f *testing.F) {
	f.Add([]byte("name: a\nlabel: {a: b}\nlisten: [x]\n"))
	f.Add([]byte("? [a]: b\n- !!x &y *z\n"))
	f.Fuzz(func(_ *testing.T, text []byte) { _, _ = parseConfig("c.yaml", text) })
}
