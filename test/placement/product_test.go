// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/lab/process"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// KubeStellar, a product: one command makes a hub, what it prints makes a cluster join,
// and neither the hub's end nor the agent's changes what runs there. Then the same with a
// hub of production, where the hub's definitions go while the agent works on.
func TestKubeStellarProduct(t *testing.T) {
	t.Parallel()
	store, err := shared.SpareCluster(t.Context(), apitest.Name("store"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, store.Close) })
	p := &product{terminal: &terminal{t: t, dir: t.TempDir()}, store: store}
	p.testStandaloneHub(t)
	p.testProduction(t)
	p.testRejectedHub(t)
}

// product is a cluster that joins one hub after the other.
type product struct {
	*terminal

	store *bed.Cluster
	agent process.ID
}

// testStandaloneHub is `patchbay-hub up`.
func (p *product) testStandaloneHub(t *testing.T) {
	t.Helper()
	port, err := controlplane.FreePort(netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	// The port, the health address and the cluster's name are this test's own: other tests run beside it.
	up := strings.Fields(p.fromPage("patchbay-hub up", "bin/kubernetes", p.path("bin/kubernetes"), "/tmp/hub", filepath.Join(p.dir, "hub"),
		"192.0.2.10", fmt.Sprintf("127.0.0.1 --port=%d --health-address=127.0.0.1:0 --cluster=store", port))[0])
	hub, printed := p.startBackground("up", up[0], up[1:]...)
	var lines []string
	eventually(t, "up says what to do", func() error {
		if lines = commands(readFile(t, printed)); len(lines) != 3 {
			return fmt.Errorf("printed %q", readFile(t, printed))
		}
		return nil
	})
	kubeconfig := strings.TrimPrefix(lines[0], "export KUBECONFIG=")
	p.run(p.store.ControlPlane.AdminKubeconfig(), lines[1])
	p.startAgent(t)
	p.run(kubeconfig, lines[2])
	p.run(kubeconfig, "kubectl wait --for=condition=Reachable cluster/store --timeout=220s")
	p.applyApp(kubeconfig, "tried")
	before := p.awaitStable(t, "tried")

	p.stopProgram(t, hub)
	p.checkUnchanged(t, "the hub has ended", "tried", before)
	hub, printed = p.startBackground("up-again", up[0], up[1:]...)
	eventually(t, "the same command brings the hub back", func() error {
		if n := len(commands(readFile(t, printed))); n != 3 {
			return fmt.Errorf("%d commands", n)
		}
		return nil
	})
	p.run(kubeconfig, "kubectl -n tried rollout status deployment/web --timeout=220s")
	p.checkInvariants(t, kubeconfig, "tried")
	p.removeAgent(t)
	p.checkUnchanged(t, "the agent is gone", "tried", before)
	p.stopProgram(t, hub)
	if err := os.RemoveAll(filepath.Join(p.dir, "hub")); err != nil {
		t.Error(err)
	}
	p.checkUnchanged(t, "hub and agent are uninstalled", "tried", before)
}

// testProduction is two replicas, installed in a cluster, for an API server that is there.
func (p *product) testProduction(t *testing.T) {
	t.Helper()
	server, err := shared.SpareHub(t.Context(), apitest.Name("office"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, server.Close) })
	admin, own := server.ControlPlane.AdminKubeconfig(), filepath.Join(p.dir, "hub.kubeconfig")
	p.prepareHub(admin, own)
	replicas := p.installHub(t, own)
	join := commands(p.run(admin, "kubectl patchbay hub token store"))
	p.run(p.store.ControlPlane.AdminKubeconfig(), join[0])
	p.startAgent(t)
	p.run(admin, join[1])
	p.run(admin, "kubectl wait --for=condition=Reachable cluster/store --timeout=220s")
	w := p.world(server)
	x := newInvariantChecker(t, w, "made")
	x.logPatterns = []string{filepath.Join(p.dir, "*.log")}
	p.applyApp(admin, "made")
	before := p.awaitStable(t, "made")

	p.killLeader(t, server, replicas)
	p.checkUnchanged(t, "another replica leads", "made", before)
	p.run(admin, "kubectl -n made annotate deployment/web touched=yes")
	eventually(t, "the other replica works, and the cluster's controller has seen what it did", func() error {
		var n int
		list := &appsv1.ReplicaSetList{} // a Deployment's annotations are on its ReplicaSets, too
		err := p.store.Client.List(t.Context(), list, client.InNamespace("made"))
		for _, one := range list.Items {
			n += len(one.Annotations["touched"])
		}
		return errors.Join(err, errorUnless(n > 0, "no ReplicaSet of %d is touched", len(list.Items)))
	})
	before = p.awaitStable(t, "made")
	x.report(t, w)
	if out, err := p.tryRun(admin, "kubectl patchbay hub remove-finalizers"); err == nil || !strings.Contains(out, "end it first") {
		t.Errorf("release while the hub runs: got %q, %v, want it refused", out, err)
	}
	p.run(p.store.ControlPlane.AdminKubeconfig(), "kubectl -n patchbay-system delete deployment,secret patchbay-hub --timeout=220s")
	for _, id := range replicas {
		p.stopProgram(t, id)
	}
	p.runAll(admin, p.fromPage("kubectl patchbay hub remove-finalizers"))
	p.checkUnchanged(t, "the hub's definitions are gone, and the agent works", "made", before)
	p.run(admin, "kubectl delete namespace made --timeout=220s") // nothing holds its objects
	p.removeAgent(t)
	p.checkUnchanged(t, "hub and agent are uninstalled", "made", before)
}

