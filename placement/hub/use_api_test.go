// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package hub

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// A Placement says no more than its writer may: the verb use on what it names, or on all.
func TestPlacementsNeedUse(t *testing.T) {
	env := apitest.New(t)
	b := newBenchOn(t, env, time.Minute)
	if err := bed.Install(t.Context(), env.Config, "placement", "CustomResourceDefinition"); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		if err := bed.Install(t.Context(), env.Config, "placement", kind); err != nil {
			t.Fatal(err)
		}
	}
	name := metav1.ObjectMeta{Name: "dev"}
	b.create(&rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"placements", "placements/status"}, Verbs: []string{"*"}},
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"clusters"}, ResourceNames: []string{"c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"}, Verbs: []string{"use"}},
	}})
	b.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "dev"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "dev"}},
	})
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "dev", Groups: []string{"system:authenticated"}}
	dev, err := client.New(config, client.Options{Scheme: b.client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	placement := func(clusters string) *v1alpha1.Placement {
		p := &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "one"}}
		for c := range strings.FieldsSeq(clusters) {
			p.Spec.Clusters.Names = append(p.Spec.Clusters.Names, v1alpha1.ClusterName(c))
		}
		return p
	}
	b.eventually("the rights and the policy", func(ctx context.Context) error {
		allowed := dev.Create(ctx, placement("c0"), client.DryRunAll)
		if refused := dev.Create(ctx, placement("other"), client.DryRunAll); allowed != nil || refused == nil {
			return errors.Join(errNotYet, allowed, refused)
		}
		return nil
	})
	judge := func(what string, err error, refused string) {
		t.Helper()
		if refused == "" && err != nil || refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), refused)) {
			t.Errorf("%s: got %v, want refused: %q", what, err, refused)
		}
	}
	for clusters, refused := range map[string]string{
		"c0 c1 c2 c3 c4 c5 c6 c7": "", "": "all Clusters", "c0 other": "Cluster other",
		"c0 c1 c2 c3 c4 c5 c6 other": "Cluster other", "c0 c1 c2 c3 c4 c5 c6 c7 other": "more than 8",
	} {
		judge("made for "+clusters, dev.Create(t.Context(), placement(clusters), client.DryRunAll), refused)
		judge("made by an admin for "+clusters, b.client.Create(t.Context(), placement(clusters), client.DryRunAll), "")
	}
	b.create(placement("other"))
	for patch, refused := range map[string]string{
		`{"metadata":{"labels":{"a":"b"}}}`:        "",
		`{"spec":{"clusters":{"names":["c0"]}}}`:   "",
		`{"spec":{"clusters":{"names":null}}}`:     "all Clusters",
		`{"spec":{"objects":[{"kind":"Secret"}]}}`: "Cluster other",
	} {
		err := dev.Patch(t.Context(), placement("other"), client.RawPatch("application/merge-patch+json", []byte(patch)), client.DryRunAll)
		judge("an admin's, patched with "+patch, err, refused)
	}
}
