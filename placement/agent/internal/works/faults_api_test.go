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

// Whatever fails between an agent and its hub, and between it and its cluster, it applies,
// repairs, resumes and removes as it does without, and makes nothing twice. Each trouble has an API
// server of its own: about 20 s each, and 30 s for each subject whose request hangs.
func TestAgentMeetsFaults(t *testing.T) {
	t.Parallel()
	for _, trouble := range apitest.FailureModes() {
		t.Run(trouble.Name, func(t *testing.T) {
			t.Parallel()
			t.Log(trouble.Reason)
			b := prepare(t)
			hub, atHub := trouble.InjectPerSubject(b.env.Config, subject)
			local, inCluster := trouble.InjectPerSubject(b.local(), subject)
			b.runBetween(t, hub, local)
			b.live(t)
			for _, name := range struck(trouble.Name) {
				if atHub.Hits(name)+inCluster.Hits(name) == 0 {
					t.Errorf("%s\nno request for %s was hit, so that nothing is proven of them; at the hub %s, in the cluster %s", trouble.Reason, name, atHub, inCluster)
				}
			}
		})
	}
}

// subject is what of an agent's work a request is for.
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

// struck are the requests that a trouble must hit.
func struck(trouble string) []string {
	switch trouble {
	case "WriteHangs":
		return []string{"works", "appliedworks", "objects", "copies"}
	case "ReadHangs":
		return []string{"data", "copies", "objects"}
	case "Unread":
		return []string{"data GET", "copies GET", "objects GET"}
	case "WatchCut", "WatchLate":
		return []string{"works GET", "objects GET"} // nobody watches records
	}
	return []string{
		"works PATCH", "appliedworks POST", "appliedworks PUT", "appliedworks DELETE",
		"objects PATCH", "objects DELETE", "copies POST", "copies PUT",
	}
}

// live has a ConfigMap and a Secret made, changed, repaired and removed, and another object kept
// and given to a hub that was restored.
func (b *bench) live(t *testing.T) {
	t.Helper()
	b.data(t, "v1", "first")
	w := b.work(t, "life", nil, manifest(t, "configmaps", configMap("life", "first")))
	s := b.work(t, "db", nil, secret(t, "v1"))
	made, secretMade := b.await(t, "first", ""), b.awaitSecret(t, "first", "")
	b.data(t, "v2", "second")
	b.change(t, w, func(s *v1alpha1.WorkSpec) {
		s.Manifests[0] = manifest(t, "configmaps", configMap("life", "second"))
	})
	b.change(t, s, func(s *v1alpha1.WorkSpec) { s.Manifests[0] = secret(t, "v2") })
	if changed := b.await(t, "second", ""); changed.GetUID() != made.GetUID() {
		t.Errorf("UID: got %s, want %s: the object is changed, not made again", changed.GetUID(), made.GetUID())
	}
	if changed := b.awaitSecret(t, "second", ""); changed.GetUID() != secretMade.GetUID() {
		t.Errorf("UID: got %s, want %s: the Secret is changed, not made again", changed.GetUID(), secretMade.GetUID())
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
	if err := errors.Join(b.Delete(t.Context(), made), b.Delete(t.Context(), secretMade)); err != nil {
		t.Fatal(err)
	}
	repaired := b.await(t, "second", made.GetUID())
	b.awaitWork(t, w, "the repair is reported", func(s v1alpha1.WorkStatus) bool {
		return applied(2)(s) && s.Manifests[0].UID == repaired.GetUID()
	})
	b.awaitSecret(t, "second", secretMade.GetUID())
	b.resume(t)
	b.noLeaks(t)
	b.end(t, w, s)
}

// resume has a Work halted, since its hub was restored, and answered.
func (b *bench) resume(t *testing.T) {
	t.Helper()
	w := b.made(t, "back", signed("hub-1", 5, 10))
	uid := b.value(t, "back", "v")
	b.restore(t, w, "restored", signed("hub-1", 5, 7))
	b.answer(t, w, v1alpha1.TakeHub)
	b.awaitWork(t, w, "the answered Work is applied", applied(7))
	if got := b.value(t, "back", "restored"); got != uid {
		t.Errorf("UID: got %s, want %s: the object is changed, not made again", got, uid)
	}
}

// end has the ConfigMap, which a finalizer holds for a while, and the Secret removed.
func (b *bench) end(t *testing.T, w, secret *v1alpha1.Work) {
	t.Helper()
	b.patch(t, b.object(t, "v1", "ConfigMap", "default", "life"), `{"metadata":{"finalizers":["example.com/held"]}}`)
	b.order(t, w)
	b.order(t, secret)
	b.awaitWork(t, w, "the removal is held", failed(v1alpha1.ReasonRemovalBlocked, "example.com/held"))
	b.awaitWork(t, secret, "the Secret is removed", failed(v1alpha1.ReasonRemoved, ""))
	if b.object(t, "v1", "Secret", "default", "db") != nil {
		t.Error("the Secret is still there, and the hub was told that it is not")
	}
	b.patch(t, b.object(t, "v1", "ConfigMap", "default", "life"), `{"metadata":{"finalizers":null}}`)
	b.awaitWork(t, w, "the order is carried out", failed(v1alpha1.ReasonRemoved, ""))
	if b.object(t, "v1", "ConfigMap", "default", "life") != nil {
		t.Error("the object is still there, and the hub was told that it is not")
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

// await waits until the object has the value, and not the UID.
func (b *bench) await(t *testing.T, value string, not types.UID) *unstructured.Unstructured {
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

// secretPart is in all data of the Secret, and must be in Secrets only.
const secretPart = "correct horse battery staple "

func secretDataFrom(value string) string { return secretPart + value }

// secret is the manifest of a Secret whose data have a version.
func secret(t *testing.T, version string) v1alpha1.Manifest {
	t.Helper()
	m := manifest(t, "secrets", "{apiVersion: v1, kind: Secret, metadata: {name: db, namespace: default}}")
	m.Secret = &v1alpha1.SecretData{Version: version}
	return m
}

// data puts the Secret's data beside its Work, as the hub does.
func (b *bench) data(t *testing.T, version, value string) {
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

// awaitSecret waits until the Secret has the value, and not the UID.
func (b *bench) awaitSecret(t *testing.T, value string, not types.UID) *unstructured.Unstructured {
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
func (b *bench) noLeaks(t *testing.T) {
	t.Helper()
	encoded := base64.StdEncoding.EncodeToString([]byte(secretPart[:27])) // whole groups: what follows changes nothing
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
