// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// What happens to one cluster, south, and what people do about it. One case after the other:
// each wants it whole.
func TestSafetyOneCluster(t *testing.T) {
	t.Parallel()
	t.Run("Silent", testUnreachableCluster)
	t.Run("Lost", testLostCluster)
	t.Run("LostRecords", testLostRecords)
	t.Run("Recreated", testRecreatedCluster)
	t.Run("Drained", testDrainedCluster)
}

// growthTimeout is how long growth takes to be available elsewhere, beyond what the cluster itself
// takes for as many Pods.
const growthTimeout = 10 * time.Second

// testUnreachableCluster is safety 2: a cluster that was accepted and has no agent gets nothing. One
// whose link is cut keeps what it has, and growth goes elsewhere; where its replicas count as
// lost, all are available in the clusters that report.
func testUnreachableCluster(t *testing.T) {
	w := shared
	u := w.user(t)
	never := "never-" + u.ns
	t.Cleanup(func() { w.deleteAtEnd(t, cluster(never)) })
	everywhere := strings.NewReplacer("kind: Placement", "kind: ClusterPlacement", "spec: {", "spec: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: "+u.ns+"}}, ").
		Replace(placement(u.ns, "south, west, "+never))
	t.Cleanup(func() { w.deleteAtEnd(t, object("placement.patchbay.io/v1alpha1", "ClusterPlacement", "", u.ns)) })
	u.kubectl("apply -f " + u.file("never.yaml", "apiVersion: placement.patchbay.io/v1alpha1\nkind: Cluster\nmetadata: {name: "+never+"}\nspec: {accepted: true}\n"))
	w.installWidgets(t)
	u.kubectl("apply -f " + u.file("objects.yaml", everywhere+"---\n"+objectsOfAllKinds+"---\n"+plainDeployment("replaced", 6)+`---
apiVersion: placement.patchbay.io/v1alpha1
kind: Placement
metadata: {name: replaced}
spec: {objects: [{group: apps, kind: Deployment, names: [replaced]}], clusters: {names: [south, west]}, offline: {assumeLostAfter: 20s}}
---
`+deployment("alone", 1, never, "")))
	u.kubectl("scale deployment web --replicas=6")
	u.kubectl("wait --for=condition=Available deployment/replaced --timeout=200s")
	w.awaitReplicas(t, u.ns, map[string]int32{"south": 3, "west": 3})
	w.awaitHubAvailable(t, u.ns, "web", 6)
	w.awaitHubAvailable(t, u.ns, "replaced", 6)
	w.awaitPlacedReason(t, object("apps/v1", "Deployment", u.ns, "alone"), v1alpha1.ReasonWaitingForCluster)
	for _, kind := range []string{"DaemonSet", "ConfigMap", "Service", "Widget"} { // each cluster is to have these
		i := slices.IndexFunc(objectsIn(u.ns), func(o client.Object) bool { return o.GetObjectKind().GroupVersionKind().Kind == kind })
		w.awaitPlacedReason(t, objectsIn(u.ns)[i], v1alpha1.ReasonWaitingForCluster)
	}
	if works := u.run(w.Hub.ControlPlane.AdminKubeconfig(), "kubectl get works -o name -n cluster-"+never); strings.Contains(works, "work") {
		t.Errorf("%s has Works, want none before an agent has joined: %s", never, works)
	}
	before := w.uids(t, objectsIn(u.ns))

	w.Clusters["south"].Link.Cut()
	t.Cleanup(func() { w.restoreLink(t, "south") })
	// The agent cannot renew its heartbeat any more: the rest of the 40 s is only waiting. Another
	// time would be a sign of life, whatever that time is.
	u.kubectl(`-n cluster-south patch lease ` + v1alpha1.HeartbeatLease + ` --type=merge -p '{"spec":{"leaseDurationSeconds":1}}'`)
	u.kubectl("wait --for=condition=Reachable=false cluster/south --timeout=200s")
	u.awaitSummary("Deployment", "replaced", "south=3 (Lost), west=6")
	u.kubectl("scale deployment web replaced --replicas=9")
	start := time.Now()
	u.run(w.Clusters["west"].ControlPlane.AdminKubeconfig(), "kubectl apply -n "+u.ns+" -f "+u.file("control.yaml", plainDeployment("control", 9)))
	took := w.awaitAvailable(t, u.ns, start, map[string]int32{"control": 9, "web": 6, "replaced": 9})
	limit := max(growthTimeout, 8*took["control"]) // on a machine that is busy with others all takes longer
	for _, name := range []string{"web", "replaced"} {
		if took[name] > took["control"]+limit {
			t.Errorf("growth of %s was available after %s, want at most %s more than the %s that west takes by itself", name, took[name], limit, took["control"])
		}
	}
	t.Logf("available in west after: %v", took)
	w.awaitReplicas(t, u.ns, map[string]int32{"south": 3, "west": 6}) // south has its own still
	if after := w.uids(t, objectsIn(u.ns)); !maps.Equal(after, before) {
		t.Errorf("UIDs: got %v, want %v", after, before)
	}
	w.restoreLink(t, "south")
	w.awaitHubAvailable(t, u.ns, "web", 9)
	w.awaitHubAvailable(t, u.ns, "replaced", 9)
	w.awaitReplicas(t, u.ns, map[string]int32{"south": 3, "west": 6})
	u.run(w.Clusters["west"].ControlPlane.AdminKubeconfig(), "kubectl delete deployment control -n "+u.ns)
}

