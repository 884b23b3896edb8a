# SPDX-License-Identifier: Apache-2.0
#
# One screen of targets; `make help` lists them. Everything is built into bin/.
# Go's build cache makes repeats fast: nothing here keeps stamps of its own.

SHELL       := /bin/bash -eo pipefail
.DEFAULT_GOAL := help
MODULE      := github.com/patchbay-cni/patchbay
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS     := -s -w -X $(MODULE)/version.version=$(VERSION)
GOLANGCI    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
PROGRAMS    := patchbay patchbayd patchbay-controller kubectl-patchbay patchbay-agent patchbay-hub
NAME        ?= demo

# Set for every recipe: static binaries, the same from any folder.
export CGO_ENABLED := 0
export GOFLAGS     := -buildvcs=false -trimpath

# Property tests (rapid) draw the same in every run, so that a commit has one answer;
# `make soak-properties` draws anew. The seed's flag would keep results out of the cache.
export RAPID_SEED ?= 1
CHECKS            ?= 3000

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: $(PROGRAMS:%=bin/%) bin/lab ## build the programs and the lab into bin/

.PHONY: FORCE
FORCE:

$(PROGRAMS:%=bin/%): bin/%: FORCE
	go build -ldflags '$(LDFLAGS)' -o $@ ./cmd/$*

bin/lab: FORCE
	go build -ldflags '$(LDFLAGS)' -o $@ ./test/lab/cmd/lab

bin/kerneltest: FORCE
	go build -o $@ ./test/lab/cmd/kerneltest

.PHONY: images
images: $(PROGRAMS:%=bin/%) kubernetes etcd ## make OCI archives in bin/images, without a container engine
	go run ./scripts/images --version '$(VERSION)' --bin bin --out bin/images

.PHONY: packages
packages: ## install the system packages that the lab needs (Debian 12, root)
	@scripts/install-packages

.PHONY: kubernetes
kubernetes: ## build Kubernetes' own programs into bin/kubernetes
	@scripts/build-kubernetes

.PHONY: etcd
etcd: ## build the etcd of the hub's image into bin/kubernetes
	@scripts/build-etcd

.PHONY: coredns
coredns: ## build a CoreDNS that serves Services into bin/coredns
	@scripts/build-coredns

.PHONY: kubernetes-oldest
kubernetes-oldest: ## build the API server of the oldest Kubernetes that we run on
	@scripts/build-kubernetes bin/kubernetes/oldest oldest

.PHONY: generate
generate: ## write the generated code and manifests anew
	@scripts/generate

.PHONY: check-generate
check-generate: ## fail when generated files are not what `make generate` writes
	@scripts/check-generate

.PHONY: lint
lint: ## golangci-lint from all, and gofmt
	go run $(GOLANGCI) run ./...

.PHONY: demo
demo: packages kubernetes build images ## two nodes with kernels of their own, and Pods on three networks
	bin/lab demo --name $(NAME)

.PHONY: demo-down
demo-down: bin/lab ## end the demo; nothing is left behind
	bin/lab down --name $(NAME)

.PHONY: test
test: check-generate test-unit test-rules test-api test-placement test-kernel test-cluster ## everything

.PHONY: test-unit
test-unit: ## unit tests with the race detector
	go vet -tags 'kernel apiserver cluster rules placement' ./...
	CGO_ENABLED=1 go test -race -timeout 10m ./...

.PHONY: soak-properties
soak-properties: ## property tests with new draws, CHECKS=3000 of each
	RAPID_SEED=0 RAPID_CHECKS=$(CHECKS) CGO_ENABLED=1 go test -race -count=1 -timeout 2h $$(scripts/packages-with-properties)

.PHONY: test-rules
test-rules: ## each rule of address management, switched off: a test must fail
	go test -tags rules -count=1 -timeout 30m ./test/rules

.PHONY: test-api
test-api: packages kubernetes kubernetes-oldest coredns ## tests against a real API server and etcd
	CGO_ENABLED=1 go test -race -tags apiserver -timeout 15m $$(scripts/packages-with-tag apiserver)
	go test -tags 'rules apiserver' -count=1 -timeout 30m -run '^TestAPIRules' ./test/rules

.PHONY: test-kernel
test-kernel: packages bin/kerneltest ## tests in a kernel that has IPVLAN and VLAN
	scripts/test-kernel

.PHONY: soak-links
soak-links: packages bin/kerneltest ## five minutes of chaos on the links of a node
	PATCHBAY_SOAK=5m scripts/test-kernel -count=1 -v -run '^TestLinkChaos$$' ./daemon/kernel

.PHONY: test-cluster
test-cluster: packages kubernetes coredns build images ## tests in the lab: real kubelets on three nodes
	go test -v -p 1 -count=1 -tags cluster -timeout 60m $$(scripts/packages-with-tag cluster)

.PHONY: kwok
kwok: ## build KWOK, which plays nodes and Pods, into bin/kwok
	@scripts/build-kwok

.PHONY: test-placement
test-placement: packages kubernetes kwok build ## tests of placement: a hub and three clusters on loopback
	go test -v -p 1 -count=1 -tags placement -timeout 30m $$(scripts/packages-with-tag placement)

.PHONY: demo-placement
demo-placement: packages kubernetes kwok build ## a hub and three clusters: place, divide, move; it ends by itself, with KEEP=1 at Ctrl-C
	go run ./test/placement/cmd/demo $(if $(KEEP),--stay)

.PHONY: bench
bench: packages kubernetes kwok build ## figures beside their peers, from one run
	scripts/bench
