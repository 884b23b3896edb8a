// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package works_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// With any failure between agent and hub, and between agent and cluster, the agent applies, repairs, resumes and
// removes objects as it does without, and creates nothing twice. Each failure mode has an API server of its own,
// and takes about 20 s, and 30 s more for each subject whose request hangs.
func TestAgentToleratesFaults(t *testing.T) {
	t.Parallel()
	for _, mode := range apitest.FailureModes() {
		t.Run(mode.Name, func(t *testing.T) {
			t.Parallel()
			t.Log(mode.Reason)
			b := prepare(t)
			hub, atHub := mode.InjectPerSubject(b.env.Config, subject)
			local, inCluster := mode.InjectPerSubject(b.local(), subject)
			b.runBetween(t, hub, local)
			b.testLifecycle(t)
			for _, name := range failingRequests(mode.Name) {
				if atHub.Hits(name)+inCluster.Hits(name) == 0 {
					t.Errorf("%s\nno request for %s failed; failures at the hub %s, in the cluster %s", mode.Reason, name, atHub, inCluster)
				}
			}
		})
	}
}

// subject returns which objects of an agent a request is for.
func subject(r *http.Request) string {
	ns, resource := apitest.RequestResource(r)
	switch {
	case resource == "works" || resource == "appliedworks":
		return resource
	case resource == "secrets" && ns == clusterNamespace:
		return "data"
	case resource == "secrets" && ns == v1alpha1.SecretCopyNamespace:
		return "copies"
	case resource == "configmaps" || resource == "secrets":
		return "objects"
	}
	return "other"
}

// failingRequests returns the requests that must fail in a failure mode.
func failingRequests(mode string) []string {
	switch mode {
	case "WriteHangs":
		return []string{"works", "appliedworks", "objects", "copies"}
	case "ReadHangs":
		return []string{"data", "copies", "objects"}
	case "Unread":
		return []string{"data GET", "copies GET", "objects GET"}
	case "WatchCut", "WatchLate":
		return []string{"works GET", "objects GET"} // the agent does not watch records
	}
	return []string{
		"works PATCH", "appliedworks POST", "appliedworks PUT", "appliedworks DELETE",
		"objects PATCH", "objects DELETE", "copies POST", "copies PUT",
	}
}

// testLifecycle has the agent create, change, repair and remove a ConfigMap and a Secret, and keep another object
// for a restored hub.
func (b *testAgent) testLifecycle(t *testing.T) {
	t.Helper()
	b.data(t, "v1", "first")
	w := b.work(t, "life", nil, manifest(t, "configmaps", configMap("life", "first")))
	s := b.work(t, "db", nil, secret(t, "v1"))
	created, secretCreated := b.await(t, "first", ""), b.awaitSecret(t, "first", "")
	b.data(t, "v2", "second")
	b.change(t, w, func(s *v1alpha1.WorkSpec) {
		s.Manifests[0] = manifest(t, "configmaps", configMap("life", "second"))
	})
	b.change(t, s, func(s *v1alpha1.WorkSpec) { s.Manifests[0] = secret(t, "v2") })
	if changed := b.await(t, "second", ""); changed.GetUID() != created.GetUID() {
		t.Errorf("UID: got %s, want %s: the object must be changed, not recreated", changed.GetUID(), created.GetUID())
	}
	if changed := b.awaitSecret(t, "second", ""); changed.GetUID() != secretCreated.GetUID() {
		t.Errorf("UID: got %s, want %s: the Secret must be changed, not recreated", changed.GetUID(), secretCreated.GetUID())
	}
	b.awaitWork(t, w, "the second revision is applied", applied(2))
	b.awaitWork(t, s, "the second data are applied", applied(2))
	eventually(t, "the second data are copied", func() error {
		o := &corev1.Secret{}
		err := b.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.SecretCopyNamespace, Name: s.Name}, o)
		if err != nil || string(o.Data["password"]) != secretDataFrom("second") || o.Annotations[v1alpha1.DataVersionAnnotation] != "v2" {
			return fmt.Errorf("got version %q, %w", o.Annotations[v1alpha1.DataVersionAnnotation], err)
		}
		return nil
	})
	if err := errors.Join(b.Delete(t.Context(), created), b.Delete(t.Context(), secretCreated)); err != nil {
		t.Fatal(err)
	}
	repaired := b.await(t, "second", created.GetUID())
	b.awaitWork(t, w, "the repair is reported", func(s v1alpha1.WorkStatus) bool {
		return applied(2)(s) && s.Manifests[0].UID == repaired.GetUID()
	})
	b.awaitSecret(t, "second", secretCreated.GetUID())
	b.resume(t)
	b.noLeaks(t)
	b.remove(t, w, s)
}

