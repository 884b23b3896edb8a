// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/patchbay-cni/patchbay/test/source"
)

// part is a page, or a part of it, that a reader follows in one go.
type part struct {
	page string
	// from and before are headings; without them the part begins or ends with the page.
	from, before string
	// setup makes what the part needs, and cleanup removes what it leaves.
	setup, cleanup string
	// steps run before the block whose first line is the key: what a reader does meanwhile, or does in
	// another place.
	steps map[string]string
	// files names the files into which a reader saves the block whose first line begins with the key. A
	// later command applies it.
	files map[string]string
	// values replace texts in commands and saved files, in pairs: NAME and the like, and what a lab does not have.
	values []string
	// varying are further patterns of output that differs from run to run.
	varying []string
}

const (
	startDemo = `kubectl apply -k examples/demo && kubectl rollout status deploy/hello --timeout=240s`
	// awaitRollout waits for the programs.
	awaitRollout = `
kubectl -n patchbay-system rollout status daemonset/patchbayd --timeout=240s
kubectl -n patchbay-system rollout status deployment/patchbay-controller --timeout=240s`
	// endTenants waits for the namespace: its networks go after its Pods.
	endTenants = `kubectl delete --ignore-not-found namespace red --timeout=240s
kubectl delete --ignore-not-found tenantconfig/self-service clusterrolebinding/netadmins`
	// lostPod cannot be attached.
	lostPod = `kubectl create -f - <<'END'
apiVersion: danm.io/v1
kind: ClusterNetwork
metadata: {name: missing-nic}
spec: {NetworkID: lost, NetworkType: ipvlan, Options: {host_device: ens9, cidr: 10.99.0.0/24}}
---
apiVersion: v1
kind: Pod
metadata:
  name: lost
  annotations:
    danm.io/interfaces: '[{"clusterNetwork": "default"}, {"clusterNetwork": "missing-nic", "ip": "dynamic"}]'
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "patchbay.local/busybox:lab", imagePullPolicy: Never, command: [sleep, infinity]}]
END`
)

