// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/apitest"
)

// corpusShare is the least share of workloads that must be as ready at the hub as on one cluster, in percent.
const corpusShare = 95

// Corpus: unmodified workloads of the shapes that people deploy are applied to the hub by three methods and, beside it, to
// one cluster. At least 95 % of them are as ready at the hub as there, and whatever differs is listed with its reason. One
// watcher is for all methods: it reads all of the bed.
func TestCorpusIsReadyAsOnOneCluster(t *testing.T) {
	t.Parallel()
	w := shared
	w.prepareCorpusClusters(t)
	methods := []*corpusRun{
		{method: clientSide, clusters: "east"},
		{method: serverSide, clusters: "east, west", prepared: true},
		{method: helmRelease, clusters: "east", prepared: true},
	}
	var namespaces []string
	for _, r := range methods {
		r.makeNamespaces(t, w)
		namespaces = append(namespaces, r.ns)
	}
	checkInvariants(t, w, namespaces...)
	t.Run("methods", func(t *testing.T) {
		for _, r := range methods {
			t.Run(string(r.method), func(t *testing.T) {
				t.Parallel()
				r.run(t)
			})
		}
	})
	applied, same := 0, 0
	for _, r := range methods {
		applied, same = applied+len(r.workloads), same+len(r.workloads)-len(r.different)
		for _, e := range corpusExclusions {
			if e.defect && slices.Contains(e.methods, r.method) && len(r.workloads) > 0 {
				applied++
			}
		}
		t.Logf("%s: %d of %d workloads are the same", r.method, len(r.workloads)-len(r.different), len(r.workloads))
	}
	if applied == 0 || same*100 < applied*corpusShare {
		t.Errorf("%d of %d workloads are as ready at the hub as on one cluster, want %d %%", same, applied, corpusShare)
	}
}

// corpusMethod is how users apply workloads.
type corpusMethod string

const (
	clientSide  corpusMethod = "client-side"
	serverSide  corpusMethod = "server-side"
	helmRelease corpusMethod = "helm"
)

// corpusExclusion keeps a workload from some methods.
type corpusExclusion struct {
	reason  string
	methods []corpusMethod
	// defect counts the workload as different there, because it works on one cluster.
	defect bool
}

// corpusExclusions are of the workloads that are not applied by every method.
var corpusExclusions = map[string]corpusExclusion{
	"generated-name": {reason: "Only `kubectl create` makes an object without a name.", methods: []corpusMethod{serverSide, helmRelease}},
	"suspended":      {reason: "Helm waits for each Job of a release.", methods: []corpusMethod{helmRelease}},
	"list":           {reason: "A chart has objects, not lists of them.", methods: []corpusMethod{helmRelease}},
	"two-managers":   {reason: "The other team owns its fields by server-side apply.", methods: []corpusMethod{clientSide, helmRelease}},
	"autoscaled-api": {reason: "kstatus never finds the Deployment ready at the hub, and Helm waits for that.", methods: []corpusMethod{helmRelease}, defect: true},
	"finalizers":     {reason: "Helm waits for the controller, which the test is, when it removes the release.", methods: []corpusMethod{helmRelease}},
}

// corpusAtHub are the kinds of the corpus that stay at the hub.
var corpusAtHub = map[string]string{
	"Role":               "Each cluster's admin decides on rights.",
	"RoleBinding":        "Each cluster's admin decides on rights.",
	"ClusterRole":        "Each cluster's admin decides on rights.",
	"ClusterRoleBinding": "Each cluster's admin decides on rights.",
	"Lease":              "Who leads is known where it runs.",
	"EndpointSlice":      "Each cluster has its own endpoints.",
	"ResourceQuota":      "Each cluster's admin decides on room.",
	"LimitRange":         "Each cluster's admin decides on room.",
}

// corpusUnready are the objects that are not ready on one cluster, either.
var corpusUnready = map[string]string{
	"job.batch/suspended": "It waits for a person.",
}

// corpusPatience is how long the corpus may take until it is ready, on a busy machine.
const corpusPatience = waitTimeout

// corpusDifference is a difference that is justified.
type corpusDifference struct {
	reason  string
	methods []corpusMethod
	// object as kubectl prints it, and the check that finds the difference.
	object, check string
	// hub and cluster are what the check finds.
	hub, cluster string
}

