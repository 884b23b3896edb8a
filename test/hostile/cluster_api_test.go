// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package hostile

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/admissiontest"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// system is the namespace of Patchbay's own Pods.
const system = "patchbay-system"

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	apitest.Main(m)
}

// sharedAdmission is whether admission is served, once for all tests.
var sharedAdmission struct {
	sync.Once
	err error
}

// start returns the cluster that all tests attack.
func start(t *testing.T) *apitest.Env {
	t.Helper()
	env := apitest.StartWithControllers(t)
	sharedAdmission.Do(func() { _, sharedAdmission.err = admissiontest.Serve(context.Background(), env, nil) }) // it outlives this test
	if sharedAdmission.err != nil {
		t.Fatal(sharedAdmission.err)
	}
	return env
}

// eventually polls until try succeeds.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within two minutes: %s: %v", what, err)
		}
	}
}

// create stores an object of YAML, with a status if the text has one.
func create(t *testing.T, env *apitest.Env, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(text), &u.Object); err != nil {
		t.Fatalf("object of the test: %v\n%s", err, text)
	}
	status, stated := u.Object["status"]
	// In a new namespace a Pod waits for the account default.
	eventually(t, "create "+u.GetKind(), func() error {
		err := env.Client.Create(t.Context(), u)
		if err != nil && (u.GetKind() != "Pod" || !apierrors.IsForbidden(err)) {
			t.Fatal(err)
		}
		return err
	})
	if stated {
		u.Object["status"] = status
		if err := env.Client.Status().Update(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

// withToken acts with a token, and with nothing else.
func withToken(t *testing.T, env *apitest.Env, token string) client.Client {
	t.Helper()
	config := rest.AnonymousClientConfig(env.Config)
	config.BearerToken = token
	return clientOf(t, env, config)
}

func clientOf(t *testing.T, env *apitest.Env, config *rest.Config) client.Client {
	t.Helper()
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// kubelet has the certificate of a node.
func kubelet(t *testing.T, env *apitest.Env, node string) client.Client {
	t.Helper()
	raw, err := env.ControlPlane.NodeKubeconfig(node)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(raw)
	if err != nil {
		t.Fatal(err)
	}
	return clientOf(t, env, config)
}

// podOn is a Pod of an account on a node, as the scheduler leaves it.
func podOn(t *testing.T, env *apitest.Env, namespace, account, node string) *unstructured.Unstructured {
	t.Helper()
	return create(t, env, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {namespace: %s, name: %s},
		spec: {nodeName: %s, serviceAccountName: %s, containers: [{name: c, image: i}]}}`, namespace, apitest.Name("pod"), node, account))
}

// requestProjectedToken asks for a token of a Pod's account as the kubelet does for a projected volume.
func requestProjectedToken(ctx context.Context, c client.Client, pod *unstructured.Unstructured) (string, error) {
	account, _, err := unstructured.NestedString(pod.Object, "spec", "serviceAccountName")
	if err != nil {
		return "", err
	}
	const kubeletAsksFor = 3607 // seconds
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: new(int64(kubeletAsksFor)),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.GetName(), UID: pod.GetUID()},
	}}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.GetNamespace(), Name: account}}
	err = c.SubResource("token").Create(ctx, of, request)
	return request.Status.Token, err
}

// daemonOf is the daemon of a node, with the token that the node's kubelet gets for it.
func daemonOf(t *testing.T, env *apitest.Env, node string) (c client.Client, pod *unstructured.Unstructured) {
	t.Helper()
	pod = podOn(t, env, system, "patchbayd", node)
	of := kubelet(t, env, node)
	var token string
	eventually(t, "the kubelet gets the daemon's token", func() (err error) { // the Node authorizer watches Pods
		token, err = requestProjectedToken(t.Context(), of, pod)
		return err
	})
	return withToken(t, env, token), pod
}

// tenantOf has the token of an account with the role edit in a namespace.
func tenantOf(t *testing.T, env *apitest.Env, ns string) client.Client {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mallory"}}
	edit := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mallory"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: account.Name}},
	}
	for _, o := range []client.Object{account, edit} {
		if err := env.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	request := &authenticationv1.TokenRequest{}
	if err := env.Client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	c := withToken(t, env, request.Status.Token)
	eventually(t, "the tenant has its rights", func() error {
		err := c.Patch(t.Context(), &v1.TenantNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "none"}}, client.RawPatch("application/merge-patch+json", []byte("{}")))
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("patch: %w", err)
	})
	return c
}

// awaitGarbageCollector waits until the garbage collector has done what it was to do until now: it
// deletes a network whose owner is missing.
func awaitGarbageCollector(t *testing.T, env *apitest.Env, like *unstructured.Unstructured) {
	t.Helper()
	canary := like.DeepCopy()
	canary.Object = map[string]any{"apiVersion": like.GetAPIVersion(), "kind": like.GetKind(), "spec": map[string]any{"NetworkID": "canary"}}
	canary.SetNamespace(like.GetNamespace())
	canary.SetName(apitest.Name("canary"))
	canary.SetOwnerReferences(missingOwner())
	if err := env.Client.Create(t.Context(), canary); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the garbage collector deletes "+canary.GetName(), func() error {
		err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(canary), canary)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("get: %w", err)
	})
}

// missingOwner is what makes the garbage collector delete an object. It is one of the
// cluster: the collector ignores an owner in a namespace for an object in none.
func missingOwner() []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "never-was", UID: "0"}}
}
