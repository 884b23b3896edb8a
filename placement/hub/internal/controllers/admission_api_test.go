// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// The writer of a Placement must have the verb use on the Clusters that it names, or on all.
func TestPlacementsNeedUse(t *testing.T) {
	h, env := newAdmission(t)
	dev := h.userWith(env, "dev",
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"placements", "placements/status"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"clusters"}, ResourceNames: []string{"c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"}, Verbs: []string{"use"}})
	placement := func(clusters string) *v1alpha1.Placement {
		p := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "one"}}
		for c := range strings.FieldsSeq(clusters) {
			p.Spec.Clusters.Names = append(p.Spec.Clusters.Names, v1alpha1.ClusterName(c))
		}
		return p
	}
	h.eventually("the rights and the policy", func(ctx context.Context) error {
		allowed := dev.Create(ctx, placement("c0"), client.DryRunAll)
		if refused := dev.Create(ctx, placement("other"), client.DryRunAll); allowed != nil || refused == nil {
			return errors.Join(errNotYet, allowed, refused)
		}
		return nil
	})
	for clusters, refused := range map[string]string{
		"c0 c1 c2 c3 c4 c5 c6 c7": "", "": "all Clusters", "c0 other": "Cluster other",
		"c0 c1 c2 c3 c4 c5 c6 other": "Cluster other", "c0 c1 c2 c3 c4 c5 c6 c7 other": "at most 8",
	} {
		h.expectDenied("made for "+clusters, dev.Create(t.Context(), placement(clusters), client.DryRunAll), refused)
		h.expectDenied("made by an admin for "+clusters, h.client.Create(t.Context(), placement(clusters), client.DryRunAll), "")
	}
	h.create(placement("other"))
	for patch, refused := range map[string]string{
		`{"metadata":{"labels":{"a":"b"}}}`:        "",
		`{"spec":{"clusters":{"names":["c0"]}}}`:   "",
		`{"spec":{"clusters":{"names":null}}}`:     "all Clusters",
		`{"spec":{"objects":[{"kind":"Secret"}]}}`: "Cluster other",
	} {
		err := dev.Patch(t.Context(), placement("other"), client.RawPatch("application/merge-patch+json", []byte(patch)), client.DryRunAll)
		h.expectDenied("an admin's, patched with "+patch, err, refused)
	}
}

// Only users who write the inventory may create a cluster's namespace before the hub does.
func TestNamespacesOfClustersAreReserved(t *testing.T) {
	h, env := newAdmission(t)
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	makes := rule("", "namespaces", "create")
	tenant := h.userWith(env, "tenant", makes, rule(v1alpha1.GroupName, "placements", "create", "update"))
	infrastructure := h.userWith(env, "infrastructure", makes, rule(v1alpha1.GroupName, "clusters", "create", "update"))
	hub := h.userWith(env, "hub", makes, rule(v1alpha1.GroupName, "works", "create", "delete"))
	create := func(ctx context.Context, c client.Client, m metav1.ObjectMeta) error {
		return c.Create(ctx, &corev1.Namespace{ObjectMeta: m}, client.DryRunAll)
	}
	one := metav1.ObjectMeta{Name: "cluster-prod", Labels: map[string]string{v1alpha1.ManagedLabel: "true"}}
	h.eventually("the rights and the policy", func(ctx context.Context) error {
		for _, c := range []client.Client{tenant, infrastructure, hub} {
			if err := create(ctx, c, metav1.ObjectMeta{Name: "shop"}); err != nil {
				return err
			}
		}
		if create(ctx, tenant, one) == nil {
			return errNotYet
		}
		return nil
	})
	const refused = "must not begin with cluster-"
	h.expectDenied("a tenant's", create(t.Context(), tenant, one), refused)
	h.expectDenied("a tenant's with a generated name", create(t.Context(), tenant, metav1.ObjectMeta{GenerateName: "cluster-"}), refused)
	h.expectDenied("infrastructure's", create(t.Context(), infrastructure, one), "")
	h.expectDenied("a hub's", create(t.Context(), hub, one), "")
	h.expectDenied("an admin's", create(t.Context(), h.client, one), "")
}

// newAdmission starts an API server with the kinds and the admission policies of a hub.
func newAdmission(t *testing.T) (*testHub, *apitest.Env) {
	t.Helper()
	env := apitest.New(t)
	for _, kind := range []string{"CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		if err := bed.Install(t.Context(), env.Config, "placement", kind); err != nil {
			t.Fatal(err)
		}
	}
	return newTestHubOn(t, env, time.Minute), env
}

// userWith returns the client of a new user with these rights.
func (h *testHub) userWith(env *apitest.Env, user string, rules ...rbacv1.PolicyRule) client.Client {
	h.t.Helper()
	name := metav1.ObjectMeta{Name: user}
	h.create(&rbacv1.ClusterRole{ObjectMeta: name, Rules: rules})
	h.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	c, err := client.New(config, client.Options{Scheme: h.client.Scheme()})
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

// expectDenied fails unless an error is a denial with this text; "": unless there is no error.
func (h *testHub) expectDenied(what string, err error, refused string) {
	h.t.Helper()
	if refused == "" && err != nil || refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), refused)) {
		h.t.Errorf("%s: got %v, want denied: %q", what, err, refused)
	}
}
