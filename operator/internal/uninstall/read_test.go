// SPDX-License-Identifier: Apache-2.0

package uninstall_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
	"github.com/patchbay-cni/patchbay/operator/internal/uninstall"
)

// server is an API server that sends lists page by page.
type server struct {
	client.Client

	daemonSets []metav1.PartialObjectMetadata
	// objects are those of other kinds that are read as metadata. denied are the names that the operator may not delete.
	objects []metav1.PartialObjectMetadata
	denied  []string
	nodes   []corev1.Node
	pods    []corev1.Pod
	// report makes the NodeNetwork of a number, and reports is how many there are.
	report  func(int) v1.NodeNetwork
	reports int

	// read are the kinds that were read. largest is the largest size of the heap after a page.
	read    []string
	largest uint64
	measure bool
}

// Get implements client.Reader.
func (s *server) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// Delete implements client.Writer. It refuses each deletion that is no dry run, because no test of this file wants one.
func (s *server) Delete(_ context.Context, o client.Object, options ...client.DeleteOption) error {
	all := (&client.DeleteOptions{}).ApplyOptions(options)
	if slices.Contains(s.denied, o.GetName()) {
		return apierrors.NewForbidden(schema.GroupResource{}, o.GetName(), nil)
	}
	if !slices.Contains(all.DryRun, metav1.DryRunAll) {
		return fmt.Errorf("unexpected deletion of %s", o.GetName())
	}
	return nil
}

// List implements client.Reader.
func (s *server) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	at := 0
	_, _ = fmt.Sscan(o.Continue, &at)
	page := func(all int) (from, to int) {
		to = all
		if o.Limit > 0 {
			to = min(all, at+int(o.Limit))
		}
		if to < all {
			into.SetContinue(fmt.Sprint(to))
		}
		return min(at, to), to
	}
	kind := strings.TrimSuffix(into.GetObjectKind().GroupVersionKind().Kind, "List")
	switch list := into.(type) {
	case *corev1.NodeList:
		kind = "Node"
		from, to := page(len(s.nodes))
		list.Items = s.nodes[from:to]
	case *corev1.PodList:
		kind = "Pod"
		from, to := page(len(s.pods))
		list.Items = s.pods[from:to]
	case *v1.DanmEpList:
		kind = "DanmEp"
	case *v1.NodeNetworkList:
		kind = "NodeNetwork"
		from, to := page(s.reports)
		for i := from; i < to; i++ {
			list.Items = append(list.Items, s.report(i))
		}
	case *metav1.PartialObjectMetadataList:
		if kind == "DaemonSet" {
			list.Items = s.daemonSets
		}
		for _, found := range s.objects {
			if found.Kind == kind && (o.Namespace == "" || o.Namespace == found.Namespace) {
				list.Items = append(list.Items, found)
			}
		}
	}
	if !slices.Contains(s.read, kind) {
		s.read = append(s.read, kind)
	}
	if s.measure {
		s.largest = max(s.largest, heap())
	}
	return nil
}

// heap returns the size of what is in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// installation is being deleted.
func installation() *v1alpha1.Installation {
	return &v1alpha1.Installation{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.InstallationName, UID: "i"}}
}

// runningDaemonSet returns the DaemonSet that the operator has applied.
func runningDaemonSet() metav1.PartialObjectMetadata {
	return appliedObject("DaemonSet", "", "patchbayd")
}

// appliedObject returns an object with the label and the fields of the operator.
func appliedObject(kind, namespace, name string) metav1.PartialObjectMetadata {
	o := object(kind, name, false)
	o.Namespace, o.Labels = namespace, map[string]string{render.InstallationLabel: v1alpha1.InstallationName}
	o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: render.Manager, Operation: metav1.ManagedFieldsOperationApply}}
	return o
}

// next returns the step over a server.
func (s *server) next(t *testing.T) uninstall.Step {
	t.Helper()
	u := &uninstall.Uninstaller{Client: s, Now: time.Now}
	step, err := u.Next(t.Context(), installation())
	if err != nil {
		t.Fatal(err)
	}
	return step
}

func node(name string, uid types.UID) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

