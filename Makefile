# SPDX-License-Identifier: Apache-2.0
#
# `make help` lists the targets. Everything is built into bin/. Go's build cache makes repeats
# fast, so this file keeps no stamps of its own.

SHELL       := /bin/bash -eo pipefail
.DEFAULT_GOAL := help
MODULE      := github.com/patchbay-cni/patchbay
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS     := -s -w -X $(MODULE)/internal/version.version=$(VERSION)
GOTESTSUM   := gotest.tools/gotestsum@v1.13.0
GOLANGCI    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
PROGRAMS    := patchbay patchbayd patchbay-controller kubectl-patchbay patchbay-agent patchbay-hub patchbay-operator
# Without this tag, gRPC links pages of traces and with them all methods of all types: 9 MB more.
TAGS        := grpcnotrace
NAME        ?= demo

# Set for every recipe: static binaries that do not depend on the folder of the checkout.
export CGO_ENABLED := 0
export GOFLAGS     := -buildvcs=false -trimpath

# Random tests have the same seeds in every run, so that a commit always has the same result.
# `make soak` chooses new ones. Seeds are variables because flags would disable Go's test cache.
export RAPID_SEED    ?= 1
export PATCHBAY_SEED ?= 1

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: $(PROGRAMS:%=bin/%) bin/lab ## build the programs and the lab into bin/

.PHONY: FORCE
FORCE:

$(PROGRAMS:%=bin/%): bin/%: FORCE
	@scripts/progress build-$* packages 30 bin/logs/$*.log go build -v -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o $@ ./cmd/$*

bin/lab: FORCE
	go build -ldflags '$(LDFLAGS)' -o $@ ./test/lab/cmd/lab

bin/kerneltest: FORCE
	go build -o $@ ./test/lab/cmd/kerneltest

bin/deviceplugin: FORCE
	go build -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o $@ ./test/deviceplugin/cmd/deviceplugin

.PHONY: images
images: $(PROGRAMS:%=bin/%) kubernetes etcd ## write OCI archives to bin/images, without a container engine
	go run ./scripts/images --version '$(VERSION)' --bin bin --out bin/images

# The version is the tag of the commit, or VERSION. A partial release has only the images and platforms that IMAGES
# and PLATFORMS list, such as PLATFORMS=linux/amd64.
REGISTRY ?=
BASE_URL ?=
RELEASE  = $(if $(filter file,$(origin VERSION)),,--version '$(VERSION)') $(if $(REGISTRY),--registry '$(REGISTRY)') \
	$(if $(BASE_URL),--base-url '$(BASE_URL)') $(if $(IMAGES),--images '$(IMAGES)') $(if $(PLATFORMS),--platforms '$(PLATFORMS)')

.PHONY: release
release: ## write a release to bin/release/VERSION: images, manifests, plugin archives, SBOMs, checksums
	go run ./scripts/release $(RELEASE) $(if $(filter 1,$(ALLOW_DIRTY)),--allow-dirty)

.PHONY: check-release
check-release: ## build the commit's release here and in a clone, and compare
	scripts/check-release $(RELEASE)

.PHONY: packages
packages: ## install the system packages that the lab needs (Debian, root)
	@scripts/install-packages

# Checks within seconds whether this machine can run the target.
.PHONY: preflight-demo preflight-test
preflight-demo preflight-test: preflight-%:
	@scripts/preflight machine $*
	@scripts/install-packages
	@scripts/build-shim
	@scripts/build-linux --cached
	@scripts/preflight kernel $*

.PHONY: linux
linux: packages ## build the kernel of the lab's nodes into bin/linux, once per machine
	@scripts/build-linux
	@scripts/build-shim

.PHONY: sriov
sriov: packages ## get QEMU and Debian's kernel for guests with SR-IOV into bin/qemu, once per machine
	@scripts/install-sriov

.PHONY: kubernetes
kubernetes: ## build Kubernetes' programs into bin/kubernetes
	@scripts/build-kubernetes

.PHONY: etcd
etcd: ## build the etcd of the hub's image into bin/kubernetes
	@scripts/build-etcd

.PHONY: coredns
coredns: ## build CoreDNS for the tests of Services into bin/coredns
	@scripts/build-coredns

.PHONY: containerd-2
containerd-2: ## build containerd 2, which nodes of the lab can run, into bin/containerd-2
	@scripts/build-containerd

.PHONY: helm
helm: ## build Helm for the tests of the charts into bin/helm
	@scripts/build-helm

.PHONY: previous
previous: ## build the previous version for the test of upgrades into bin/previous
	@scripts/build-previous

.PHONY: kubernetes-oldest
kubernetes-oldest: ## build the API server of the oldest supported Kubernetes
	@scripts/build-kubernetes bin/kubernetes/oldest oldest

.PHONY: gotestsum
gotestsum:
	@CGO_ENABLED=0 GOBIN=$(CURDIR)/bin/tools go install $(GOTESTSUM)

.PHONY: generate
generate: ## write the generated code, manifests, charts, API reference and NOTICE
	@scripts/generate

.PHONY: check-generate
check-generate: ## fail if generated files differ from what `make generate` writes
	@scripts/check-generate

.PHONY: openapi
openapi: ## embed the OpenAPI documents of the Kubernetes versions in internal/crdcompiler/openapi/sources.txt
	go run ./scripts/openapi internal/crdcompiler/openapi

.PHONY: check-modules
check-modules: ## fail if a go.mod is not tidy
	@scripts/check-modules

.PHONY: check-scripts
check-scripts: packages ## run shellcheck
	shellcheck $$(git ls-files --cached --others --exclude-standard scripts .ci | xargs grep -lE '^#!.*sh$$')

