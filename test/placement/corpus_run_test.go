// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// corpusReference is the cluster to which the corpus is applied without a hub. Other tests drain it at the hub, and cut its
// agent's connection.
const corpusReference = "south"

// helmRecordPrefix begins the names of the Secrets in which Helm records releases.
const helmRecordPrefix = "sh.helm.release.v1."

// corpusRun applies the corpus by one method, at the hub and on one cluster.
type corpusRun struct {
	method corpusMethod
	// clusters to which the hub places, as in a Placement.
	clusters string
	// prepared has the clusters' admins make the namespace, with the Pod Security level of the one cluster.
	prepared bool

	*terminal
	w         *world
	ns        string
	workloads []corpusWorkload
	objects   []corpusObject
	different map[string]bool // by workload
	found     []corpusDifference
}

// corpusObject is an object of the corpus.
type corpusObject struct {
	*unstructured.Unstructured
	workload string
}

// String names the object as kubectl prints it.
func (o corpusObject) String() string {
	return strings.ToLower(o.GroupVersionKind().GroupKind().String()) + "/" + o.GetName()
}

// run applies the corpus, and compares what the hub says with one cluster.
func (r *corpusRun) run(t *testing.T) {
	t.Helper()
	r.terminal, r.different = &terminal{t: t, dir: t.TempDir()}, map[string]bool{}
	r.w.apply(t, r.w.Hub.Client, r.ns, placement("corpus", r.clusters)+corpusNetworkPlacement(r.ns, r.clusters))
	r.readObjects(t)
	r.write("created", slices.DeleteFunc(slices.Clone(r.workloads), func(one corpusWorkload) bool { return one.name != "generated-name" }))
	r.write("files", slices.DeleteFunc(slices.Clone(r.workloads), func(one corpusWorkload) bool { return one.name == "generated-name" }))
	for _, at := range r.sides() {
		r.apply(at)
		r.applyOthers(at)
	}
	r.compare("kstatus", r.awaitStatuses(t)...)
	r.compareAll("wait", r.waits)
	if r.method != helmRelease {
		r.compareAll("diff", r.diffs)
		r.compareAll("apply again", r.apply)
	}
	for _, o := range r.objects {
		r.checkPlaced(t, o)
	}
	if r.method == helmRelease {
		r.upgradeAndUninstall(t)
	} else {
		r.cleanUp()
	}
	r.report(t)
}