// parts are run in this order: a reader installs Patchbay, uses it, and uninstalls it.
var parts = []part{
	{
		page: "docs/install.md", before: "Upgrade",
		setup: `cp examples/demo/networks.yaml .`,
		values: []string{
			"https://github.com/patchbay-cni/patchbay//", "", "?ref=v0.1.0", "", "registry.example/", "patchbay.local/",
			"v0.1.0", "devel", "/usr/local/bin/", "$HOME/local/",
		},
	},
	{
		page:   "docs/install-platforms.md",
		values: []string{"https://github.com/patchbay-cni/patchbay//", "../", "?ref=v0.1.0", ""},
	},
	{page: "docs/operations.md"},
	{
		page:  "docs/api.md",
		setup: `kubectl delete clusternetworks storage backend`,
		steps: map[string]string{"kubectl patchbay ipam rebuild": startDemo},
	},
	{
		page:    "README.md",
		cleanup: "kubectl delete pod fixed\n" + endTenants,
		varying: []string{`655[012]\d`, `2[23]\d`, `24\d|25[0-2]`, `10\.50\.0\.\d+/24`, `10\.70\.0\.\d/16`, `10\.244\.\d+\.\d+/24`},
	},
	{page: "docs/tenants.md", cleanup: endTenants, varying: []string{`24\d|25[0-2]`, `10\.0\.0\.[1-9]\d*/24`}},
	{page: "docs/links.md"},
	{page: "docs/sriov.md", values: []string{"NODE -o", "node-1 -o"}},
	{
		page:    "docs/services.md",
		cleanup: `kubectl delete pod/web service/web`,
		varying: []string{`web-[0-9a-f]{10}`, `10\.50\.0\.\d+`, `fd00:50::[0-9a-f]+`},
	},
	{page: "docs/addresses.md", values: []string{"NAME", "storage"}, varying: []string{`2[23]\d`, `92233720368547757\d\d`}},
	{
		page:    "docs/troubleshooting.md",
		setup:   lostPod,
		cleanup: `kubectl delete pod/lost clusternetwork/missing-nic`,
		values:  []string{"NAMESPACE", "default", "NAME", "lost", "NODE", "node-1"},
	},
	{
		page:    "docs/monitoring.md",
		setup:   `kubectl create namespace monitoring && kubectl -n monitoring create serviceaccount prometheus`,
		cleanup: `kubectl delete clusterrolebinding/patchbay-metrics-reader namespace/monitoring`,
		values:  []string{"NODE", "10.89.0.11"},
	},
	{page: "docs/crd-compiler.md", cleanup: `kubectl delete crd daskclusters.example.com`},
	{page: "docs/lab.md"},
	{page: "docs/release.md"},
	{page: "docs/install.md", from: "Upgrade", setup: `kubectl delete --ignore-not-found deploy/hello --cascade=foreground
kubectl wait --for=delete danmeps --all --all-namespaces --timeout=240s
cp examples/demo/networks.yaml .`, values: []string{"https://github.com/patchbay-cni/patchbay//", "", "?ref=v0.1.0", ""}},
	{
		page: "docs/helm.md",
		steps: map[string]string{
			// The kustomization is that of install.md.
			"kubectl apply --server-side": `helm uninstall patchbay patchbay-crds --namespace patchbay-system --wait
kubectl apply -k .` + awaitRollout,
		},
		values: []string{
			"patchbay-crds-0.1.0.tgz", "charts/patchbay-crds", "patchbay-0.1.0.tgz", "charts/patchbay",
			"patchbay-crds-0.2.0.tgz", "charts/patchbay-crds", "patchbay-0.2.0.tgz", "charts/patchbay",
			"image.tag=v0.1.0", "image.tag=devel",
		},
		cleanup: `kubectl delete -k deployments/crds
kubectl delete namespace patchbay-system`,
	},
	{
		page: "docs/operator.md",
		// A release has the file; its images have other names.
		setup: `mkdir -p manifests && kubectl kustomize deployments/operator >manifests/patchbay-operator.yaml`,
		files: map[string]string{"# installation.yaml with all": "installation.yaml", "# installation.yaml of a cluster": "installation.yaml"},
		steps: map[string]string{
			"# installation.yaml of a cluster": `cp installation.yaml defaults.yaml
kubectl create serviceaccount --namespace patchbay-system patchbay-controller-east
kubectl label nodes --all node-role.kubernetes.io/control-plane=`,
			"kubectl delete --ignore-not-found -f": `test -z "$(kubectl get daemonsets,deployments,installations -A -l app.kubernetes.io/part-of=patchbay -o name | grep -v patchbay-operator)"
kubectl get clusternetworks`,
			"kubectl delete namespace patchbay-operator": `kubectl apply --server-side -k deployments/operator
kubectl -n patchbay-operator rollout status deployment/patchbay-operator --timeout=5m
kubectl apply -f defaults.yaml
kubectl wait installation/patchbay --for=condition=Ready --timeout=5m`,
		},
		values: []string{
			"https://github.com/patchbay-cni/patchbay//", "", "?ref=v0.1.0", "",
			"newTag: v0.1.0", "newTag: devel", "registry.example/patchbay", "patchbay.local", "registry.example/shipper:1", "patchbay.local/busybox:lab",
			"imagePullPolicy: Always", "imagePullPolicy: IfNotPresent", // the lab has no registry
		},
		cleanup: `test "$(kubectl get pods -n patchbay-system -l app.kubernetes.io/name=patchbayd -o name | wc -l)" = 2` + awaitRollout,
	},
}