.PHONY: lint
lint: ## run golangci-lint with all linters, and gofmt
	@scripts/progress golangci-lint lines 60 bin/logs/lint.log go run $(GOLANGCI) run ./...

.PHONY: shape
shape: ## measure how the code is laid out, beside the project's limits
	@go run ./scripts/shape

# `make demo` does not wait for `make linux`: without bin/linux, nodes run Debian's kernel.
.PHONY: demo
demo: ## start two nodes with kernels of their own, and Pods on three networks
	@$(MAKE) --no-print-directory preflight-demo
	@$(MAKE) --no-print-directory kubernetes build images
	bin/lab demo --name $(NAME)

.PHONY: demo-down
demo-down: bin/lab ## end the demo and remove everything
	bin/lab down --name $(NAME)

.PHONY: test
test: ## run all tests, three targets at a time (LANES=1: one)
	@scripts/test-all

.PHONY: test-gates
test-gates: ## check generated files, go.mod, scripts and lint
	@scripts/target gates $(MAKE) --no-print-directory check-generate check-modules check-scripts lint

.PHONY: test-unit
test-unit: gotestsum ## run unit tests with the race detector
	CGO_ENABLED=1 scripts/gotest unit -vet=off -race -timeout 20m ./...

.PHONY: test-rules
test-rules: gotestsum packages kubernetes ## switch off each rule of address management: a test must fail
	FORMAT=testname scripts/gotest rules -vet=off -tags 'rules apiserver' -count=1 -timeout 60m ./test/rules

.PHONY: test-api
test-api: gotestsum packages kubernetes kubernetes-oldest coredns helm ## run tests against a real API server and etcd
	CGO_ENABLED=1 scripts/gotest api -vet=off -race -tags apiserver -timeout 60m $$(scripts/packages-with-tag apiserver)

.PHONY: test-kernel
test-kernel: gotestsum packages linux bin/kerneltest ## run tests in a kernel with IPVLAN and VLAN
	@bin/kerneltest /bin/true # prints which kernel
	scripts/gotest kernel -vet=off -tags kernel -timeout 10m -exec $(CURDIR)/bin/kerneltest $$(scripts/packages-with-tag kernel)

.PHONY: test-fallback
test-fallback: gotestsum packages linux bin/kerneltest ## test the fallback kernel: it boots and has the drivers
	@PATCHBAY_LAB_KERNEL=debian bin/kerneltest /bin/true # prints which kernel
	PATCHBAY_LAB_KERNEL=debian scripts/gotest fallback -vet=off -tags kernel -count=1 -timeout 10m -exec $(CURDIR)/bin/kerneltest -run '^Test(AttachGolden|PodsOnVLAN)$$' ./daemon/internal/kernel

.PHONY: test-sriov
test-sriov: test-sriov-guest test-sriov-lab ## run tests on SR-IOV functions, which QEMU simulates

.PHONY: test-sriov-guest
test-sriov-guest: gotestsum packages sriov bin/kerneltest
	scripts/gotest sriov-guest -vet=off -tags sriov -timeout 40m -exec '$(CURDIR)/bin/kerneltest --kernel qemu --timeout 40m' $$(scripts/packages-with-tag sriov)

.PHONY: test-sriov-lab
test-sriov-lab: gotestsum packages linux sriov kubernetes build images bin/deviceplugin
	FORMAT=testname scripts/gotest sriov-lab -vet=off -count=1 -tags sriovlab -timeout 60m ./test/sriov

.PHONY: test-cluster
test-cluster: gotestsum packages linux kubernetes containerd-2 coredns build images ## run tests in the lab: real kubelets on three nodes
	FORMAT=testname scripts/gotest cluster -vet=off -p 1 -parallel 6 -count=1 -tags cluster -timeout 120m $$(scripts/packages-with-tag cluster)

.PHONY: test-install
test-install: gotestsum packages linux kubernetes coredns helm build images ## install, change and remove Patchbay in each way, in a lab of its own
	FORMAT=testname scripts/gotest install -vet=off -count=1 -tags install -run TestInstall -timeout 60m ./test/install

# It takes 20 minutes, and the history of the repository.
.PHONY: test-upgrade
test-upgrade: gotestsum packages linux kubernetes coredns previous build images ## upgrade from the previous version and go back, in a lab of its own (not part of make test)
	FORMAT=testname scripts/gotest upgrade -vet=off -count=1 -tags install -run TestUpgrade -timeout 120m ./test/install

.PHONY: test-docs
test-docs: gotestsum packages linux kubernetes coredns helm build images ## run the commands of README.md and docs in a lab of their own
	FORMAT=testname scripts/gotest docs -vet=off -count=1 -tags docs -timeout 60m ./test/docs

.PHONY: test-placement
test-placement: gotestsum packages kubernetes kwok helm build ## run tests of placement: a hub and three clusters on loopback
	FORMAT=testname scripts/gotest placement -vet=off -p 1 -count=1 -tags placement -timeout 90m $$(scripts/packages-with-tag placement)

SOAK ?= 30m

.PHONY: soak
soak: packages linux kubernetes bin/kerneltest ## run random tests with new seeds for SOAK=30m
	scripts/soak $(SOAK)

.PHONY: kwok
kwok: ## build KWOK, which simulates nodes and Pods, into bin/kwok
	@scripts/build-kwok

.PHONY: demo-placement
demo-placement: packages kubernetes kwok build ## start a hub and three clusters, and place, divide and move a workload (KEEP=1: until Ctrl-C)
	go run ./test/placement/cmd/demo $(if $(KEEP),--stay)

.PHONY: bench
bench: packages linux kubernetes kwok build ## print figures beside their peers, from one run
	scripts/bench
