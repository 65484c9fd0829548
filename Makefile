# The commands of developers and of CI. `make help` lists them.

GO       ?= go
TOOL     := $(GO) tool -modfile=internal/tools/go.mod
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# The date of that version, for the man pages.
DATE     ?= $(shell git log -1 --format=%cs 2>/dev/null)
# NVIDIA's library is loaded while the program runs, so its symbols must not be looked up at the start. Some toolchains do
# that unless they are told otherwise.
LAZY     := -extldflags=-Wl,-z,lazy
LDFLAGS  := -s -w -X main.version=$(VERSION) -X main.date=$(DATE) $(LAZY)
FUZZTIME ?= 60s
# The lowest priority, so that it slows the tests down as little as possible.
IDLE     := nice -n 19
PREFIX   ?= /usr/local
UNITDIR  ?= $(PREFIX)/lib/systemd/system
MANDIR   ?= $(PREFIX)/share/man
# Where the shells look for completion scripts.
BASHDIR  ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR   ?= $(PREFIX)/share/zsh/site-functions
FISHDIR  ?= $(PREFIX)/share/fish/vendor_completions.d
# The dashboard of Grafana, and the rules and an example configuration of Prometheus.
DATADIR  ?= $(PREFIX)/share/muster
PROMETHEUS := prometheus.yml alerts.yml dcgm.yml

# go-nvml calls functions that NVIDIA has marked as deprecated.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations
# The program, its tests, the linters and the tools are compiled with the same flags and with the profile of the program, so
# that each dependency is compiled once for all of them. Go cannot take a path with a space from here.
PROFILE  := $(if $(word 2,$(CURDIR)),off,$(CURDIR)/cmd/muster/default.pgo)
export GOFLAGS := $(strip $(filter-out -trimpath -pgo=% -ldflags=$(LAZY),$(GOFLAGS)) -trimpath $(or $(filter -pgo=%,$(GOFLAGS)),-pgo=$(PROFILE)) -ldflags=$(LAZY))

.DEFAULT_GOAL := build
.PHONY: build install uninstall check unit test e2e demo bench profile benchmarks study race fuzz soak redteam generate manual pictures fmt lint portable help

build: ## build the program, bin/muster
	CGO_ENABLED=0 $(GO) build -pgo=auto -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o cmd/muster/runner.bin ./cmd/muster-runner
	gzip -9nf cmd/muster/runner.bin
	$(GO) build -pgo=auto -tags 'embedrunner urfave_cli_no_docs $(TAGS)' -ldflags '$(LDFLAGS)' -o bin/muster ./cmd/muster

install: ## install the program, its systemd unit, man pages, completion, and the dashboard and rules for monitoring below DESTDIR and PREFIX; a running daemon must be restarted
	@test -x bin/muster || { echo "no program: run make build first" >&2; exit 1; }
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(UNITDIR)'
	install -m 0755 bin/muster '$(DESTDIR)$(PREFIX)/bin/.muster.new'
	mv -f '$(DESTDIR)$(PREFIX)/bin/.muster.new' '$(DESTDIR)$(PREFIX)/bin/muster'
	sed 's#@BINDIR@#$(PREFIX)/bin#' packaging/muster.service.in > '$(DESTDIR)$(UNITDIR)/muster.service'
	chmod 0644 '$(DESTDIR)$(UNITDIR)/muster.service'
	install -d '$(DESTDIR)$(MANDIR)' '$(DESTDIR)$(BASHDIR)' '$(DESTDIR)$(ZSHDIR)' '$(DESTDIR)$(FISHDIR)'
	bin/muster manual --man '$(DESTDIR)$(MANDIR)'
	bin/muster completion bash > '$(DESTDIR)$(BASHDIR)/muster'
	bin/muster completion zsh > '$(DESTDIR)$(ZSHDIR)/_muster'
	bin/muster completion fish > '$(DESTDIR)$(FISHDIR)/muster.fish'
	install -d '$(DESTDIR)$(DATADIR)/grafana' '$(DESTDIR)$(DATADIR)/prometheus'
	install -m 0644 packaging/grafana/muster.json '$(DESTDIR)$(DATADIR)/grafana'
	install -m 0644 $(PROMETHEUS:%=packaging/prometheus/%) '$(DESTDIR)$(DATADIR)/prometheus'

uninstall: ## remove what install has installed; the data directory and the configuration stay
	rm -f '$(DESTDIR)$(PREFIX)/bin/muster' '$(DESTDIR)$(UNITDIR)/muster.service'
	rm -f '$(DESTDIR)$(MANDIR)'/man1/muster.1 '$(DESTDIR)$(MANDIR)'/man1/muster-*.1 '$(DESTDIR)$(MANDIR)'/man5/muster-*.5
	rm -f '$(DESTDIR)$(BASHDIR)/muster' '$(DESTDIR)$(ZSHDIR)/_muster' '$(DESTDIR)$(FISHDIR)/muster.fish'
	rm -f '$(DESTDIR)$(DATADIR)/grafana/muster.json' $(PROMETHEUS:%='$(DESTDIR)$(DATADIR)/prometheus/%')
	rmdir '$(DESTDIR)$(DATADIR)/grafana' '$(DESTDIR)$(DATADIR)/prometheus' '$(DESTDIR)$(DATADIR)' 2>/dev/null || true