// world is the cluster and a hub of it, for a watcher.
func (p *product) world(hub *bed.Plane) *world {
	return &world{Bed: &bed.Bed{Hub: hub, Clusters: map[string]*bed.Cluster{"store": p.store}, Dir: filepath.Dir(p.store.Dir())}}
}

// checkInvariants holds a hub that has no audit log to what its objects tell in the end: I7, I8 and I9.
func (p *product) checkInvariants(t *testing.T, kubeconfig, ns string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	hub := &bed.Plane{Config: config}
	if hub.Client, err = client.NewWithWatch(config, client.Options{Scheme: bed.Scheme()}); err != nil {
		t.Fatal(err)
	}
	x, w := &invariantChecker{namespaces: []string{ns}, logPatterns: []string{filepath.Join(p.dir, "*.log")}}, p.world(hub)
	if x.writes = x.liveObjects(t, w); len(x.secretValues()) == 0 {
		t.Error("the hub has no Secret with a value: the search is blind")
	}
	x.report(t, w)
}

// prepareHub installs the hub's kinds and roles as docs/placement.md says, and makes the program's kubeconfig.
func (p *product) prepareHub(admin, own string) {
	p.t.Helper()
	p.runAll(admin, p.fromPage("kubectl apply -k deployments/placement/hub", "hub.yaml", own, "hub.ca", own+".ca"))
}

// installHub installs the hub's program in the cluster as docs/placement.md says. KWOK plays the
// Pods: for each it runs the container with its arguments and files, as kubelet would.
func (p *product) installHub(t *testing.T, own string) map[string]process.ID {
	t.Helper()
	admin := p.store.ControlPlane.AdminKubeconfig()
	p.runAll(admin, p.fromPage("kubectl apply -k deployments/placement/host", "hub.yaml", own))
	p.run(admin, "kubectl -n patchbay-system rollout status deployment/patchbay-hub --timeout=220s")
	d, secret := &appsv1.Deployment{}, &corev1.Secret{}
	for _, o := range []client.Object{d, secret} {
		if err := p.store.Client.Get(t.Context(), client.ObjectKey{Namespace: "patchbay-system", Name: "patchbay-hub"}, o); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(readFile(t, own), string(secret.Data["kubeconfig"])); diff != "" {
		t.Fatalf("kubeconfig in the Secret: -file +Secret\n%s", diff)
	}
	files := strings.NewReplacer("/etc/patchbay/hub/kubeconfig", own, "=:9643", "=127.0.0.1:0", "=:9646", "=127.0.0.1:0")
	var args []string
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
		args = append(args, files.Replace(arg))
	}
	replicas := map[string]process.ID{}
	for i := range *d.Spec.Replicas {
		name := fmt.Sprintf("replica-%d", i)
		replicas[name], _ = p.startBackground(name, "patchbay-hub", args...)
	}
	return replicas
}

// killLeader ends who leads.
func (p *product) killLeader(t *testing.T, server *bed.Plane, replicas map[string]process.ID) {
	t.Helper()
	leader := func() string {
		lease := &coordinationv1.Lease{}
		key := client.ObjectKey{Namespace: "patchbay-system", Name: "patchbay-hub"}
		if err := server.Client.Get(t.Context(), key, lease); err != nil || lease.Spec.HolderIdentity == nil {
			return ""
		}
		return *lease.Spec.HolderIdentity
	}
	was := leader()
	for name, id := range replicas {
		if strings.Contains(readFile(t, filepath.Join(p.dir, name+".log")), "Successfully acquired lease") {
			p.stopProgram(t, id)
			delete(replicas, name)
			break
		}
	}
	eventually(t, "the other replica leads", func() error {
		if now := leader(); now == was || now == "" {
			return fmt.Errorf("%q leads", now)
		}
		return nil
	})
}

