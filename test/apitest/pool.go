// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
)

// Pool has API servers for tests that need one alone. Starting one takes some
// seconds of processor time, so one that a test has used is given to the next test, after all that is stored
// was put back to what it was before. That is not done if the test failed, if parts of the control
// plane are down, if somebody still writes, or if the test changed definitions or admission: nothing tells
// when the API server uses the old ones again.
type Pool struct {
	// Prepare installs what all tests need, besides what Launch installs. It may be nil.
	Prepare func(context.Context, *Env) error

	mu   sync.Mutex
	idle []pooled
}

// pooled is an API server and what it had stored when it was prepared.
type pooled struct {
	env    *Env
	stored controlplane.Stored
}

// New returns an API server for this test alone.
func (p *Pool) New(tb testing.TB) *Env {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	s, err := p.take(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.give(s, tb.Failed()); err != nil {
			tb.Error(err)
		}
	})
	return s.env
}

func (p *Pool) take(ctx context.Context) (pooled, error) {
	if s, ok := p.takeIdle(); ok {
		return s, nil
	}
	env, err := Launch(ctx)
	if err != nil {
		return pooled{}, err
	}
	if p.Prepare != nil {
		err = p.Prepare(ctx, env)
	}
	s := pooled{env: env}
	if err == nil {
		s.stored, err = env.ControlPlane.Stored(ctx)
	}
	if err != nil {
		return pooled{}, errors.Join(err, env.Close(context.WithoutCancel(ctx)))
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.pools = append(shared.pools, p) // once for each API server: closing again does nothing
	return s, nil
}

func (p *Pool) takeIdle() (pooled, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	if last < 0 {
		return pooled{}, false
	}
	s := p.idle[last]
	p.idle = p.idle[:last]
	return s, true
}

// give takes an API server back, or ends it.
func (p *Pool) give(s pooled, failed bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if !shared.inMain || failed || !s.env.alive() {
		return s.env.Close(ctx)
	}
	// The test may have changed the clients that it was given.
	next := &Env{ControlPlane: s.env.ControlPlane, Config: s.env.ControlPlane.RESTConfig(), dir: s.env.dir, bin: s.env.bin}
	var err error
	if next.Client, err = newClient(next.Config); err != nil {
		return errors.Join(err, s.env.Close(ctx))
	}
	s.env = next
	if reset, err := s.reset(ctx); err != nil || !reset {
		return errors.Join(err, s.env.Close(context.WithoutCancel(ctx)))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, s)
	return nil
}

// close ends all that are idle.
func (p *Pool) close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, s := range p.idle {
		errs = append(errs, s.env.Close(ctx))
	}
	p.idle = nil
	return errors.Join(errs...)
}

// alive tells whether all parts run.
func (e *Env) alive() bool {
	for _, part := range e.ControlPlane.Parts() {
		if !e.ControlPlane.Alive(part) {
			return false
		}
	}
	return true
}

// reset puts back what was stored, and waits until the API server's watch caches have it. It does
// nothing and returns false if that is not enough.
func (s pooled) reset(ctx context.Context) (bool, error) {
	now, err := s.env.ControlPlane.Stored(ctx)
	if err != nil {
		return false, err
	}
	put, remove, ok := difference(s.stored, now)
	if !ok {
		return false, nil
	}
	revisions, err := s.env.ControlPlane.Store(ctx, put, remove)
	if err != nil {
		return false, err
	}
	if len(revisions) < len(put)+len(remove) {
		return false, nil // a request of the test has removed a key since
	}
	last := map[string]int64{} // revision by resource
	for key, revision := range revisions {
		last[resourceOf(key)] = max(last[resourceOf(key)], revision)
	}
	for resource, revision := range last {
		if err := s.env.awaitCached(ctx, resource, revision); err != nil {
			return false, err
		}
	}
	if slices.ContainsFunc(rightsResources(), func(r string) bool { return last[r] > 0 }) {
		if err := s.env.awaitRightsTaken(ctx); err != nil {
			return false, err
		}
	}
	return s.unchanged(ctx)
}

// unchanged tells whether all is stored that was stored before, and nothing else: a request that the test
// did not wait for may have been carried out after it.
func (s pooled) unchanged(ctx context.Context) (bool, error) {
	now, err := s.env.ControlPlane.Stored(ctx)
	if err != nil {
		return false, err
	}
	put, remove, ok := difference(s.stored, now)
	return ok && len(put) == 0 && len(remove) == 0, nil
}