check: build ## build, check the format, lint, and run the tests of the packages
	$(MAKE) -j2 unit lint benchmarks portable

# timed runs tests, and prints the ten slowest at the end.
define timed
@times=$$(mktemp); rc=0; \
  $(TOOL) gotestsum --format pkgname --format-hide-empty-pkg --jsonfile-timing-events $$times --raw-command -- $(GO) test -json -vet=off $(1) || rc=$$?; \
  echo "the ten slowest tests:"; $(TOOL) gotestsum tool slowest --num 10 --jsonfile $$times; rm -f $$times; exit $$rc
endef

# What hangs ends with the stacks of its goroutines, well before those who wait for the gate lose patience.
# The linters include vet.
unit: ## run the tests of the packages, including simulated networks
	$(call timed,-timeout 20m ./...)

e2e: build ## run the tests with real daemons on loopback
	$(call timed,-count=1 -tags e2e -parallel 4 -timeout 35m ./e2e/...)

# The daemons' tests wait more than they compute, so all that runs at the lowest priority runs beside them.
test: build unit ## run everything that CI requires
	$(MAKE) -j4 e2e lint benchmarks portable

demo: build ## start three daemons on this machine, and compile muster as a job
	examples/demo.sh

bench: build ## measure the figures of docs/benchmarks.md
	$(GO) run ./e2e/bench

profile: ## measure anew where the CPU time of busy daemons and runners goes; the compiler optimizes both programs by that
	@dir=$$(mktemp -d) && \
	  $(MAKE) build TAGS=profile LDFLAGS="$(LAZY) -X github.com/musterhq/muster/internal/profile.dir=$$dir" && \
	  for row in rate array gang; do $(GO) run ./e2e/bench -only $$row -muster bin/muster || exit 1; done && \
	  $(GO) tool pprof -proto $$dir/muster-runner* > cmd/muster-runner/default.pgo && rm $$dir/muster-runner* && \
	  $(GO) tool pprof -proto $$dir/* > cmd/muster/default.pgo && rm -r $$dir
	$(MAKE) build

benchmarks: ## run each benchmark of the packages once, to see that it works
	@out=$$($(IDLE) timeout -s QUIT -k 60 35m $(GO) test -vet=off -run '^$$' -bench . -benchtime 1x \
	  $$(git grep -l '^func Benchmark' -- '*_test.go' | xargs -n1 dirname | sort -u | sed 's|^|./|') 2>&1) || { echo "$$out"; exit 1; }

study: ## simulate what partial knowledge and failures cost, and write the tables of docs/study.md
	$(GO) run ./internal/sim/study -write docs/study.md

race: ## run the tests of the packages with the race detector, in random order
	$(GO) test -race -short -shuffle=on -count=3 -timeout 60m ./...

fuzz: ## fuzz each decoder of external data for a minute
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg 2>/dev/null | grep '^Fuzz' || true); do \
	    echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$pkg; done; done

redteam: build ## attack a cluster in all known ways, some minutes each round, and print what others notice of each attack; see docs/redteam.md
	MUSTER_E2E_FULL=1 $(GO) test -vet=off -count=1 -tags e2e -timeout 1h -v ./e2e -run '^TestRedTeam$$'
	$(GO) test -vet=off -count=1 -tags e2e -timeout 2h ./... -run "^($$(grep -oE '\b(Test|Fuzz)[A-Z][A-Za-z0-9]*' docs/trust.md | sort -u | paste -sd'|'))$$"

soak: redteam ## run the red team, 20,000 random simulations of schedulers and workers, which print the seeds that failed, 20 of shares, and a network of 200 daemons
	$(GO) test -count=1 -timeout 6h ./internal/sim -run '^(TestRandomWorlds|TestUsersGetTheirShares)$$' -sim.seeds=20000 -sim.shares=20
	$(GO) test -count=1 -timeout 1h ./internal/daemon -run '^TestQueriesFindAllHostsAmongManyDaemons$$' -node.daemons=200

generate: manual ## generate the protobuf code and the tables of the manual
	$(TOOL) buf generate

pictures: build ## take the pictures of the README anew, with chromium and tmux
	$(GO) test -count=1 -tags e2e ./e2e -run '^TestPicturesShowWhatTheReadmeSays$$' -pictures

manual: ## make the tables and screens of docs/manual.md anew
	$(GO) run ./cmd/muster manual --fill docs/manual.md

fmt: ## format all code
	$(TOOL) gofumpt -w $$(git ls-files '*.go' | grep -v '\.pb\.go$$')

lint: ## run the linters, including vet, and check the format
	@out=$$($(IDLE) $(TOOL) gofumpt -l $$(git ls-files '*.go' | grep -v '\.pb\.go$$')); \
	  if [ -n "$$out" ]; then echo "not formatted (make fmt):"; echo "$$out"; exit 1; fi
	$(IDLE) $(TOOL) golangci-lint run --allow-parallel-runners

portable: ## see that the program can be built without cgo, and that go.mod is tidy
	CGO_ENABLED=0 $(IDLE) $(GO) build -o /dev/null ./cmd/muster
	$(GO) mod tidy -diff

help: ## print this list
	@grep -E '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12
