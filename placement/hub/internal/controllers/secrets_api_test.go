// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controllers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// password is what must be in Secrets only.
const password = "correct horse battery staple"

// leaks fails when a password is in Works, Assignments or Events.
func (b *bench) leaks() {
	b.t.Helper()
	for _, list := range []client.ObjectList{&v1alpha1.WorkList{}, &v1alpha1.AssignmentList{}, &v1alpha1.CustomizationList{}, &corev1.EventList{}} {
		if err := b.client.List(b.t.Context(), list); err != nil {
			b.t.Fatal(err)
		}
		raw, err := json.Marshal(list)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, text := range []string{password, base64.StdEncoding.EncodeToString([]byte(password))} {
			if at := strings.Index(string(raw), text); at >= 0 {
				b.t.Errorf("%T: a Secret's value is in it: ...%s...", list, raw[max(0, at-300):at])
			}
		}
	}
}

// Data of a Secret go to clusters in Secrets alone: those who read Works, and a backup of
// them, do not see them.
func TestSecretsTravelAsSecrets(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("secrets")
	b.cluster("secrets-east", v1alpha1.ClusterSpec{})
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "db", Annotations: map[string]string{
			v1alpha1.ClustersAnnotation: "secrets-east", corev1.LastAppliedConfigAnnotation: `{"stringData":{"password":"` + password + `"}}`,
		}},
		StringData: map[string]string{"password": password},
	}
	b.create(secret)
	key := Key{GroupKind: schema.GroupKind{Kind: "Secret"}, Namespace: ns, Name: "db"}
	beside, work := &corev1.Secret{}, &v1alpha1.Work{}
	sent := func(value, not string) {
		t.Helper()
		b.eventually("the data beside the Work", func(ctx context.Context) error {
			if err := b.client.Get(ctx, key.work("secrets-east"), work); err != nil {
				return err
			}
			if err := b.client.Get(ctx, key.work("secrets-east"), beside); err != nil {
				return err
			}
			version := beside.Annotations[v1alpha1.DataVersionAnnotation]
			if ref := work.Spec.Manifests[0].Secret; string(beside.Data["password"]) != value || version == not || ref == nil || ref.Version != version {
				return fmt.Errorf("%w: version %s, Work %s", errNotYet, version, work.Spec.Manifests[0].Object.Raw)
			}
			return nil
		})
	}
	sent(password, "")
	first, revision := beside.Annotations[v1alpha1.DataVersionAnnotation], work.Spec.Revision
	b.mark(secret, "example.com/note", "other data are the same")
	b.eventually("the note in the Work", func(ctx context.Context) error {
		if err := b.client.Get(ctx, key.work("secrets-east"), work); err != nil || work.Spec.Revision == revision {
			return errors.Join(errNotYet, err)
		}
		return nil
	})
	if sent(password, ""); beside.Annotations[v1alpha1.DataVersionAnnotation] != first {
		t.Error("the same data have another version")
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"stringData":{"password":"`+password+`!"}}`))
	if err := b.client.Patch(t.Context(), secret, patch); err != nil {
		t.Fatal(err)
	}
	sent(password+"!", first)
	b.leaks()

	for name, rule := range map[string]v1alpha1.Rule{
		"copies": {Path: `metadata.annotations["a"]`, CEL: "string(object.data.password)"},
		"sets":   {Path: "data.password", CEL: `"eA=="`},
		"tells":  {Path: "metadata.labels.a", CEL: "string(int(object.data.password))"},
	} {
		c := &v1alpha1.Customization{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Spec:       v1alpha1.CustomizationSpec{Match: v1alpha1.CustomizationMatch{Kinds: []v1alpha1.KindName{"Secret"}}, Rules: []v1alpha1.Rule{rule}},
		}
		b.create(c)
		text := "no such key: data"
		if name == "sets" {
			text = "Customizations must not set data"
		}
		b.says(key, v1alpha1.ConditionRendered, v1alpha1.ReasonInvalidRule, text)
		sent(password+"!", first)
		b.leaks()
		if err := b.client.Delete(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		b.says(key, v1alpha1.ConditionRendered, v1alpha1.ReasonAsExpected, "")
	}

	// A hub that ended between the data and their Work has left this.
	orphan := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.work("secrets-west").Namespace, Name: beside.Name, Labels: beside.Labels}, Data: beside.Data,
	}
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: orphan.Namespace}})
	b.create(orphan)
	if err := b.client.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{work, beside, orphan} {
		at := client.ObjectKeyFromObject(o)
		b.eventually("nothing is left in the cluster's namespace", func(ctx context.Context) error {
			if err := b.client.Get(ctx, at, o); !apierrors.IsNotFound(err) {
				return errors.Join(errNotYet, err)
			}
			return nil
		})
	}
}

// The token of an account of the hub is good for the hub, so it stays there.
func TestTokensStayAtTheHub(t *testing.T) {
	b := newBench(t)
	ns := b.namespace("tokens")
	b.cluster("tokens-east", v1alpha1.ClusterSpec{})
	b.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ci"}})
	b.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ci", Annotations: map[string]string{
			v1alpha1.ClustersAnnotation: "tokens-east", corev1.ServiceAccountNameKey: "ci",
		}},
		Type: corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{"token": []byte(password)},
	})
	key := Key{GroupKind: schema.GroupKind{Kind: "Secret"}, Namespace: ns, Name: "ci"}
	b.says(key, v1alpha1.ConditionRendered, v1alpha1.ReasonNotPlaceable, "type: a ServiceAccount's token")
	if err := b.client.Get(t.Context(), key.work("tokens-east"), &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v: the token was sent", err)
	}
	b.leaks()
}