// resume has the agent halt the Work of a restored hub, and answers it.
func (b *testAgent) resume(t *testing.T) {
	t.Helper()
	w := b.place(t, "back", atPosition("hub-1", 5, 10))
	uid := b.value(t, "back", "v")
	b.restore(t, w, "restored", atPosition("hub-1", 5, 7))
	b.answer(t, w, v1alpha1.TakeHub)
	b.awaitWork(t, w, "the answered Work is applied", applied(7))
	if got := b.value(t, "back", "restored"); got != uid {
		t.Errorf("UID: got %s, want %s: the object must be changed, not recreated", got, uid)
	}
}

// remove has the agent remove the ConfigMap, which a finalizer blocks for some time, and the Secret.
func (b *testAgent) remove(t *testing.T, w, secret *v1alpha1.Work) {
	t.Helper()
	b.patch(t, b.object(t, "v1", "ConfigMap", "default", "life"), `{"metadata":{"finalizers":["example.com/held"]}}`)
	b.order(t, w)
	b.order(t, secret)
	b.awaitWork(t, w, "the removal is blocked", failed(v1alpha1.ReasonRemovalBlocked, "example.com/held"))
	b.awaitWork(t, secret, "the Secret is removed", failed(v1alpha1.ReasonRemoved, ""))
	if b.object(t, "v1", "Secret", "default", "db") != nil {
		t.Error("the Secret exists, although the removal is reported")
	}
	b.patch(t, b.object(t, "v1", "ConfigMap", "default", "life"), `{"metadata":{"finalizers":null}}`)
	b.awaitWork(t, w, "the order is carried out", failed(v1alpha1.ReasonRemoved, ""))
	if b.object(t, "v1", "ConfigMap", "default", "life") != nil {
		t.Error("the object exists, although the removal is reported")
	}
	for _, name := range []string{w.Name, secret.Name} {
		eventually(t, "the record "+name+" to go", func() error {
			if b.object(t, v1alpha1.SchemeGroupVersion().String(), "AppliedWork", "", name) != nil {
				return errors.New("it is still there")
			}
			return nil
		})
	}
}

// await waits until the object has the value and another UID.
func (b *testAgent) await(t *testing.T, value string, not types.UID) *unstructured.Unstructured {
	t.Helper()
	var found *unstructured.Unstructured
	eventually(t, "the object to have "+value, func() error {
		found = b.object(t, "v1", "ConfigMap", "default", "life")
		if got := field(found, "data", "key"); got != value || found.GetUID() == not {
			return fmt.Errorf("got %s", got)
		}
		return nil
	})
	return found
}

// secretPart is a part of all data of the Secret, which must be in Secrets only.
const secretPart = "correct horse battery staple "

func secretDataFrom(value string) string { return secretPart + value }

// secret returns the manifest of a Secret with a version of its data.
func secret(t *testing.T, version string) v1alpha1.Manifest {
	t.Helper()
	m := manifest(t, "secrets", "{apiVersion: v1, kind: Secret, metadata: {name: db, namespace: default}}")
	m.Secret = &v1alpha1.SecretData{Version: version}
	return m
}

// data stores the Secret's data beside its Work, as the hub does.
func (b *testAgent) data(t *testing.T, version, value string) {
	t.Helper()
	o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: clusterNamespace, Name: "db"}}
	err := b.Get(t.Context(), client.ObjectKeyFromObject(o), o)
	missing := apierrors.IsNotFound(err)
	o.Annotations, o.Data = map[string]string{v1alpha1.DataVersionAnnotation: version}, map[string][]byte{"password": []byte(secretDataFrom(value))}
	switch {
	case missing:
		err = b.Create(t.Context(), o)
	case err == nil:
		err = b.Update(t.Context(), o)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// awaitSecret waits until the Secret has the value and another UID.
func (b *testAgent) awaitSecret(t *testing.T, value string, not types.UID) *unstructured.Unstructured {
	t.Helper()
	var found *unstructured.Unstructured
	eventually(t, "the Secret to have "+value, func() error {
		found = b.object(t, "v1", "Secret", "default", "db")
		if got := field(found, "data", "password"); got != base64.StdEncoding.EncodeToString([]byte(secretDataFrom(value))) || found.GetUID() == not {
			return fmt.Errorf("got %s", got)
		}
		return nil
	})
	return found
}

// noLeaks fails when a Secret's value is in a Work, a record or an Event.
func (b *testAgent) noLeaks(t *testing.T) {
	t.Helper()
	encoded := base64.StdEncoding.EncodeToString([]byte(secretPart[:27])) // complete groups of base64, which do not depend on what follows
	for _, list := range []client.ObjectList{&v1alpha1.WorkList{}, &v1alpha1.AppliedWorkList{}, &corev1.EventList{}} {
		if err := b.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(raw, []byte(secretPart)) || bytes.Contains(raw, []byte(encoded)) {
			t.Errorf("%T: a Secret's value is in it", list)
		}
	}
}
