// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"fmt"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A test gets the API server of the test before, and finds nothing of it: no object, no change of
// one that was there, no right. One whose definitions were changed is not given to another test.
func TestPool(t *testing.T) {
	t.Parallel()
	const user = "previous-user"
	pool := &apitest.Pool{}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: user},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}
	network := &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: v1.NetworkSpec{NetworkID: "n", NetworkType: "macvlan"}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceDefault}}
	var first, second string
	t.Run("First", func(t *testing.T) {
		env := pool.New(t)
		first = env.Config.Host
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"changed":"yes"}}}`))
		create(t, env, binding.DeepCopy())
		create(t, env, network.DeepCopy())
		for i := range 101 { // more than what one transaction of etcd takes back
			create(t, env, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("many-%d", i)}})
		}
		if err := env.Client.Patch(t.Context(), namespace.DeepCopy(), patch); err != nil {
			t.Fatal(err)
		}
		for begin := time.Now(); !mayCreatePods(t, env, user); { // the authorizer gets the RoleBinding a little later
			if time.Since(begin) > time.Minute {
				t.Fatal("the RoleBinding gives no right, so that nothing is tested")
			}
		}
	})
	t.Run("Second", func(t *testing.T) {
		env := pool.New(t)
		if second = env.Config.Host; second != first {
			t.Fatalf("API server is %s, want the idle one %s", second, first)
		}
		for _, o := range []client.Object{binding.DeepCopy(), network.DeepCopy()} {
			if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				t.Errorf("get %T of the test before: %v, want not found", o, err)
			}
		}
		cached := &metav1.ListOptions{ResourceVersion: "0"} // as informers list
		list := &v1.ClusterNetworkList{}
		if err := env.Client.List(t.Context(), list, &client.ListOptions{Raw: cached}); err != nil || len(list.Items) > 0 {
			t.Errorf("networks in the watch cache: %v (error %v), want none", list.Items, err)
		}
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace); err != nil || namespace.Labels["changed"] != "" {
			t.Errorf("labels of namespace default: %v (error %v), want those of before", namespace.Labels, err)
		}
		if mayCreatePods(t, env, user) {
			t.Errorf("%s still has the right of the test before", user)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "clusternetworks.danm.io"}}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"changed":"yes"}}}`))
		if err := env.Client.Patch(t.Context(), definition, patch); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("Third", func(t *testing.T) {
		if third := pool.New(t).Config.Host; third == second {
			t.Errorf("API server is %s, whose definitions the test before has changed", third)
		}
	})
}

// No watch gets an event for a key that was removed before: whoever waits for its revision waits for ever.
func TestStoreReturnsRevisionsOfChanges(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	name := apitest.Name("removed")
	create(t, env, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}})
	there, missing := "/configmaps/default/"+name, "/configmaps/default/"+name+"-missing"
	revisions, err := env.ControlPlane.Store(t.Context(), nil, []string{missing, there})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := revisions[missing]; ok || revisions[there] == 0 {
		t.Errorf("revisions: got %v, want one of %s alone", revisions, there)
	}
}

func create(t *testing.T, env *apitest.Env, o client.Object) {
	t.Helper()
	if err := env.Client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// mayCreatePods tells whether a user may create Pods in the namespace default.
func mayCreatePods(t *testing.T, env *apitest.Env, user string) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: metav1.NamespaceDefault, Verb: "create", Resource: "pods"},
	}}
	create(t, env, review)
	return review.Status.Allowed
}
