# Everything a developer or CI does is a target here; `make` alone lists them.
# The work itself is in scripts/, so that it can be read and run by hand.

GO    ?= go
BELAY := bin/belay

.DEFAULT_GOAL := help
.PHONY: help build run demo test interop conformance bench lint fmt clean

help: ## this list
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/belay for this machine
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BELAY) ./cmd/belay # no C library to load: half the start-up time

run: build ## build Belay and serve tools to try, over HTTP; says what to do next, ends with Ctrl-C
	@$(BELAY) serve --demo-reference

demo: build ## the demo: six scenes, each bare and then under Belay
	$(BELAY) demo

test: ## install what the tests need, check the code for every system, run every test with -race, fuzz briefly
	@scripts/test

interop: ## the pinned real peers: official SDKs, the reference server, coding agents (needs a package registry)
	$(GO) run ./interop

conformance: ## the official conformance suite, directly and through Belay: equal? (needs a package registry)
	$(GO) run ./conformance

bench: ## the bars of docs/performance.md, each beside a direct connection in the same run
	$(GO) run ./bench

lint: ## every linter that golangci-lint has, less the dissents in .golangci.yaml
	@scripts/lint

fmt: ## put the code into the form that `make lint` asks for
	@scripts/lint fmt

clean: ## remove what was built and cached here
	rm -rf bin .cache