// excuses are the blocks that are not run, by page and the beginning of the first line, each with its reason.
var excuses = map[string]map[string]string{
	"README.md": {
		"make demo": "both commands build everything, and `make test` runs this test. TestLab starts a lab, and TestRun in test/lab/demo shows Pods of a simulated one; no test runs all of `make demo`",
	},
	"docs/install.md": {
		"make build images": "`make test-docs` builds both before it starts this test",
	},
	"docs/helm.md": {
		"# values for k3s":        "values of the chart; TestEveryValueHasAnEffect in test/charts renders each of them",
		"# values with a sidecar": "values of the chart; TestTemplatesMergeAsInKubernetes in test/charts renders such templates",
	},
	"docs/install-platforms.md": {
		"kubectl patchbay preflight --cni-bin-dir": "the lab has no k3s; TestReadRuntime and TestCheckFacts check the folders, and the block in docs/install.md runs the command",
	},
	"docs/links.md": {
		"$ kubectl get nodenetwork node-1 -o json | jq -c": "the nodes of this lab have no card with SR-IOV; TestAllFunctions in test/sriov reads the function's DanmEps, and TestFunctionsStatus in netwatcher compares the NodeNetwork",
		"--vtep-ranges=":        "an argument of the daemon; TestOptions in daemon parses it",
		"ready on all nodes":    "messages of a condition; TestReadyCondition in controller/internal/networks compares them, and TestMessages in netwatcher the text about the NIC",
		"ready on 0 of 3 nodes": "a message of a condition; TestReadyOfMissingPlugin in controller/internal/networks compares it, and TestChecker in daemon/internal/backend/delegate the node's text",
	},
	"docs/operator.md": {
		"1 of 42 nodes updated":             "the message of a condition; TestDaemonSetProgress in operator/internal/rollout compares it",
		"# installation.yaml with Calico":   "the lab has no Calico; TestPage in operator renders all Installations of the page",
		"kubectl -n patchbay-system create": "the lab has no hub; TestInstall in operator enables the agent",
	},
	"docs/sriov.md": {
		"# /etc/systemd/network": "a file of systemd for a node with an SR-IOV card, which User-Mode Linux does not have; no test applies it, and TestFunctions in test/lab/qemu finds functions that the guest has created through sriov_numvfs",
	},
	"docs/monitoring.md": {
		"apiVersion: v1": "PodMonitor is a kind of the Prometheus operator, which the lab does not have; no test applies the block",
	},
	"docs/release.md": {
		"sha256sum --check":           "`make test-docs` builds no release; TestPublish in scripts/release runs sha256sum with one",
		"grep ' kubectl-patchbay":     "`make test-docs` builds no release; TestPublish in scripts/release checks the checksums of all files",
		"while read -r image":         "it needs a registry and skopeo; TestPublish in scripts/release reads the archives with the names in images.txt",
		"ctr -n k8s.io images import": "`make test-docs` builds no release; each test in the lab imports the archives of `make images`, which the same code writes",
		"kubectl krew install":        "krew is not installed here; TestPublish in scripts/release reads the manifest and the archives that it names",
		"git clone --branch v0.1.0":   "there is no release yet; TestReproducible in scripts/release builds one twice and compares",
	},
	"docs/lab.md": {
		"make sriov":             "a node in QEMU takes minutes to boot; TestMain in test/sriov starts one through the same function, and TestCommands in test/lab/cmd/lab checks that each command and flag exists",
		"make containerd-2":      "the lab of this test has its nodes, which keep their runtime; TestContainerd2 and TestLab in test/lab start nodes with containerd 2 through the same functions",
		"go test -tags sriov":    "it needs bin/qemu and bin/kerneltest, which `make test-docs` does not build; `make test-sriov` runs all packages in the same way",
		"bin/lab up [--nodes N]": "the forms of the commands; TestCommands in test/lab/cmd/lab checks that each command and flag exists",
		"lab demo: nodes boot":   "what the lab prints depends on the machine; TestProcessor in test/lab/uml compares the text about the processor",
		"func TestSomething":     "the outline of a test in Go; TestLab and test/cluster call the same functions",
		"go test -tags kernel":   "it needs bin/kerneltest, which `make test-docs` does not build; `make test-kernel` runs all packages in the same way, without -run",
	},
}

// otherPages are pages whose blocks other tests run, with the folders of these. They start what the page needs,
// here a hub and clusters. They take a block with fromPage, by a text that it has.
var otherPages = map[string][]string{"docs/placement.md": {"test/placement", "placement/hub"}}