// testRejectedHub is a hub on an API server whose Deployments get ReplicaSets.
func (p *product) testRejectedHub(t *testing.T) {
	t.Helper()
	admin, own := p.store.ControlPlane.AdminKubeconfig(), filepath.Join(p.dir, "store.kubeconfig")
	p.prepareHub(admin, own)
	out, err := p.tryRun(admin, "timeout 200 patchbay-hub --health-address=127.0.0.1:0 --kubeconfig="+own)
	if err == nil || !strings.Contains(out, "Deployments get ReplicaSets of their own") {
		t.Errorf("a hub beside workload controllers: got %q, %v, want it refused", out, err)
	}
	for _, want := range []string{"--controllers", "docs/placement.md"} {
		if !strings.Contains(out, want) {
			t.Errorf("the refusal does not say what to do: %q is not in %q", want, out)
		}
	}
}

// startAgent does what kubelet would: it runs the container of the agent's Deployment,
// with its arguments, files and identity.
func (p *product) startAgent(t *testing.T) {
	t.Helper()
	d, secret := &appsv1.Deployment{}, &corev1.Secret{}
	for name, o := range map[string]client.Object{"patchbay-agent": d, "patchbay-agent-hub": secret} {
		if err := p.store.Client.Get(t.Context(), client.ObjectKey{Namespace: "patchbay-system", Name: name}, o); err != nil {
			t.Fatal(err)
		}
	}
	way := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(way, secret.Data["kubeconfig"], 0o600); err != nil {
		t.Fatal(err)
	}
	local, err := p.store.AccountKubeconfig(t.Context(), "patchbay-system", d.Spec.Template.Spec.ServiceAccountName)
	if err != nil {
		t.Fatal(err)
	}
	container := d.Spec.Template.Spec.Containers[0]
	env := []string{"POD_NAMESPACE=patchbay-system", "POD_NAME=agent-of-store"}
	cluster := container.Env[slices.IndexFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == "CLUSTER" })].Value
	args := []string{p.program("patchbay-agent"), "--kubeconfig=" + local}
	files := strings.NewReplacer("$(CLUSTER)", cluster, "/etc/patchbay/hub/kubeconfig", way, "$(POD_IP):9642", "127.0.0.1:0")
	for _, arg := range container.Args {
		args = append(args, files.Replace(arg))
	}
	if p.agent, err = p.store.StartProgram("patchbay-agent", env, args...); err != nil {
		t.Fatal(err)
	}
}

// removeAgent takes the agent out while it runs; it ends later, as a Pod does.
func (p *product) removeAgent(t *testing.T) {
	t.Helper()
	p.run(p.store.ControlPlane.AdminKubeconfig(), "kubectl patchbay cluster leave")
	for _, name := range []string{"deployment/patchbay-agent", "secret/patchbay-agent-hub", "secret/patchbay-agent-certificate", "clusterrole/patchbay-agent"} {
		if out, err := p.tryRun(p.store.ControlPlane.AdminKubeconfig(), "kubectl -n patchbay-system get "+name); err == nil || !strings.Contains(out, "NotFound") {
			t.Errorf("%s after leave: got %q, %v", name, out, err)
		}
	}
	p.stopProgram(t, p.agent)
}

// applyApp applies an unchanged app to a hub and waits until it runs.
func (p *product) applyApp(kubeconfig, ns string) {
	file := filepath.Join(p.dir, ns+".yaml")
	text := placement("store", "store") + "---\n" + plainDeployment("web", 3) + `
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: b}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {password: secret-of-` + ns + `}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.run(kubeconfig, "kubectl create namespace "+ns)
	p.run(kubeconfig, "kubectl -n "+ns+" apply -f "+file)
	p.run(kubeconfig, "kubectl -n "+ns+" rollout status deployment/web --timeout=220s")
}

// awaitStable is all that a namespace of the cluster has, once nothing changes there.
func (p *product) awaitStable(t *testing.T, ns string) string {
	t.Helper()
	const long, pause = 8 * time.Second, time.Second // controllers of a busy machine take their time
	var last string
	var since time.Time
	eventually(t, "nothing changes in "+ns, func() error {
		if now := p.listAll(ns); now != last || !strings.Contains(now, `"kind": "Pod"`) {
			last, since = now, time.Now()
		}
		if time.Since(since) < long {
			<-time.After(pause)
			return errors.New("it changes")
		}
		return nil
	})
	return last
}

// checkUnchanged looks for a while whether the cluster has what it had, byte for byte.
func (p *product) checkUnchanged(t *testing.T, when, ns, want string) {
	t.Helper()
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); <-time.After(time.Second) {
		if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(p.listAll(ns), "\n")); diff != "" {
			t.Fatalf("%s: -before +now\n%s", when, diff)
		}
	}
}

// listAll is what a namespace of the cluster has, but Events.
func (p *product) listAll(ns string) string {
	return p.run(p.store.ControlPlane.AdminKubeconfig(),
		"kubectl -n "+ns+" get deployments,replicasets,pods,services,endpointslices,configmaps,secrets,serviceaccounts -o json --show-managed-fields")
}

func closeAll(t *testing.T, end func(context.Context) error) {
	t.Helper()
	if err := end(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}