// makeNamespaces makes the namespace at the hub and on the cluster, and what ends both.
func (r *corpusRun) makeNamespaces(t *testing.T, w *world) {
	t.Helper()
	r.w, r.ns = w, apitest.Name("corpus")
	create := func(at *bed.Plane, labels map[string]string) {
		ns := object("v1", "Namespace", "", r.ns)
		ns.SetLabels(labels)
		if err := at.Client.Create(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range r.sides() {
		create(at, nil)
	}
	if r.prepared {
		for name := range strings.SplitSeq(r.clusters, ", ") {
			create(r.w.Clusters[name].Plane, map[string]string{v1alpha1.AccessLabel: v1alpha1.AccessCreate})
		}
	}
	t.Cleanup(func() { r.deleteRest(t) }) // after the watcher, which deletes the namespace at the hub
}

// deleteRest deletes what the hub's namespace does not take along.
func (r *corpusRun) deleteRest(t *testing.T) {
	t.Helper()
	remove := func(at *bed.Plane, o client.Object) {
		if err := at.Client.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	}
	for _, at := range r.sides() {
		for _, o := range r.objects {
			if o.GetNamespace() == "" {
				remove(at, sameKey(o))
			}
		}
	}
	remove(r.w.Hub, object(v1alpha1.SchemeGroupVersion().String(), "ClusterPlacement", "", r.ns))
	remove(r.w.Clusters[corpusReference].Plane, object("v1", "Namespace", "", r.ns))
}

// corpusNetworkPlacement places the corpus's ClusterNetwork: an admin does that.
func corpusNetworkPlacement(ns, clusters string) string {
	return fmt.Sprintf(`
---
apiVersion: placement.patchbay.io/v1alpha1
kind: ClusterPlacement
metadata: {name: %[1]s}
spec:
  objects: [{group: danm.io, kind: ClusterNetwork, names: [%[1]s-backbone]}]
  clusters: {names: [%[2]s]}
`, ns, clusters)
}

// sides are the hub and, for one method, the cluster: how an object is applied does not change how ready it is there.
func (r *corpusRun) sides() []*bed.Plane {
	if r.method != clientSide {
		return []*bed.Plane{r.w.Hub}
	}
	return []*bed.Plane{r.w.Hub, r.w.Clusters[corpusReference].Plane}
}

// readObjects reads the workloads and their objects.
func (r *corpusRun) readObjects(t *testing.T) {
	t.Helper()
	r.workloads = readCorpus(t, r.method, r.ns)
	for _, one := range r.workloads {
		for d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(one.text), len(one.text)); ; {
			o := &unstructured.Unstructured{}
			if d.Decode(&o.Object) != nil {
				break
			}
			if err := r.addObjects(one.name, o); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// addObjects adds an object, or those of a list.
func (r *corpusRun) addObjects(workload string, o *unstructured.Unstructured) error {
	switch {
	case o.IsList():
		return o.EachListItem(func(item runtime.Object) error {
			one, ok := item.(*unstructured.Unstructured)
			if !ok {
				return fmt.Errorf("got a %T in the list, want an object", item)
			}
			return r.addObjects(workload, one)
		})
	case o.Object == nil, o.GetGenerateName() != "":
		return nil
	case !strings.HasPrefix(o.GetKind(), "Cluster"):
		o.SetNamespace(r.ns)
	}
	r.objects = append(r.objects, corpusObject{o, workload})
	return nil
}

// write writes workloads into a folder of the test.
func (r *corpusRun) write(folder string, workloads []corpusWorkload) {
	r.t.Helper()
	folder = filepath.Join(r.dir, folder)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		r.t.Fatal(err)
	}
	for _, one := range workloads {
		if err := os.WriteFile(filepath.Join(folder, one.name+".yaml"), []byte(one.text), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
}

// kubectl runs kubectl in the namespace, and returns what it prints. It may fail.
func (r *corpusRun) kubectl(at *bed.Plane, args string) (string, error) {
	return r.tryRun(at.ControlPlane.AdminKubeconfig(), "kubectl -n "+r.ns+" "+args)
}

// apply applies all to one side, and returns what kubectl prints of each object.
func (r *corpusRun) apply(at *bed.Plane) map[string]string {
	r.t.Helper()
	files := "-f " + filepath.Join(r.dir, "files")
	var out string
	var err error
	switch r.method {
	case clientSide:
		out, err = r.kubectl(at, "apply "+files)
	case serverSide:
		out, err = r.kubectl(at, "apply --server-side --field-manager=ci "+files)
	case helmRelease:
		r.helm(at, "install --wait --wait-for-jobs --timeout=8m")
	}
	if err != nil {
		r.t.Errorf("%s: %v\n%s", at.Dir(), err, out)
	}
	printed := map[string]string{}
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); len(words) == 2 {
			printed[words[0]] = words[1]
		}
	}
	return printed
}

// applyOthers applies what `kubectl apply` of a folder does not.
func (r *corpusRun) applyOthers(at *bed.Plane) {
	r.t.Helper()
	var args string
	switch r.method {
	case clientSide:
		args = "create -f " + filepath.Join(r.dir, "created")
	case serverSide:
		r.write("second", []corpusWorkload{{"two-managers.second", corpusText(r.t, "two-managers.second", r.ns)}})
		args = "apply --server-side --field-manager=other-team -f " + filepath.Join(r.dir, "second")
	default:
		return
	}
	if out, err := r.kubectl(at, args); err != nil {
		r.t.Errorf("%s: %v\n%s", at.Dir(), err, out)
	}
}

// readinessChecks are the checks that count for the share of workloads that are as ready as on one cluster.
var readinessChecks = []string{"kstatus", "wait"}

// compareAll compares what a check finds at the hub and on one cluster.
func (r *corpusRun) compareAll(check string, run func(at *bed.Plane) map[string]string) {
	r.t.Helper()
	var found []map[string]string
	for _, at := range r.sides() {
		found = append(found, run(at))
	}
	r.compare(check, found...)
}

// compare records what differs from one cluster. Where that was applied to, it must be as ready as other methods expect.
func (r *corpusRun) compare(check string, found ...map[string]string) {
	r.t.Helper()
	hub, cluster, counts := found[0], r.onOneCluster(check), slices.Contains(readinessChecks, check)
	if len(found) > 1 {
		if counts && !maps.Equal(cluster, found[1]) {
			r.t.Errorf("%s: got %v on one cluster, want %v", check, found[1], cluster)
		}
		cluster = found[1]
	}
	for _, o := range r.objects {
		at := o.String()
		if hub[at] == cluster[at] {
			continue
		}
		r.found = append(r.found, corpusDifference{object: at, check: check, hub: hub[at], cluster: cluster[at]})
		if counts {
			r.different[o.workload] = true
		}
	}
}

// onOneCluster is what a check finds on one cluster, by object, for the methods that are not applied there.
func (r *corpusRun) onOneCluster(check string) map[string]string {
	found := map[string]string{}
	for _, o := range r.objects {
		at, unready := o.String(), corpusUnready[o.String()] != ""
		switch {
		case check == "kstatus" && unready:
			found[at] = string(status.InProgressStatus)
		case check == "kstatus":
			found[at] = string(status.CurrentStatus)
		case check == "wait" && unready:
			for _, command := range corpusWaits[o.GetKind()] {
				found[at] += waitFailure(command)
			}
		case check == "apply again":
			found[at] = "serverside-applied" // kubectl does not tell what changes
		}
	}
	return found
}

// cleanUp does what the controller of the corpus's finalizers does.
func (r *corpusRun) cleanUp() {
	r.t.Helper()
	const patch = `[{"op":"test","path":"/metadata/finalizers/0","value":"example.com/cleanup"},{"op":"remove","path":"/metadata/finalizers/0"}]`
	for _, at := range r.sides() {
		if out, err := r.kubectl(at, "patch configmap/finalizers deployment/finalizers --type=json -p '"+patch+"'"); err != nil {
			r.t.Errorf("%s: %v\n%s", at.Dir(), err, out)
		}
	}
}

// report reports the differences that are not justified, and those that are and are not found.
func (r *corpusRun) report(t *testing.T) {
	t.Helper()
	seen := map[string]bool{}
	for _, d := range r.found {
		known, ok := r.justified(d.object, d.check)
		if !ok || known.hub != d.hub || known.cluster != d.cluster {
			t.Error(d)
			continue
		}
		seen[d.object+d.check] = true
		t.Log(known)
	}
	for _, d := range corpusDifferences {
		if slices.Contains(d.methods, r.method) && !seen[d.object+d.check] {
			t.Errorf("it is not so, take it off the list: %s", d)
		}
	}
}

// checkPlaced checks that an object is in its clusters and that its Assignment says so, or that it stays at the hub.
func (r *corpusRun) checkPlaced(t *testing.T, o corpusObject) {
	t.Helper()
	in := slices.DeleteFunc(strings.Split(r.w.clustersWith(t, sameKey(o)), ","), func(c string) bool { return c == corpusReference || c == "" })
	gvk := o.GroupVersionKind()
	key := client.ObjectKey{
		Namespace: cmp.Or(o.GetNamespace(), v1alpha1.SystemNamespace),
		Name:      v1alpha1.WorkName(gvk.Group, gvk.Kind, o.GetNamespace(), o.GetName()),
	}
	a := &v1alpha1.Assignment{}
	err := r.w.Hub.Client.Get(t.Context(), key, a)
	_, kindStays := corpusAtHub[o.GetKind()]
	if kindStays || strings.HasPrefix(o.GetName(), helmRecordPrefix) {
		if len(in) > 0 || !apierrors.IsNotFound(err) {
			t.Errorf("%s is in %v, and reading its Assignment returns %v: want it to stay at the hub", o, in, err)
		}
		if o.GetNamespace() != "" && kindStays {
			r.checkAnnotationRejected(t, o)
		}
		return
	}
	if len(in) == 0 || err != nil {
		t.Errorf("%s is in %v, and reading its Assignment returns %v: want it placed", o, in, err)
	}
	for _, c := range []string{v1alpha1.ConditionPlaced, v1alpha1.ConditionRendered} {
		if !meta.IsStatusConditionTrue(a.Status.Conditions, c) {
			t.Errorf("%s is not %s: %+v", o, c, a.Status.Conditions)
		}
	}
}

// checkAnnotationRejected checks that a person who tries to place an object that stays at the hub learns that.
func (r *corpusRun) checkAnnotationRejected(t *testing.T, o corpusObject) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"east"}}}`, v1alpha1.ClustersAnnotation)
	err := r.w.Hub.Client.Patch(t.Context(), sameKey(o), client.RawPatch(types.MergePatchType, patch), client.DryRunAll)
	if err == nil || !strings.Contains(err.Error(), "stay at the hub") {
		t.Errorf("%s with the annotation: got %v, want it rejected, because such objects stay at the hub", o, err)
	}
}