// byFirstLine returns the entry whose key the first line of the block begins with.
func byFirstLine(entries map[string]string, b *Block) string {
	for begin, entry := range entries {
		if strings.HasPrefix(b.FirstLine(), begin) {
			return entry
		}
	}
	return ""
}

// isShell reports whether a block has commands.
func isShell(b *Block) bool { return b.Language == "" || b.Language == "sh" }

// blocks returns those of the part.
func (p *part) blocks(t *testing.T) []Block {
	t.Helper()
	page := readPage(t, p.page)
	first, last := 0, math.MaxInt
	for heading, line := range map[string]*int{p.from: &first, p.before: &last} {
		if heading == "" {
			continue
		}
		if *line = page.Headings[heading]; *line == 0 {
			t.Fatalf("%s has no heading %q", p.page, heading)
		}
	}
	return slices.DeleteFunc(page.Blocks, func(b Block) bool { return b.Line < first || b.Line > last })
}

func readPage(t *testing.T, path string) Page {
	t.Helper()
	page, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// Each block of a page is run once, or is excused. An excuse or a step for a block that does not exist is
// one that was forgotten.
func TestEachBlockIsRunOrExcused(t *testing.T) {
	t.Parallel()
	run := map[string][]int{}
	for _, p := range parts {
		for _, b := range p.blocks(t) {
			run[p.page] = append(run[p.page], b.Line)
		}
		checkUsed(t, p.page, "step", p.steps, p.blocks(t))
		checkUsed(t, p.page, "file", p.files, p.blocks(t))
	}
	for path, folders := range otherPages {
		page := readPage(t, path)
		for _, folder := range folders {
			for _, text := range takenBlocks(t, folder) {
				b, err := page.Block(text)
				if err != nil {
					t.Errorf("fromPage in %s: %v", folder, err)
				}
				run[path] = append(run[path], b.Line)
			}
		}
	}
	for _, path := range pagePaths(t) {
		page := readPage(t, path)
		checkUsed(t, path, "excuse", excuses[path], page.Blocks)
		for _, b := range page.Blocks {
			if n := len(slices.DeleteFunc(slices.Clone(run[path]), func(line int) bool { return line != b.Line })); n != 1 {
				t.Errorf("%s:%d: the block %q is run %d times, want once: name the page in parts, or take the block with fromPage", path, b.Line, b.FirstLine(), n)
			}
			if byFirstLine(excuses[path], &b) != "" {
				continue
			}
			if !isShell(&b) && !slices.Contains([]string{"yaml", "go"}, b.Language) {
				t.Errorf("%s:%d: the block has the language %q: must be none for commands, or yaml or go", path, b.Line, b.Language)
			}
			if _, err := b.Commands(); isShell(&b) && err != nil {
				t.Errorf("%s:%v", path, err)
			}
		}
	}
}

// takenBlocks lists the texts by which the tests in a folder take blocks of a page.
func takenBlocks(t *testing.T, folder string) []string {
	t.Helper()
	root, err := source.Path(folder)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("got tests %q, %v", files, err)
	}
	var texts []string
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if method, ok := call.Fun.(*ast.SelectorExpr); !ok || method.Sel.Name != "fromPage" {
				return true
			}
			literal, ok := call.Args[0].(*ast.BasicLit)
			if !ok {
				t.Fatalf("%s: the text for fromPage must be a literal", file)
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, text)
			return true
		})
	}
	return texts
}

// checkUsed checks that each key is the beginning of one block.
func checkUsed(t *testing.T, path, what string, entries map[string]string, blocks []Block) {
	t.Helper()
	for begin := range entries {
		n := 0
		for _, b := range blocks {
			if strings.HasPrefix(b.FirstLine(), begin) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s: %s for a block that begins with %q: %d blocks do, want one", path, what, begin, n)
		}
	}
}

// pagePaths lists README.md and the pages in docs/.
func pagePaths(t *testing.T) []string {
	t.Helper()
	root, err := source.Path()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("got pages %q, %v", files, err)
	}
	paths := []string{"README.md"}
	for _, file := range files {
		paths = append(paths, "docs/"+filepath.Base(file))
	}
	return paths
}
