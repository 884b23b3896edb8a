// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"testing"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/patchbay-cni/patchbay/test/apitest"
)

func TestTenantHasNoRights(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	tenant := env.As(t, apitest.Tenant("alice"))
	if err := tenant.List(t.Context(), &corev1.NamespaceList{}); !apierrors.IsForbidden(err) {
		t.Errorf("list namespaces: got %v, want forbidden", err)
	}
}

// Policies tell node daemons apart by the claim of their token.
func TestNodeDaemonNamesItsNode(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	cs, err := kubernetes.NewForConfig(env.ConfigAs(apitest.NodeDaemon("node-7")))
	if err != nil {
		t.Fatal(err)
	}
	review, err := cs.AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := review.Status.UserInfo.Extra["authentication.kubernetes.io/node-name"]
	if len(got) != 1 || got[0] != "node-7" {
		t.Errorf("node claim: got %v, want [node-7]", got)
	}
}
