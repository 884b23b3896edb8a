// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package operator

import (
	"errors"
	"maps"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/operator/internal/apply"
	"github.com/patchbay-cni/patchbay/operator/internal/controllers"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// An operator that is killed at each of its writes, before or after the API server has done it, ends with the same
// objects as one that is not, after a change that creates, changes and removes objects.
// 20 CPU seconds: some 2,500 requests, because a new operator begins with the first object.
func TestKilledAtEveryWrite(t *testing.T) {
	c := newCluster(t)
	const before, after = "{}", "{features: {tenantRoles: false, metrics: false}, parts: {placementAgent: {enabled: true, cluster: east}}}"
	pass := func(*http.Request) apitest.Fault { return apitest.Pass }
	for _, spec := range []string{before, after} {
		c.write(t, spec)
		c.run(t, pass)
	}
	undisturbed := c.applied(t)
	c.write(t, before)
	c.run(t, pass)
	if diff := cmp.Diff(undisturbed, c.applied(t)); diff == "" {
		t.Fatal("the change changes nothing")
	}
	c.write(t, after)
	kills := 0
	for n := int64(1); c.runAndKill(t, n); n++ {
		kills++
	}
	if kills < len(undisturbed) {
		t.Errorf("killed at %d writes, want one for each of %d objects", kills, len(undisturbed))
	}
	if diff := cmp.Diff(undisturbed, c.applied(t)); diff != "" {
		t.Errorf("the objects differ (-undisturbed +killed):\n%s", diff)
	}
}

// runAndKill runs an operator that is killed at its n-th write, and reports whether it came that far.
func (c *cluster) runAndKill(t *testing.T, n int64) bool {
	t.Helper()
	var writes atomic.Int64
	var dead atomic.Bool
	c.run(t, func(r *http.Request) apitest.Fault {
		if dead.Load() {
			return apitest.LoseRequest
		}
		if r.Method == http.MethodGet || writes.Add(1) < n {
			return apitest.Pass
		}
		dead.Store(true)
		if n%2 == 0 {
			return apitest.LoseReply
		}
		return apitest.LoseRequest
	})
	return dead.Load()
}

// run runs one pass of a new operator, which writes with the rights of its account.
func (c *cluster) run(t *testing.T, choose func(*http.Request) apitest.Fault) {
	t.Helper()
	own, err := client.New(apitest.Faulty(c.ConfigAs(account()), choose), client.Options{Scheme: c.admin.Scheme(), Mapper: c.admin.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	r := &controllers.Reconciler{
		Cache: c.admin, Live: own, Status: own.Status(), Applier: apply.New(own, c.admin), Events: noEvents{}, Now: time.Now,
	}
	_, err = r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: v1alpha1.InstallationName}})
	if err != nil && !errors.Is(err, apitest.ErrLost) {
		t.Fatal(err)
	}
}

type noEvents struct{}

// Event implements controllers.EventRecorder.
func (noEvents) Event(*v1alpha1.Installation, string, string, string) {}

// applied returns all objects with the operator's label, without what differs each time.
func (c *cluster) applied(t *testing.T) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, kind := range apply.WatchedKinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.admin.List(t.Context(), list, client.HasLabels{render.InstallationLabel}); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			object := maps.Clone(o.Object)
			delete(object, "status")
			object["metadata"] = map[string]any{"labels": o.GetLabels(), "annotations": withoutRevision(o.GetAnnotations())}
			all[kind.Kind+" "+o.GetNamespace()+"/"+o.GetName()] = object
		}
	}
	return all
}

// withoutRevision removes what Kubernetes counts.
func withoutRevision(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	delete(out, "deprecated.daemonset.template.generation")
	return out
}