// difference returns what makes an API server with the keys of now one with those of before, or false
// if nothing tells when the API server has taken that over.
func difference(before, now controlplane.Stored) (put controlplane.Stored, remove []string, ok bool) {
	put = controlplane.Stored{}
	for key, value := range before {
		if !ofServer(key) && !bytes.Equal(now[key], value) {
			put[key] = value
		}
	}
	for key := range now {
		if _, was := before[key]; !was && !ofServer(key) {
			remove = append(remove, key)
		}
	}
	changed := slices.Concat(slices.Collect(maps.Keys(put)), remove)
	return put, remove, !slices.ContainsFunc(changed, configuresServer)
}

// ofServer tells whether the API server writes a key by itself at any time.
func ofServer(key string) bool {
	return slices.ContainsFunc([]string{
		"/apiregistration.k8s.io/", "/flowschemas/", "/leases/kube-system/", "/masterleases/", "/prioritylevelconfigurations/",
	}, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// configuresServer tells whether an object changes what the API server serves or admits.
func configuresServer(key string) bool {
	return slices.ContainsFunc([]string{
		"/apiextensions.k8s.io/", "/mutatingwebhookconfigurations/", "/validatingadmissionpolicies/",
		"/validatingadmissionpolicybindings/", "/validatingwebhookconfigurations/",
	}, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// resourceOf returns the resource of a key, as clients name it: pods, or clusternetworks.danm.io.
func resourceOf(key string) string {
	parts := strings.Split(strings.TrimPrefix(key, "/"), "/")
	switch first := parts[0]; {
	case first == "minions":
		return "nodes"
	case first == "services": // also has endpoints
		return map[string]string{"specs": "services", "endpoints": "endpoints"}[parts[1]]
	case strings.Contains(first, "."):
		return parts[1] + "." + first
	default:
		return first
	}
}

// awaitCached waits until the watch cache of a resource has a revision of etcd that changed it.
func (e *Env) awaitCached(ctx context.Context, resource string, revision int64) error {
	mapper := e.Client.RESTMapper()
	kind, err := mapper.KindFor(schema.ParseGroupResource(resource).WithVersion(""))
	if err != nil {
		return fmt.Errorf("reset %s: %w", resource, err)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	notOlder := &client.ListOptions{Raw: &metav1.ListOptions{
		ResourceVersion: strconv.FormatInt(revision, 10), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}}
	return poll(ctx, "the watch cache of "+resource, func(ctx context.Context) error {
		return e.Client.List(ctx, list, notOlder)
	})
}

func rightsResources() []string {
	return []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"}
}

// awaitRightsTaken waits until the API server's authorizer has all roles and bindings that are stored.
// It gets the changes of each kind in their order. So once it knows new ones, it knows all before.
func (e *Env) awaitRightsTaken(ctx context.Context) error {
	name := Name("apitest-sentinel")
	meta := metav1.ObjectMeta{Name: name}
	inNamespace := metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault}
	rules := []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}}
	user := func(suffix string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name + suffix}}
	}
	role := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	sentinels := []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: user("-cluster"), RoleRef: role("ClusterRole")},
		&rbacv1.Role{ObjectMeta: inNamespace, Rules: rules},
		&rbacv1.RoleBinding{ObjectMeta: inNamespace, Subjects: user("-namespace"), RoleRef: role("Role")},
	}
	for _, o := range sentinels {
		if err := e.Client.Create(ctx, o); err != nil {
			return fmt.Errorf("install sentinel %T: %w", o, err)
		}
	}
	for _, suffix := range []string{"-cluster", "-namespace"} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               name + suffix,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: metav1.NamespaceDefault, Verb: "get", Resource: "configmaps"},
		}}
		if err := poll(ctx, "rights", func(ctx context.Context) error { return checkAllowed(ctx, e.Client, review.DeepCopy()) }); err != nil {
			return err
		}
	}
	for _, o := range sentinels {
		if err := e.Client.Delete(ctx, o); err != nil {
			return fmt.Errorf("remove sentinel %T: %w", o, err)
		}
	}
	return nil
}