// corpusDifferences are all that are justified. One that is not found any more fails the test, too.
var corpusDifferences = []corpusDifference{
	{
		reason:  "A namespace that the agent makes enforces the Pod Security level baseline: the cluster's admin makes the namespace for agents of nodes.",
		methods: []corpusMethod{clientSide}, object: "daemonset.apps/log-agent", check: "kstatus", hub: "InProgress", cluster: "Current",
	},
	{
		reason:  "The same, as kubectl finds it.",
		methods: []corpusMethod{clientSide}, object: "daemonset.apps/log-agent", check: "wait", hub: "rollout status fails",
	},
	{
		reason:  "The hub's finalizer is beside the file's, and kubectl sends their order, which changes nothing: `kubectl diff` finds no difference.",
		methods: []corpusMethod{clientSide}, object: "configmap/finalizers", check: "apply again", hub: "configured", cluster: "unchanged",
	},
	{
		reason:  "The same.",
		methods: []corpusMethod{clientSide}, object: "deployment.apps/finalizers", check: "apply again", hub: "configured", cluster: "unchanged",
	},
	{
		reason:  "The hub does not write spec: the autoscaler's number is in the status alone, and kstatus takes it for Pods that end.",
		methods: []corpusMethod{clientSide, serverSide}, object: "deployment.apps/autoscaled-api", check: "kstatus", hub: "InProgress", cluster: "Current",
	},
	{
		reason:  "Each of the two clusters has the autoscaler, with its minimum: there are twice as many Pods as in spec.",
		methods: []corpusMethod{serverSide}, object: "deployment.apps/web-app", check: "kstatus", hub: "InProgress", cluster: "Current",
	},
}

// corpusWorkload is a file of testdata/corpus.
type corpusWorkload struct {
	name, text string
}

// readCorpus reads the workloads of a method, for a namespace: they are the same, but for its name.
func readCorpus(t *testing.T, method corpusMethod, ns string) []corpusWorkload {
	t.Helper()
	files, err := filepath.Glob("testdata/corpus/*.yaml")
	if err != nil || len(files) < 30 {
		t.Fatalf("corpus: %d files, want at least 30 (%v)", len(files), err)
	}
	var all []corpusWorkload
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if strings.Contains(name, ".") || slices.Contains(corpusExclusions[name].methods, method) {
			continue
		}
		all = append(all, corpusWorkload{name, corpusText(t, name, ns)})
	}
	return all
}

// corpusText is the text of a file for a namespace.
func corpusText(t *testing.T, name, ns string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "corpus", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const line = "panel of the shop's dashboard, "
	return strings.NewReplacer("namespace: shop", "namespace: "+ns, "shop-", ns+"-", "180-KiB", strings.Repeat(line, 180<<10/len(line))).Replace(string(raw))
}

// prepareCorpusClusters does what infrastructure people do in each cluster before users come: storage, a priority, and a
// custom kind. They end with the test.
func (w *world) prepareCorpusClusters(t *testing.T) {
	t.Helper()
	w.installWidgets(t)
	for _, c := range w.Clusters {
		objects := []client.Object{&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "corpus-business"}, Value: 1000}}
		for range 24 {
			objects = append(objects, corpusVolume())
		}
		for _, o := range objects {
			if err := c.Client.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := c.Client.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
					t.Error(err)
				}
			})
		}
	}
}

// corpusVolume is what a provisioner would make.
func corpusVolume() *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("corpus")},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteMany},
			StorageClassName:              "corpus",
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "192.0.2.9", Path: "/"}},
		},
	}
}

// justified returns the justified difference of an object.
func (r *corpusRun) justified(object, check string) (corpusDifference, bool) {
	i := slices.IndexFunc(corpusDifferences, func(d corpusDifference) bool {
		return d.object == object && d.check == check && slices.Contains(d.methods, r.method)
	})
	if i < 0 {
		return corpusDifference{}, false
	}
	return corpusDifferences[i], true
}

func (d corpusDifference) String() string {
	return fmt.Sprintf("%s: %s: %s at the hub, %s on one cluster: %s", d.object, d.check, d.hub, d.cluster, d.reason)
}
