# sandboxbash: `make quickstart` tries it, `make test` runs every test there is.

GO      ?= go
BIN     := bin/sandboxbash
RUNNERS := images/runner/runner-linux-amd64.gz images/runner/runner-linux-arm64.gz
TOOL    := $(GO) tool -modfile=tools/go.mod
FUZZ    ?= 10s
MINUTES ?= 10

# Equal bytes come from equal compilers: the one that go.mod names.
EXACT := GOTOOLCHAIN=go$(shell awk '$$1 == "go" { print $$2 }' go.mod)

# A command's own process group, its exit and its output are what these tests
# are about: give them time on a slow machine, and never a cached result.
TESTFLAGS ?= -count=1 -shuffle=on -timeout=20m

.PHONY: help build quickstart test lanes lane kills many clients check fmt e2e lint fuzz bench soak conformance vuln runner verify-runner cross release clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/sandboxbash, runners embedded
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -o $(BIN) ./cmd/sandboxbash

quickstart: build ## build it, make the host image, and run a real job in a session
	@./docs/quickstart.sh $(BIN)

# The packages with tests on an engine run one at a time: they share it, and look at all that
# happens on it. The others run in parallel.
ON_ENGINE = $(shell $(GO) list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... | \
  awk '/enginetest|dockertest|\/e2e/ {print $$1}')
OTHERS = $(filter-out $(ON_ENGINE),$(shell $(GO) list ./...))

test: build ## run every test there is, e2e included (needs an engine)
	$(GO) test $(TESTFLAGS) $(OTHERS); first=$$?; $(GO) test -p 1 $(TESTFLAGS) $(ON_ENGINE) && exit $$first
	cd tools/release && $(GO) vet ./... && $(GO) test $(TESTFLAGS) ./...

lanes: build ## every check of docs/lanes.md on every engine and runtime here: make test takes the environment's alone
	SANDBOXBASH_TEST_LANES=all $(GO) test $(TESTFLAGS) -run '^TestLanes$$' ./e2e

lane: ## the same checks on one engine of today in a guest of its own, NAME=…; without NAME it lists them (needs root)
	@e2e/lanes/lane.sh $(NAME) $(TESTFLAGS)

kills: ## each attack on a kill by each way to kill: more of TestSurvivors than make test takes time for
	SANDBOXBASH_TEST_KILLS=all $(GO) test $(TESTFLAGS) -run '^TestSurvivors$$' ./sandbox

many: build ## a workspace of 100,000 files: make test takes 10,000
	SANDBOXBASH_TEST_DIRS=100 $(GO) test $(TESTFLAGS) -run '^TestSessions$$/^many$$' ./e2e

# The image is made of about 350 MB of Debian's packages. Neither is kept, unless KEEP=1 says so: then the packages stay in
# ~/.cache/sandboxbash-test-clients and the image in the engine, until `$(CLIENTS_IMAGE) remove`.
CLIENTS_IMAGE = sandbox/testdata/clients/image.sh
clients: ## every client of docs/network.md in an image that has them all: make test takes those of this machine; UPDATE=1 writes the page
	@trap '$(if $(KEEP),:,$(CLIENTS_IMAGE) remove)' EXIT; trap 'exit 1' INT TERM; \
	SANDBOXBASH_TEST_CLIENTS=all $(GO) test $(TESTFLAGS) -run '^TestNetworkClients$$' ./sandbox $(if $(UPDATE),-args -update-clients)

# go vet comes first, and so go test need not run it again. make test runs the same tests without the race detector.
check: ## what CI runs first; needs no engine
	@wrong=$$($(TOOL) gofumpt -l .) || exit 1; test -z "$$wrong" || { echo "not formatted (run make fmt): $$wrong"; exit 1; }
	$(GO) vet ./...
	$(TOOL) staticcheck ./...
	SANDBOXBASH_TEST_ENGINE=none $(GO) test -vet=off -count=1 -shuffle=on -race ./...

fmt: ## format all source as `make check` wants it
	$(TOOL) gofumpt -w .

e2e: build ## black-box tests of the binary on a real engine
	$(GO) test -p 1 $(TESTFLAGS) -v ./e2e/...

lint: ## golangci-lint, as pinned in tools/go.mod, and the words that our English goes without
	$(TOOL) golangci-lint run ./...
	$(GO) test -count=1 -run '^TestWords' ./docs

fuzz: ## each fuzz test for $(FUZZ)
	@$(GO) test -list '^Fuzz' ./... | awk '/^Fuzz/ {f[n++]=$$1} /^ok/ {for (i=0;i<n;i++) print $$2, f[i]; n=0}' | \
	while read -r pkg name; do $(GO) test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZ) -fuzzminimizetime 20x "$$pkg" || exit 1; done

bench: build ## measure, and write docs/benchmarks.md
	$(GO) run ./e2e/bench -binary $(BIN) -out docs/benchmarks.md

# TARGET is a file or one of conformance/targets, and ARGS are further flags. Without it all are asked, the others
# with the image that ours has: some of them fail, which is what the page is for.
conformance: build ## ask every bash tool here the black-box scenarios, for docs/conformance.md; TARGET=… asks one
ifdef TARGET
	$(GO) run ./conformance $(ARGS) $(TARGET)
else
	$(BIN) image host
	$(GO) build -o bin/conformance ./conformance
	bin/conformance -slow -page docs/conformance.md -var image="$$(docker image ls -q 'sandboxbash/host' | head -n 1)" $(ARGS) \
	  sandboxbash docker-exec docker-exec-timeout docker-run podman-exec podman-run bwrap unshare bash || [ $$? = 1 ]
endif

soak: build ## kills, dead hosts, load, leaks and $(MINUTES) minutes of a nemesis, into docs/reliability.md
	$(GO) run ./e2e/soak -binary $(BIN) -minutes $(MINUTES) $(if $(SEED),-seed $(SEED)) $(if $(ONLY),-only $(ONLY)) -out docs/reliability.md

vuln: ## known vulnerabilities in what we depend on
	$(TOOL) govulncheck ./...

# The runners are committed compressed, so that `go install` and use as a library
# need no separate step. They are built reproducibly: CI builds them again and
# compares (docs/adr/0002).
runner: ## build the runners again, for images/runner
	$(EXACT) $(GO) run ./images/packrunner -out images/runner

verify-runner: ## check that the committed runners are what the tree builds
	$(EXACT) $(GO) run ./images/packrunner -out images/runner -verify

# Each host is a build of the whole standard library: some minutes where nothing is cached.
HOSTS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
cross: ## build for every host we promise, or for HOSTS
	for host in $(HOSTS); do \
	  GOOS=$${host%/*} GOARCH=$${host#*/} CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/sandboxbash || exit 1; done
	for os in darwin windows; do GOOS=$$os GOARCH=amd64 $(GO) vet ./... || exit 1; done

# The release program is a module of its own, so that its dependencies are not ours.
PLATFORMS ?= linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64
release: ## build VERSION into dist: archives, packages, image, SBOM, checksums
	@mkdir -p bin
	cd tools/release && $(GO) build -o $(CURDIR)/bin/release .
	$(EXACT) bin/release -version '$(VERSION)' -out '$(or $(OUT),dist)' -platforms '$(PLATFORMS)'

clean: ## remove what the build has made
	rm -rf bin dist