// restoreLink lets a cluster's agent reach the hub again, and waits until the hub knows.
func (w *world) restoreLink(t *testing.T, name string) {
	t.Helper()
	w.Clusters[name].Link.Heal()
	w.awaitReachable(t, name)
}

// awaitAvailable waits until Deployments have so many available replicas in west, and says how
// long after start each had.
func (w *world) awaitAvailable(t *testing.T, ns string, start time.Time, want map[string]int32) map[string]time.Duration {
	t.Helper()
	took := map[string]time.Duration{}
	eventually(t, fmt.Sprintf("%v are available in west", want), func() error {
		var list appsv1.DeploymentList
		if err := w.Clusters["west"].Client.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
			return err
		}
		for i := range list.Items {
			d := &list.Items[i]
			if _, ok := took[d.Name]; !ok && want[d.Name] > 0 && d.Status.AvailableReplicas == want[d.Name] {
				took[d.Name] = time.Since(start).Round(pollInterval)
			}
		}
		return errorUnless(len(took) == len(want), "only %v", took)
	})
	return took
}

// testLostRecords is safety 5: the agent's records are lost while it does not run, and the objects
// are deleted at the hub. The hub reports no removal that did not happen.
func testLostRecords(t *testing.T) {
	w := shared
	u := w.user(t)
	objects := u.place(placement("p", "south"))
	if err := w.agents["south"].Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	south := w.Clusters["south"].ControlPlane.AdminKubeconfig()
	records := u.run(south, `kubectl get appliedworks -o jsonpath='{range .items[?(@.spec.work.source.namespace=="`+u.ns+`")]}{.metadata.name} {end}'`)
	if n := len(strings.Fields(records)); n < len(objects) {
		t.Errorf("AppliedWorks: got %d, want one for each of %d objects", n, len(objects))
	}
	u.run(south, "kubectl delete appliedworks "+records)
	u.kubectl("delete --wait=false -f " + u.file("objects.yaml", objectsOfAllKinds))
	var err error
	if w.agents["south"], err = w.StartAgent(t.Context(), "south"); err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		want := ""
		if o.GetObjectKind().GroupVersionKind().Kind == "PersistentVolumeClaim" {
			want = "south" // its data are kept
		}
		eventually(t, "the hub lets "+o.GetName()+" go", func() error {
			return client.IgnoreNotFound(unlessGone(w.Hub.Client.Get(t.Context(), client.ObjectKeyFromObject(o), sameKey(o))))
		})
		if got := w.clustersWith(t, o); got != want {
			t.Errorf("%s %s: the hub has let it go, and it is in %q, want %q", o.GetObjectKind().GroupVersionKind().Kind, o.GetName(), got, want)
		}
	}
}

// unlessGone is an error while an object was found.
func unlessGone(err error) error {
	if err == nil {
		return errors.New("it is there still")
	}
	return err
}

// testRecreatedCluster is safety 6: a Cluster that is deleted and made again, in whatever way, removes
// nothing that is there, and the same objects go on.
func testRecreatedCluster(t *testing.T) {
	w := shared
	u := w.user(t)
	policy := strings.Replace(placement("p", ""), "names: []", "selector: {matchExpressions: [{key: name, operator: In, values: [south, west]}]}", 1)
	objects := slices.DeleteFunc(u.place(policy), func(o client.Object) bool { // what is divided grows in west meanwhile
		return o.GetObjectKind().GroupVersionKind().Kind == "Deployment"
	})
	before := w.uids(t, objects)
	file := u.file("cluster.yaml", "apiVersion: placement.patchbay.io/v1alpha1\nkind: Cluster\nmetadata: {name: south, labels: {name: south}}\nspec: {accepted: true}\n")
	u.kubectl("replace --force -f " + file)
	w.awaitReachable(t, "south")
	for _, o := range objects {
		w.awaitPlacedReason(t, o, v1alpha1.ReasonAsExpected)
	}
	t.Cleanup(func() {
		if err := w.CreateCluster(context.Background(), "south", v1alpha1.ClusterSpec{}); err != nil {
			t.Error(err)
		}
	})
	u.kubectl("delete cluster south")
	eventually(t, "the hub plans without south", func() error {
		a, err := w.assignment(t.Context(), u.ns, "ConfigMap", "config")
		if err != nil {
			return err
		}
		draining := func(t v1alpha1.Target) bool { return t.Cluster == "south" && t.State == v1alpha1.TargetDraining }
		return errorUnless(slices.ContainsFunc(a.Spec.Targets, draining), "targets %+v", a.Spec.Targets)
	})
	u.kubectl("apply -f " + file)
	w.awaitReachable(t, "south")
	u.kubectl("apply -f " + u.file("later.yaml", settings("later", "south"))) // the hub has had time to do worse
	w.awaitClustersWith(t, object("v1", "ConfigMap", u.ns, "later"), "south")
	for _, o := range objects {
		w.awaitPlacedReason(t, o, v1alpha1.ReasonAsExpected)
	}
	w.awaitHubAvailable(t, u.ns, "web", 4)
	if after := w.uids(t, objects); !maps.Equal(after, before) {
		t.Errorf("UIDs: got %v, want %v", after, before)
	}
}

