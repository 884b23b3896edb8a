// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package charts

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/test/docs"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
)

// startTimeout is for the start of the API server and the controllers.
const startTimeout = 5 * time.Minute

// waitTimeout is for anything that takes a second on an idle machine.
const waitTimeout = 2 * time.Minute

// cluster is an API server on which nothing of Patchbay is installed, with Kubernetes' controllers of namespaces,
// aggregated roles and garbage. No node runs Pods.
type cluster struct {
	*testing.T

	kubeconfig, home string
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	dir, err := makeShortDir()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	plane, err := controlplane.Start(ctx, controlplane.Config{
		Dir: dir, Bin: path(t, "bin", "kubernetes"), ControllerManager: true, DieWithParent: true,
		ExtraArgs: map[controlplane.Part][]string{controlplane.ControllerManager: {
			"--controllers=garbage-collector-controller,namespace-controller,serviceaccount-controller," +
				"root-ca-certificate-publisher-controller,clusterrole-aggregation-controller",
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return &cluster{T: t, kubeconfig: plane.AdminKubeconfig(), home: dir}
}

// makeShortDir creates a folder with a short path, unlike those of testing.T: etcd's socket is in it.
func makeShortDir() (string, error) { return os.MkdirTemp("", "charts") }

// helm runs Helm, which must succeed.
func (c *cluster) helm(args ...string) string {
	c.Helper()
	out, err := c.tryHelm(args...)
	if err != nil {
		c.Fatal(err)
	}
	return out
}

// helmFails runs Helm, which must fail with an error that has all these texts.
func (c *cluster) helmFails(texts []string, args ...string) {
	c.Helper()
	_, err := c.tryHelm(args...)
	if err == nil {
		c.Fatalf("helm %s: it must fail", strings.Join(args, " "))
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			c.Errorf("got error %v, want it to contain %q", err, text)
		}
	}
}

func (c *cluster) tryHelm(args ...string) (string, error) {
	c.Helper()
	return helmIn(c.T, []string{"KUBECONFIG=" + c.kubeconfig}, args...)
}

// kubectl runs kubectl, which must succeed, and returns what it prints.
func (c *cluster) kubectl(args ...string) string {
	c.Helper()
	cmd := exec.CommandContext(c.Context(), path(c.T, "bin", "kubernetes", "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "HOME="+c.home)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		c.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return strings.TrimSpace(string(out))
}

// eventually waits until kubectl prints a text.
func (c *cluster) eventually(want string, args ...string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), waitTimeout)
	defer cancel()
	for {
		got := c.kubectl(args...)
		if got == want {
			return
		}
		select {
		case <-ctx.Done():
			c.Fatalf("kubectl %s: got %q, want %q", strings.Join(args, " "), got, want)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// awaitDefinition waits until the API server serves a kind. A new definition has no conditions at first.
func (c *cluster) awaitDefinition(name string) {
	c.Helper()
	c.eventually("True", "get", "crd", name, `--output=go-template={{with .status}}{{range .conditions}}{{if eq .type "Established"}}{{.status}}{{end}}{{end}}{{end}}`)
}

// left returns the names of all objects of Patchbay, except for its definitions.
func (c *cluster) left() string {
	c.Helper()
	kinds := "serviceaccounts,services,daemonsets,deployments,poddisruptionbudgets,roles,rolebindings,clusterroles,clusterrolebindings," +
		"validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingwebhookconfigurations,validatingwebhookconfigurations"
	return c.kubectl("get", kinds, "--all-namespaces", "--selector=app.kubernetes.io/part-of=patchbay", "--output=name")
}

// The life of the releases, in the order in which users meet it, on one API server.
func TestReleases(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	for _, step := range []struct {
		name string
		run  func(*cluster)
	}{
		{"Definitions", definitionsAreInstalled}, {"Namespace", namespaceNeedsLabel}, {"Operator", operatorIsAlone}, {"Install", programsAreInstalled},
		{"BadValue", badValueChangesNothing}, {"Upgrade", upgradeKeepsProtection}, {"Rollback", rollbackReturns}, {"TwoUpgrades", controllerFollowsDaemons},
		{"Agent", agentComesAndGoes}, {"Uninstall", uninstallLeavesDefinitions}, {"TakeOver", kubectlIsTakenOver}, {"HandOver", kubectlHandsOver},
	} {
		ok := t.Run(step.name, func(t *testing.T) {
			step.run(&cluster{T: t, kubeconfig: c.kubeconfig, home: c.home})
		})
		if !ok {
			t.FailNow() // each step needs those before
		}
	}
}

func definitionsAreInstalled(c *cluster) {
	c.helm("install", "patchbay-crds", chart(c.T, "patchbay-crds"), "--namespace", "default")
	c.awaitDefinition("clusternetworks.danm.io")
	c.eventually("clusternetworks,danmeps,danmnets,networkviews,nodenetworks,tenantconfigs,tenantnetworks",
		"get", "crd", "--selector=app.kubernetes.io/part-of=patchbay", "--output=go-template={{range $i, $o := .items}}{{if $i}},{{end}}{{$o.spec.names.plural}}{{end}}")
	c.awaitDefinition("tenantconfigs.danm.io")
	// Later, the API server asks the controller about it, which does not run here.
	c.kubectl("create", "--filename="+manifest(c.T, `{apiVersion: danm.io/v1, kind: TenantConfig, metadata: {name: kept}, hostDevices: [{name: eth1, vniType: vlan, vniRange: "5"}]}`))
}

func namespaceNeedsLabel(c *cluster) {
	want := []string{"namespace " + namespace + ": must exist and have the label pod-security.kubernetes.io/enforce=privileged"}
	install := []string{"install", "patchbay", chart(c.T, "patchbay"), "--namespace", namespace}
	c.helmFails(want, install...)
	c.helmFails(want, append(install, "--create-namespace")...)
	c.kubectl("create", "namespace", namespace)
	c.helmFails(want, install...)
	c.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=baseline")
	c.helmFails(want, install...)
	if left := c.left(); left != "" {
		c.Errorf("a release that fails must make nothing, got %s", left)
	}
	c.kubectl("label", "--overwrite", "namespace", namespace, "pod-security.kubernetes.io/enforce=privileged")
}

// The operator and a release would change each other's objects.
func operatorIsAlone(c *cluster) {
	c.kubectl("apply", "--server-side", "--kustomize", path(c.T, "deployments", "operator", "crds"))
	c.awaitDefinition("installations.operator.patchbay.io")
	installation := manifest(c.T, `{apiVersion: operator.patchbay.io/v1alpha1, kind: Installation, metadata: {name: patchbay}}`)
	c.kubectl("create", "--filename="+installation)
	c.helmFails([]string{"Installation patchbay: must not exist beside this release"}, "install", "patchbay", chart(c.T, "patchbay"), "--namespace", namespace)
	c.kubectl("delete", "--filename="+installation)
}

func programsAreInstalled(c *cluster) {
	install := []string{"install", "patchbay", chart(c.T, "patchbay"), "--namespace", namespace}
	c.helm(append(install, "--dry-run=server")...)
	if left := c.left(); left != "" {
		c.Fatalf("a dry run must make nothing, got %s", left)
	}
	c.helm(install...)
	rendered := mustRender(c.T, nil)
	if got := len(strings.Fields(c.left())); got != len(rendered) {
		c.Errorf("got %d objects, want the %d of the chart", got, len(rendered))
	}
}

func badValueChangesNothing(c *cluster) {
	before := c.kubectl("get", "daemonset,deployment", "--namespace", namespace, "--output=jsonpath={.items[*].metadata.resourceVersion}")
	upgrade := []string{"upgrade", "patchbay", chart(c.T, "patchbay"), "--namespace", namespace}
	c.helmFails([]string{"at '/parts/controller/replicas'"}, append(upgrade, "--set", "parts.controller.replicas=0")...)
	c.helmFails([]string{"parts.node.template.spec.hostPID: must be true"}, append(upgrade, "--set", "parts.node.template.spec.hostPID=false")...)
	if after := c.kubectl("get", "daemonset,deployment", "--namespace", namespace, "--output=jsonpath={.items[*].metadata.resourceVersion}"); after != before {
		c.Errorf("a value that is rejected must change nothing: %s became %s", before, after)
	}
}

// During an upgrade no policy or webhook is away, not even for a moment, and the certificate authority stays, which the
// controller has written into the webhooks.
func upgradeKeepsProtection(c *cluster) {
	const authority = "Y2VydGlmaWNhdGU="
	for _, kind := range []string{"mutatingwebhookconfiguration", "validatingwebhookconfiguration"} {
		c.kubectl("patch", kind, "patchbay", "--type=json", "--field-manager=patchbay-controller",
			`--patch=[{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "`+authority+`"}, {"op": "add", "path": "/webhooks/0/clientConfig/service/path", "value": "/x"}]`)
	}
	before := c.uids()
	c.helm("upgrade", "patchbay", chart(c.T, "patchbay"), "--namespace", namespace, "--set", "registry=registry.example/patchbay", "--set", "parts.controller.replicas=1")
	if after := c.uids(); after != before {
		c.Errorf("objects were replaced:\n%s\nbecame\n%s", before, after)
	}
	c.eventually("registry.example/patchbay/patchbayd:devel", "get", "daemonset", "patchbayd", "--namespace", namespace, "--output=jsonpath={.spec.template.spec.containers[0].image}")
	c.eventually("1", "get", "deployment", "patchbay-controller", "--namespace", namespace, "--output=jsonpath={.spec.replicas}")
	for _, kind := range []string{"mutatingwebhookconfiguration", "validatingwebhookconfiguration"} {
		c.eventually(authority+" /x", "get", kind, "patchbay", "--output=jsonpath={.webhooks[0].clientConfig.caBundle} {.webhooks[0].clientConfig.service.path}")
	}
}

func rollbackReturns(c *cluster) {
	c.helm("rollback", "patchbay", "1", "--namespace", namespace)
	c.eventually("patchbay.local/patchbayd:devel", "get", "daemonset", "patchbayd", "--namespace", namespace, "--output=jsonpath={.spec.template.spec.containers[0].image}")
	c.eventually("2", "get", "deployment", "patchbay-controller", "--namespace", namespace, "--output=jsonpath={.spec.replicas}")
}

// The page keeps the controller at its version until the daemons are replaced. Helm reuses the value of the first upgrade, so
// the second one must take it back, for itself and for all later ones.
func controllerFollowsDaemons(c *cluster) {
	images := func(node, controller string) {
		c.Helper()
		for _, workload := range [][2]string{{"daemonset/patchbayd", "patchbay.local/patchbayd:" + node}, {"deployment/patchbay-controller", "patchbay.local/patchbay-controller:" + controller}} {
			c.eventually(workload[1], "get", workload[0], "--namespace", namespace, "--output=jsonpath={.spec.template.spec.containers[0].image}")
		}
	}
	upgrades := c.upgradesOf("image.tag=v0.1.0")
	if len(upgrades) != 2 {
		c.Fatalf("got %d upgrades in the block, want two: %q", len(upgrades), upgrades)
	}
	// The programs of a work tree have no version. The chart of a release has it.
	c.helm(append(upgrades[0], "--set", "version=v0.2.0")...)
	images("v0.2.0", "v0.1.0")
	c.helm(upgrades[1]...)
	images("v0.2.0", "v0.2.0")
	c.helm(append(c.upgradesOf("upgrade patchbay-crds")[1], "--set", "version=v0.3.0")...)
	images("v0.3.0", "v0.3.0")
	c.helm("upgrade", "patchbay", chart(c.T, "patchbay"), "--namespace", namespace, "--reset-values")
	images("devel", "devel")
}

// upgradesOf returns the arguments of the commands of helm in the block of docs/helm.md that has a text, with the charts of
// this work tree.
func (c *cluster) upgradesOf(text string) [][]string {
	c.Helper()
	page, err := docs.Read("docs/helm.md")
	if err != nil {
		c.Fatal(err)
	}
	block, err := page.Block(text)
	if err != nil {
		c.Fatal(err)
	}
	commands, err := block.Commands()
	if err != nil {
		c.Fatal(err)
	}
	archives := strings.NewReplacer("patchbay-crds-0.2.0.tgz", chart(c.T, "patchbay-crds"), "patchbay-0.2.0.tgz", chart(c.T, "patchbay"))
	var all [][]string
	for _, command := range commands {
		if words := strings.Fields(archives.Replace(command.Text)); words[0] == "helm" {
			all = append(all, words[1:])
		}
	}
	return all
}

// The agent is switched on and off. Kubernetes' own controller writes the rights that it collects from other roles, and
// Helm leaves them to it.
func agentComesAndGoes(c *cluster) {
	upgrade := []string{"upgrade", "patchbay", chart(c.T, "patchbay"), "--namespace", namespace}
	on := slices.Concat(upgrade, []string{"--set", "parts.placementAgent.enabled=true", "--set", "parts.placementAgent.cluster=east"})
	c.helm(on...)
	rules := []string{"get", "clusterrole", "patchbay-agent-cluster-scoped", "--output=jsonpath={.rules[*].resources}"}
	c.eventually(`["clusternetworks"]`, rules...)
	c.helm(append(on, "--set", "parts.placementAgent.resources.limits.memory=1Gi")...)
	c.eventually(`["clusternetworks"]`, rules...)
	c.helm(append(slices.Clone(upgrade), "--reset-values")...)
	c.eventually("", "get", "namespaces,deployments", "--all-namespaces", "--field-selector=metadata.name=patchbay-agent-secrets", "--output=name")
	c.eventually("", "get", "deployments", "--namespace", namespace, "--field-selector=metadata.name=patchbay-agent", "--output=name")
}

func uninstallLeavesDefinitions(c *cluster) {
	c.removeRelease()
	c.helm("uninstall", "patchbay-crds", "--namespace", "default")
	c.eventually("tenantconfig.danm.io/kept", "get", "tenantconfigs", "--output=name")
	// The same release finds them again.
	c.helm("install", "patchbay-crds", chart(c.T, "patchbay-crds"), "--namespace", "default")
	c.eventually("tenantconfig.danm.io/kept", "get", "tenantconfigs", "--output=name")
	c.kubectl("delete", "tenantconfig", "kept")
}

// What kubectl has installed becomes a release with two flags. The fields that kubectl has set, and the chart does not,
// stay. Those that both set belong to both, so that each upgrade that changes one needs the second flag.
func kubectlIsTakenOver(c *cluster) {
	c.installWithKubectl()
	c.kubectl("scale", "deployment/patchbay-controller", "--namespace", namespace, "--replicas=1")
	release := []string{"patchbay", chart(c.T, "patchbay"), "--namespace", namespace}
	install, upgrade := append([]string{"upgrade", "--install"}, release...), append([]string{"upgrade"}, release...)
	c.helmFails([]string{"cannot be imported into the current release"}, install...)
	c.helmFails([]string{"conflict"}, append(install, "--take-ownership")...)
	before := c.uids()
	c.helm(append(install, "--take-ownership", "--force-conflicts")...)
	if after := c.uids(); after != before {
		c.Errorf("objects were replaced:\n%s\nbecame\n%s", before, after)
	}
	c.eventually("192.0.2.1", variable...)
	c.eventually("2", "get", "deployment", "patchbay-controller", "--namespace", namespace, "--output=jsonpath={.spec.replicas}")
	debug := slices.Concat(upgrade, []string{"--set", "logLevel=debug"})
	c.helmFails([]string{`conflict with "kubectl-client-side-apply"`}, debug...)
	c.helm(append(debug, "--force-conflicts")...)
	c.eventually("192.0.2.1", variable...)
	c.removeRelease()
}

// With one command of kubectl before, the fields belong to Helm alone.
func kubectlHandsOver(c *cluster) {
	c.installWithKubectl()
	before := c.uids()
	c.kubectl("apply", "--server-side", "--field-manager=helm", "--force-conflicts", "--kustomize", path(c.T, "deployments", "workloads"))
	c.helm("install", "patchbay", chart(c.T, "patchbay"), "--namespace", namespace, "--take-ownership")
	c.helm("upgrade", "patchbay", chart(c.T, "patchbay"), "--namespace", namespace, "--set", "logLevel=debug", "--set", "features.metrics=false")
	if after := c.uids(); after != before {
		c.Errorf("objects were replaced:\n%s\nbecame\n%s", before, after)
	}
	c.eventually("192.0.2.1", variable...)
	c.eventually("http", "get", "daemonset", "patchbayd", "--namespace", namespace, "--output=jsonpath={.spec.template.spec.containers[0].ports[*].name}")
	c.removeRelease()
}

// variable reads a variable that a user has set.
var variable = []string{
	"get", "daemonset", "patchbayd", "--namespace", namespace,
	`--output=jsonpath={.spec.template.spec.containers[0].env[?(@.name=="KUBERNETES_SERVICE_HOST")].value}`,
}

// installWithKubectl applies the manifests, and sets a variable that these do not have.
func (c *cluster) installWithKubectl() {
	c.Helper()
	c.kubectl("apply", "--kustomize", path(c.T, "deployments", "workloads"))
	c.kubectl("set", "env", "daemonset/patchbayd", "--namespace", namespace, "KUBERNETES_SERVICE_HOST=192.0.2.1")
}

// uids returns what is different for an object that is made again.
func (c *cluster) uids() string {
	c.Helper()
	kinds := "daemonsets,deployments,validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingwebhookconfigurations,validatingwebhookconfigurations," +
		"clusterroles,clusterrolebindings"
	return c.kubectl("get", kinds, "--all-namespaces", "--selector=app.kubernetes.io/part-of=patchbay",
		"--output=jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.uid}{'\\n'}{end}")
}

// removeRelease uninstalls the programs, of which nothing must be left.
func (c *cluster) removeRelease() {
	c.Helper()
	c.helm("uninstall", "patchbay", "--namespace", namespace)
	c.eventually("", "get", "daemonsets,deployments,serviceaccounts", "--namespace", namespace, "--selector=app.kubernetes.io/part-of=patchbay", "--output=name")
	if left := c.left(); left != "" {
		c.Errorf("objects that are left: %s", left)
	}
}

// manifest returns a file with an object.
func manifest(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "object.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