// report returns a NodeNetwork with a condition.
func report(name string, node types.UID, c metav1.Condition) v1.NodeNetwork {
	n := v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("report of " + name), OwnerReferences: []metav1.OwnerReference{{Kind: "Node", Name: name, UID: node}}}}
	n.Status.Conditions = []metav1.Condition{c}
	return n
}

func cleanedUp(status metav1.ConditionStatus, message string) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionCleanedUp, Status: status, Reason: v1alpha1.ReasonCleanedUp, Message: v1alpha1.CleanUpMessage("i", message)}
}

// A Pod of the daemon is one that its DaemonSet owns, and the report of an earlier Node counts only if it has an error.
func TestNextReadsNodes(t *testing.T) {
	t.Parallel()
	isController := true
	owner := metav1.OwnerReference{Kind: "DaemonSet", Name: "patchbayd", UID: "d", Controller: &isController}
	daemon := func(owners ...metav1.OwnerReference) []corev1.Pod {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: render.Namespace, Name: "patchbayd-x", Labels: map[string]string{"app.kubernetes.io/name": "patchbayd"}, OwnerReferences: owners}}
		pod.Spec.NodeName = "n1"
		return []corev1.Pod{pod}
	}
	missing := metav1.Condition{Type: v1.ConditionDanmEpsMissing, Status: metav1.ConditionTrue, Reason: v1.ReasonDanmEpNotCreated, Message: "1 Pods are attached and have no DanmEp: shop/db"}
	for name, tc := range map[string]struct {
		why             string
		server          server
		report          v1.NodeNetwork
		reason, message string
	}{
		"Runs":           {"Its daemon has not finished.", server{pods: daemon(owner)}, report("n1", "1", cleanedUp(metav1.ConditionTrue, "")), v1alpha1.ReasonRemovingNode, "on 1 nodes: n1"},
		"Copy":           {"kubectl debug copies the labels, and not the owner.", server{pods: daemon()}, report("n1", "1", cleanedUp(metav1.ConditionTrue, v1alpha1.CleanUpComplete)), v1alpha1.ReasonUninstalled, "are not waited for. Delete them if they run a program of Patchbay: patchbay-system/patchbayd-x on node n1"},
		"Orphan":         {"A daemon whose DaemonSet was deleted alone has not cleaned up.", server{pods: daemon()}, report("n1", "1", metav1.Condition{Type: "Ready"}), v1alpha1.ReasonNodesNotCleanedUp, "cleaned up: n1."},
		"CleanedUp":      {"Nothing is left.", server{}, report("n1", "1", cleanedUp(metav1.ConditionTrue, v1alpha1.CleanUpComplete)), v1alpha1.ReasonUninstalled, "networks stay"},
		"EarlierNode":    {"The machine has another Node now.", server{}, report("n1", "0", metav1.Condition{Type: "Ready"}), v1alpha1.ReasonUninstalled, "networks stay"},
		"EarlierFailed":  {"The machine is the same: what its daemon could not remove is still there.", server{}, report("n1", "0", cleanedUp(metav1.ConditionFalse, "remove file: read-only")), v1alpha1.ReasonNodesNotCleanedUp, "n1: remove file: read-only"},
		"Terminal":       {"A stolen node must not write to the terminal of an administrator.", server{}, report("n1", "1", cleanedUp(metav1.ConditionFalse, "a\x1b[2Jb")), v1alpha1.ReasonNodesNotCleanedUp, "n1: a [2Jb"},
		"NodeDeleted":    {"A Node that is deleted is not waited for.", server{}, report("n9", "9", metav1.Condition{Type: "Ready"}), v1alpha1.ReasonUninstalled, "networks stay"},
		"WithoutDanmEp":  {"Only the node knows of the Pod.", server{daemonSets: []metav1.PartialObjectMetadata{runningDaemonSet()}, pods: daemon(owner)}, report("n1", "1", missing), v1alpha1.ReasonPodsAttached, "n1: 1 Pods are attached and have no DanmEp: shop/db"},
		"AnotherReports": {"The report of an earlier uninstallation does not count.", server{}, report("n1", "1", metav1.Condition{Type: v1alpha1.ConditionCleanedUp, Status: metav1.ConditionTrue, Message: v1alpha1.CleanUpMessage("j", "")}), v1alpha1.ReasonNodesNotCleanedUp, "n1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.server.nodes = []corev1.Node{node("n1", "1")}
			tc.server.reports, tc.server.report = 1, func(int) v1.NodeNetwork { return tc.report }
			if got := tc.server.next(t); got.Reason != tc.reason || !strings.Contains(got.Message, tc.message) {
				t.Errorf("%s\ngot  %s: %s\nwant %s: %s", tc.why, got.Reason, got.Message, tc.reason, tc.message)
			}
		})
	}
}