// testDrainedCluster is one object at a time that leaves a cluster, until none is left, without a
// Warning.
func testDrainedCluster(t *testing.T) {
	w := shared
	u := &user{terminal: &terminal{t: t, dir: t.TempDir()}, w: w, ns: w.namespace(t)}
	x := checkInvariants(t, w, u.ns)
	text := placement("p", "south, west") + "---\n" + objectsWithoutClaims
	for i := range 4 {
		text += "---\n" + plainDeployment(fmt.Sprintf("web-%d", i), 2)
	}
	w.installWidgets(t)
	u.kubectl("apply -f " + u.file("objects.yaml", text))
	eventually(t, "all is placed", func() error {
		var list v1alpha1.AssignmentList
		if err := w.Hub.Client.List(t.Context(), &list, client.InNamespace(u.ns)); err != nil {
			return err
		}
		for i := range list.Items {
			a := &list.Items[i]
			if !meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionPlaced) || !hasTarget(a, "south") {
				return fmt.Errorf("%s: targets %+v", a.Spec.Object.Name, a.Spec.Targets)
			}
		}
		return errorUnless(len(list.Items) == 10, "%d Assignments", len(list.Items))
	})
	u.kubectl("wait --for=condition=Available deployment --all --timeout=200s")
	start := time.Now()
	t.Cleanup(func() { w.patchCluster(t, "south", `{"spec":{"drain":null}}`) })
	u.runAll(w.Hub.ControlPlane.AdminKubeconfig(), u.fromPage("kubectl wait --for=condition=Drained",
		"cluster east", "cluster south", "cluster/east", "cluster/south", `"maxConcurrentMoves":5`, `"maxConcurrentMoves":1`))
	if left := u.run(w.Clusters["south"].ControlPlane.AdminKubeconfig(), "kubectl get deployments,statefulsets,daemonsets,services,widgets -o name -n "+u.ns); strings.Contains(left, "/") {
		t.Errorf("drained: south still has %s", left)
	}
	x.read(t)
	if got := maxLeaving(x.writes, "south"); got != 1 {
		t.Errorf("drain: %d objects left south at a time, want 1", got)
	}
	w.checkBlocked(t, u.ns, []time.Time{start})
}

// maxLeaving counts, from the writes of Assignments, how many objects leave a cluster at a time, without dependencies.
func maxLeaving(all []write, cluster string) (most int) {
	inOrder(all)
	leaving, dependencies := map[string]bool{}, map[string]bool{}
	for _, one := range all {
		if one.Resource != "assignments" || one.Subresource != "" {
			continue
		}
		delete(leaving, one.Name)
		a := &v1alpha1.Assignment{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(one.Object.Object, a) != nil {
			continue // it was deleted
		}
		for _, d := range a.Spec.Dependencies {
			dependencies[v1alpha1.WorkName(d.Group, d.Kind, a.Namespace, d.Name)] = true
		}
		if dependencies[one.Name] {
			continue
		}
		for _, t := range a.Spec.Targets {
			if string(t.Cluster) == cluster && t.State != v1alpha1.TargetActive && t.State != v1alpha1.TargetPending {
				leaving[one.Name] = true
			}
		}
		most = max(most, len(leaving))
	}
	return most
}

// hasTarget says that an object is in a cluster, or on its way there.
func hasTarget(a *v1alpha1.Assignment, cluster string) bool {
	return slices.ContainsFunc(a.Spec.Targets, func(t v1alpha1.Target) bool { return string(t.Cluster) == cluster })
}

// blockedAfter is how long a move makes no step before that is a Warning.
const blockedAfter = 30 * time.Second
