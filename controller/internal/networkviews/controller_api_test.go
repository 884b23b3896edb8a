// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package networkviews

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/time/rate"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

// fixture is a writer with the rights of the controller's ServiceAccount. Its cache is never behind.
type fixture struct {
	*testing.T
	env    *apitest.Env
	writer *writer
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	env := apitest.New(t)
	c := env.As(t, apitest.Controller())
	return &fixture{T: t, env: env, writer: &writer{cached: c, direct: c, limit: rate.NewLimiter(rate.Inf, 1)}}
}

// compare compares all views once, and returns that of a namespace.
func (f *fixture) compare(ns string) *v1.NetworkView {
	f.Helper()
	if err := f.writer.compare(f.Context()); err != nil {
		f.Fatal(err)
	}
	view := &v1.NetworkView{}
	if err := f.env.Client.Get(f.Context(), client.ObjectKey{Namespace: ns, Name: v1.NetworkViewName}, view); err != nil {
		f.Fatal(err)
	}
	return view
}

func (f *fixture) network(name string, tenants ...string) *v1.ClusterNetwork {
	f.Helper()
	cn := &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NetworkSpec{
		NetworkID: name, NetworkType: "macvlan", AllowedTenants: tenants, Options: v1.NetworkOptions{Device: "ens4"},
	}}
	if err := f.env.Client.Create(f.Context(), cn); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = f.env.Client.Delete(context.Background(), cn) })
	return cn
}

func TestViewsFollowNetworks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	red, blue := f.env.Namespace(t), f.env.Namespace(t)
	f.network("public")
	closed := f.network("closed", blue)
	public := v1.ViewedNetwork{Kind: "ClusterNetwork", Name: "public", Type: "macvlan", Ready: metav1.ConditionUnknown}
	private := v1.ViewedNetwork{Kind: "ClusterNetwork", Name: "closed", Type: "macvlan", Ready: metav1.ConditionUnknown}
	f.expect("The view of a namespace that may not use the closed network.", red, public)
	before := f.expect("The view of one that may.", blue, private, public)
	if again := f.compare(blue); again.ResourceVersion != before.ResourceVersion {
		t.Errorf("a comparison without a change wrote version %s after %s", again.ResourceVersion, before.ResourceVersion)
	}

	closed.Spec.AllowedTenants = []string{red}
	if err := f.env.Client.Update(t.Context(), closed); err != nil {
		t.Fatal(err)
	}
	f.expect("The network was opened for the namespace.", red, private, public)
	f.expect("The network was closed for the namespace.", blue, public)

	forged := f.compare(red)
	forged.Networks[0].Type = "forged"
	if err := f.env.Client.Update(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	f.expect("An administrator's change is undone.", red, private, public)
}

// expect compares the views, and fails the test if that of a namespace has other networks.
func (f *fixture) expect(reason, ns string, want ...v1.ViewedNetwork) *v1.NetworkView {
	f.Helper()
	got := f.compare(ns)
	if diff := cmp.Diff(want, got.Networks); diff != "" || got.Count != int64(len(want)) {
		f.Errorf("%s Count %d, networks -want +got:\n%s", reason, got.Count, diff)
	}
	return got
}

// A namespace that is being deleted gets no view, and stops no view of others.
func TestViewsBesideDeletedNamespaces(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	gone, kept := f.env.Namespace(t), f.env.Namespace(t)
	view := &v1.NetworkView{ObjectMeta: metav1.ObjectMeta{Namespace: gone, Name: v1.NetworkViewName}}
	ns := namespaceMetadata()
	ns.Name = gone
	if err := f.env.Client.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	f.compare(kept)
	if err := f.env.Client.Get(t.Context(), client.ObjectKeyFromObject(view), view); !apierrors.IsNotFound(err) {
		t.Errorf("the view of a namespace in deletion: %v", err)
	}
	// The cache may be behind.
	if err := f.writer.write(t.Context(), change{want: view}); err != nil {
		t.Errorf("a view of a namespace in deletion: %v, want no error", err)
	}
}

// Tenants read the view of their namespace with Kubernetes' own roles, and cannot write it.
func TestTenantsReadViews(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ns := f.env.Namespace(t)
	f.compare(ns)
	for _, role := range []string{"patchbay-tenant", "patchbay-tenant-view"} {
		user := "user-of-" + role
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}
		if err := f.env.Client.Create(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
		tenant := f.env.As(t, apitest.Tenant(user))
		view := &v1.NetworkView{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1.NetworkViewName}}
		f.eventually(role+" reads the view", func() error { return tenant.Get(t.Context(), client.ObjectKeyFromObject(view), view) })
		view.Count++
		if err := tenant.Update(t.Context(), view); !apierrors.IsForbidden(err) {
			t.Errorf("%s changes the view: %v, want it forbidden", role, err)
		}
		if err := tenant.List(t.Context(), &v1.NetworkViewList{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s lists the views of all namespaces: %v, want it forbidden", role, err)
		}
	}
}

// eventually tries until there is no error: the authorizer learns of a binding with delay.
func (f *fixture) eventually(what string, try func() error) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			f.Fatalf("%s: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