// A stolen node must not push the other nodes, and what to do, out of the message.
func TestNextBoundsReports(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 32<<10)
	s := &server{nodes: []corev1.Node{node("n0", "0"), node("n1", "1")}, reports: 2}
	s.report = func(i int) v1.NodeNetwork {
		return []v1.NodeNetwork{report("n0", "0", cleanedUp(metav1.ConditionFalse, long)), report("n1", "1", cleanedUp(metav1.ConditionFalse, "read-only"))}[i]
	}
	got := s.next(t)
	if got.Reason != v1alpha1.ReasonNodesNotCleanedUp || len(got.Message) > 1000 || !strings.Contains(got.Message, "n1: read-only. Remove CNI configuration") {
		t.Errorf("got %s with %d bytes, want a short message with n1: %.2000s", got.Reason, len(got.Message), got.Message)
	}
}

// While daemons end, which takes long in a large cluster, neither reports nor DanmEps are read.
func TestNextReadsWhatItNeeds(t *testing.T) {
	t.Parallel()
	ds := runningDaemonSet()
	now := metav1.Now()
	ds.DeletionTimestamp = &now
	isController := true
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/name": "patchbayd"}, OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "patchbayd", Controller: &isController}}}}
	pod.Spec.NodeName = "n1"
	s := &server{daemonSets: []metav1.PartialObjectMetadata{ds}, nodes: []corev1.Node{node("n1", "1")}, pods: []corev1.Pod{pod}}
	if got := s.next(t); got.Reason != v1alpha1.ReasonRemovingNode {
		t.Errorf("got %s, want %s", got.Reason, v1alpha1.ReasonRemovingNode)
	}
	if want := []string{"Namespace", "DaemonSet", "Node", "Deployment", "Pod"}; !slices.Equal(s.read, want) {
		t.Errorf("read %v, want %v", s.read, want)
	}
}

// The operator has 256 MiB. In a cluster of 5,000 nodes with reports of 20 KiB, it has one page of them at a time.
// The test is not parallel: it measures the heap.
func TestNextInLargeClusters(t *testing.T) {
	const (
		nodes = 5000
		size  = 20 << 10
		limit = 40 << 20
	)
	s := &server{reports: nodes, measure: true}
	s.report = func(i int) v1.NodeNetwork {
		name := fmt.Sprintf("node-%d", i)
		r := report(name, types.UID(name), cleanedUp(metav1.ConditionTrue, v1alpha1.CleanUpComplete))
		functions := make([]v1.VirtualFunction, 0, 200)
		for range cap(functions) {
			functions = append(functions, v1.VirtualFunction{Address: strings.Repeat("a", size/cap(functions))})
		}
		r.Status.NICs = []v1.NIC{{Name: "ens4", SRIOV: &v1.SRIOVFunctions{Functions: functions}}}
		return r
	}
	for i := range nodes {
		name := fmt.Sprintf("node-%d", i)
		s.nodes = append(s.nodes, node(name, types.UID(name)))
	}
	before := heap()
	step := s.next(t)
	if step.Reason != v1alpha1.ReasonUninstalled || len(step.Objects) != nodes {
		t.Fatalf("got %s with %d reports, want %s with %d", step.Reason, len(step.Objects), v1alpha1.ReasonUninstalled, nodes)
	}
	if used := s.largest - min(before, s.largest); used > limit {
		t.Errorf("used %d MiB, want at most %d MiB", used>>20, limit>>20)
	} else {
		t.Logf("used %d KiB", used>>10)
	}
}
