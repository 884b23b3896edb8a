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
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// password must be in Secrets only.
const password = "correct horse battery staple"

// expectNoLeak fails when the password is in Works, Assignments or Events.
func (h *testHub) expectNoLeak() {
	h.t.Helper()
	for _, list := range []client.ObjectList{&v1alpha1.WorkList{}, &v1alpha1.AssignmentList{}, &v1alpha1.CustomizationList{}, &corev1.EventList{}} {
		if err := h.client.List(h.t.Context(), list); err != nil {
			h.t.Fatal(err)
		}
		raw, err := json.Marshal(list)
		if err != nil {
			h.t.Fatal(err)
		}
		for _, text := range []string{password, base64.StdEncoding.EncodeToString([]byte(password))} {
			if at := strings.Index(string(raw), text); at >= 0 {
				h.t.Errorf("%T: a Secret's value is in it: ...%s...", list, raw[max(0, at-300):at])
			}
		}
	}
}

// The data of a Secret go to clusters in Secrets alone: users who read Works, or a backup of them, do not
// see the data.
func TestSecretsTravelAsSecrets(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("secrets")
	h.cluster("secrets-east", v1alpha1.ClusterSpec{})
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "db", Annotations: map[string]string{
			v1alpha1.ClustersAnnotation: "secrets-east", corev1.LastAppliedConfigAnnotation: `{"stringData":{"password":"` + password + `"}}`,
		}},
		StringData: map[string]string{"password": password},
	}
	h.create(secret)
	key := kinds.Key{GroupKind: schema.GroupKind{Kind: "Secret"}, Namespace: ns, Name: "db"}
	beside, work := &corev1.Secret{}, &v1alpha1.Work{}
	sent := func(value, not string) {
		t.Helper()
		h.eventually("the data beside the Work", func(ctx context.Context) error {
			if err := h.client.Get(ctx, key.Work("secrets-east"), work); err != nil {
				return err
			}
			if err := h.client.Get(ctx, key.Work("secrets-east"), beside); err != nil {
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
	h.setAnnotation(secret, "example.com/note", "other data are the same")
	h.eventually("the annotation in the Work", func(ctx context.Context) error {
		if err := h.client.Get(ctx, key.Work("secrets-east"), work); err != nil || work.Spec.Revision == revision {
			return errors.Join(errNotYet, err)
		}
		return nil
	})
	if sent(password, ""); beside.Annotations[v1alpha1.DataVersionAnnotation] != first {
		t.Error("unchanged data have another version")
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"stringData":{"password":"`+password+`!"}}`))
	if err := h.client.Patch(t.Context(), secret, patch); err != nil {
		t.Fatal(err)
	}
	sent(password+"!", first)
	h.expectNoLeak()

	for name, rule := range map[string]v1alpha1.Rule{
		"copies": {Path: `metadata.annotations["a"]`, CEL: "string(object.data.password)"},
		"sets":   {Path: "data.password", CEL: `"eA=="`},
		"tells":  {Path: "metadata.labels.a", CEL: "string(int(object.data.password))"},
	} {
		c := &v1alpha1.Customization{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Spec:       v1alpha1.CustomizationSpec{Match: v1alpha1.CustomizationMatch{Kinds: []v1alpha1.KindName{"Secret"}}, Rules: []v1alpha1.Rule{rule}},
		}
		h.create(c)
		text := "no such key: data"
		if name == "sets" {
			text = "Customizations must not set data"
		}
		h.expectReported(key, v1alpha1.ConditionRendered, v1alpha1.ReasonInvalidRule, text)
		sent(password+"!", first)
		h.expectNoLeak()
		if err := h.client.Delete(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		h.expectReported(key, v1alpha1.ConditionRendered, v1alpha1.ReasonAsExpected, "")
	}

	// A hub that was killed after it had written the data, and before their Work, leaves this Secret.
	orphan := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Work("secrets-west").Namespace, Name: beside.Name, Labels: beside.Labels}, Data: beside.Data,
	}
	h.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: orphan.Namespace}})
	h.create(orphan)
	if err := h.client.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{work, beside, orphan} {
		at := client.ObjectKeyFromObject(o)
		h.eventually("the cluster's namespace to have no Secret", func(ctx context.Context) error {
			if err := h.client.Get(ctx, at, o); !apierrors.IsNotFound(err) {
				return errors.Join(errNotYet, err)
			}
			return nil
		})
	}
}

// The token of a ServiceAccount is valid at the hub only, and is not placed.
func TestTokensStayAtTheHub(t *testing.T) {
	h := newTestHub(t)
	ns := h.namespace("tokens")
	h.cluster("tokens-east", v1alpha1.ClusterSpec{})
	h.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ci"}})
	h.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ci", Annotations: map[string]string{
			v1alpha1.ClustersAnnotation: "tokens-east", corev1.ServiceAccountNameKey: "ci",
		}},
		Type: corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{"token": []byte(password)},
	})
	key := kinds.Key{GroupKind: schema.GroupKind{Kind: "Secret"}, Namespace: ns, Name: "ci"}
	h.expectReported(key, v1alpha1.ConditionRendered, v1alpha1.ReasonNotPlaceable, "type: must not be kubernetes.io/service-account-token")
	if err := h.client.Get(t.Context(), key.Work("tokens-east"), &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v: the token was sent", err)
	}
	h.expectNoLeak()
}
