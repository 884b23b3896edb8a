// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package operator

import (
	"errors"
	"maps"
	"net/http"
	"sync"
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
	"github.com/patchbay-cni/patchbay/operator/internal/uninstall"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// An operator that is killed at each of its writes, before and after the API server has done it, ends with the same
// objects as one that is not, after a change that creates, changes and removes objects.
// It takes 12 CPU seconds: each operator reads and compares everything.
func TestKilledAtEveryWrite(t *testing.T) {
	c := newCluster(t)
	const before, after = "{}", "{features: {tenantRoles: false, metrics: false}, parts: {placementAgent: {enabled: true, cluster: east}}}"
	for _, spec := range []string{before, after} {
		c.write(t, spec)
		c.newPass(t, nil).run(t)
	}
	undisturbed := c.applied(t)
	c.write(t, before)
	c.newPass(t, nil).run(t)
	if diff := cmp.Diff(undisturbed, c.applied(t)); diff == "" {
		t.Fatal("the change changes nothing")
	}
	c.write(t, after)
	k := &killer{done: map[string]int{}}
	p := c.newPass(t, k)
	for kills := 1; p.run(t); kills++ {
		// To begin with the first object again changes nothing and takes long, so only some operators do.
		if kills%40 == 0 {
			p = c.newPass(t, k)
		}
	}
	for path, kills := range k.done {
		if kills < 2 {
			t.Errorf("%s: killed %d times, want before and after", path, kills)
		}
	}
	if len(k.done) < len(undisturbed) {
		t.Errorf("killed at %d writes, want one for each of %d objects", len(k.done), len(undisturbed))
	}
	last := &killer{done: map[string]int{}, spare: true}
	p = c.newPass(t, last)
	p.run(t)
	if diff := cmp.Diff(undisturbed, c.applied(t)); diff != "" {
		t.Errorf("the objects differ (-undisturbed +killed):\n%s", diff)
	}
	clear(last.done)
	p.run(t)
	if len(last.done) > 0 {
		t.Errorf("an operator that has nothing to do writes %v", last.done)
	}
}

// killer ends an operator at a write that it has not ended two operators at. If it spares operators, it only counts.
type killer struct {
	mu    sync.Mutex
	spare bool
	dead  bool
	done  map[string]int
}

func (k *killer) choose(r *http.Request) apitest.Fault {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead {
		return apitest.LoseRequest
	}
	// An object may have several writes.
	key := r.Method + " " + r.URL.RequestURI() + " " + r.Header.Get("Content-Type")
	if r.Method == http.MethodGet || !k.spare && k.done[key] == 2 {
		return apitest.Pass
	}
	k.done[key]++
	if k.spare {
		return apitest.Pass
	}
	k.dead = true
	if k.done[key] == 1 {
		return apitest.LoseRequest
	}
	return apitest.LoseReply
}

// pass is a new operator, which writes with the rights of its account.
type pass struct {
	*controllers.Reconciler

	killer *killer
}

func (c *cluster) newPass(t *testing.T, k *killer) *pass {
	t.Helper()
	cfg := c.ConfigAs(account())
	if k != nil {
		cfg = apitest.Faulty(cfg, k.choose)
	}
	own, err := client.New(cfg, client.Options{Scheme: c.admin.Scheme(), Mapper: c.admin.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	return &pass{killer: k, Reconciler: &controllers.Reconciler{
		Cache: c.admin, Live: own, Status: own.Status(), Applier: apply.New(own, c.admin), Events: noEvents{}, Now: time.Now,
		Uninstaller: &uninstall.Uninstaller{Client: own, Now: time.Now},
	}}
}

// run runs the operator once, and reports whether it was killed.
func (p *pass) run(t *testing.T) (killed bool) {
	t.Helper()
	if p.killer != nil {
		p.killer.dead = false
	}
	_, err := p.Reconcile(t.Context(), installation())
	if err != nil && !errors.Is(err, apitest.ErrLost) {
		t.Fatal(err)
	}
	return p.killer != nil && p.killer.dead
}

func installation() reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Name: v1alpha1.InstallationName}}
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
