// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package operator

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/operator/internal/apply"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
)

const (
	policyKind  = "ValidatingAdmissionPolicy"
	bindingKind = "ValidatingAdmissionPolicyBinding"
	webhookKind = "ValidatingWebhookConfiguration"
	mutateKind  = "MutatingWebhookConfiguration"
)

// addition is a JSON patch of an object that weakens it.
type addition struct{ reason, kind, name, patch string }

func additions() []addition {
	const (
		never  = `{"op": "add", "path": "/spec/matchConditions/-", "value": {"name": "never", "expression": "false"}}`
		forged = `{"op": "replace", "path": "/metadata/managedFields", "value": [{"manager": "x", "operation": "Update",
			"apiVersion": "admissionregistration.k8s.io/v1", "fieldsType": "FieldsV1", "fieldsV1": {}}]}`
	)
	return []addition{
		{"a match condition disables a policy", policyKind, "node-danmeps.danm.io", "[" + never + "]"},
		{"managedFields are what the client says", policyKind, "node-nodenetworks.danm.io", "[" + never + "," + forged + "]"},
		{
			"a binding for few objects is none for the others", bindingKind, "node-danmeps.danm.io",
			`[{"op": "add", "path": "/spec/matchResources", "value": {"objectSelector": {"matchLabels": {"a": "b"}}}}]`,
		},
		{
			"a webhook is not called for objects that no selector matches", mutateKind, "patchbay",
			`[{"op": "add", "path": "/webhooks/0/objectSelector", "value": {"matchLabels": {"a": "b"}}},
			  {"op": "add", "path": "/webhooks/0/matchConditions/-", "value": {"name": "never", "expression": "false"}}]`,
		},
	}
}

// certificates is what the controller writes into a webhook, and what a user adds.
const certificates = `[{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "eA=="},
	{"op": "add", "path": "/webhooks/0/clientConfig/service/path", "value": "/token"},
	{"op": "add", "path": "/webhooks/0/timeoutSeconds", "value": 1},
	{"op": "add", "path": "/metadata/labels/team", "value": "network"}]`

// A field that another manager adds to a policy, its binding or a webhook weakens it. The operator removes it, although
// no client has changed what the operator has set. What the controller writes into webhooks stays, and so do the labels of people.
func TestAdditionsAreRemoved(t *testing.T) {
	c := newCluster(t)
	c.write(t, "{}")
	count := &killer{done: map[string]int{}, spare: true}
	p := c.newPass(t, count)
	p.run(t)
	before := c.applied(t)
	cases := additions()
	for _, tc := range cases {
		c.Kubectl(t, "patch", tc.kind, tc.name, "--type=json", "--field-manager=other", "-p", tc.patch)
	}
	c.Kubectl(t, "patch", webhookKind, "patchbay", "--type=json", "--field-manager=controller", "-p", certificates)
	p.run(t)
	after := c.applied(t)
	for _, tc := range cases {
		key := tc.kind + " /" + tc.name
		if diff := cmp.Diff(before[key], after[key]); diff != "" {
			t.Errorf("%s, and must be removed (-before +after):\n%s", tc.reason, diff)
		}
	}
	hooks := &admissionv1.ValidatingWebhookConfiguration{}
	if err := c.admin.Get(t.Context(), client.ObjectKey{Name: "patchbay"}, hooks); err != nil {
		t.Fatal(err)
	}
	if got := hooks.Webhooks[0].ClientConfig; len(got.CABundle) == 0 || got.Service.Path == nil || *got.Service.Path != "/token" || hooks.Labels["team"] != "network" {
		t.Errorf("labels %v, client %+v, want the label, the certificate authority and the path that others have set", hooks.Labels, got)
	}
	clear(count.done)
	p.run(t)
	if len(count.done) > 0 {
		t.Errorf("an operator that has nothing to do writes %v", count.done)
	}
}

// An operator that starts repairs its own binding that another client has changed meanwhile: that is no other installation.
func TestChangedBindingIsRepaired(t *testing.T) {
	c := newCluster(t)
	c.write(t, "{}")
	c.newPass(t, nil).run(t)
	c.Kubectl(t, "patch", "clusterrolebinding", "patchbayd", "--type=json", "-p",
		`[{"op": "add", "path": "/subjects/-", "value": {"kind": "ServiceAccount", "name": "x", "namespace": "x"}}]`)
	c.newPass(t, nil).run(t)
	binding := &rbacv1.ClusterRoleBinding{}
	if err := c.admin.Get(t.Context(), client.ObjectKey{Name: "patchbayd"}, binding); err != nil {
		t.Fatal(err)
	}
	if len(binding.Subjects) != 1 {
		t.Errorf("subjects %v, want the node daemon's only", binding.Subjects)
	}
}

// An object that looks like one of an earlier version and that the operator may not delete stops nothing.
func TestForgedObjectStopsNothing(t *testing.T) {
	c := newCluster(t)
	forged := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{
		Name: "forged", Labels: map[string]string{render.InstallationLabel: v1alpha1.InstallationName},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: render.Manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "rbac.authorization.k8s.io/v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:x":{}}}}`),
		}},
	}}
	if err := c.admin.Create(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	c.deleteAfter(t, forged)
	if !apply.IsApplied(forged) {
		t.Fatalf("the API server does not keep managedFields %v", forged.ManagedFields)
	}
	c.write(t, "{}")
	c.newPass(t, nil).run(t)
	c.await(t, v1alpha1.ConditionApplied, v1alpha1.ReasonApplied)
}

// A template that only the API server can reject is rejected before anything is changed.
func TestRejectedTemplateChangesNothing(t *testing.T) {
	c := newCluster(t)
	c.write(t, "{}")
	p := c.newPass(t, nil)
	p.run(t)
	before := c.applied(t)
	c.write(t, "{features: {tenantRoles: false}, parts: {controller: {template: {spec: {containers: [{name: x}]}}}}}")
	if _, err := p.Reconcile(t.Context(), installation()); err == nil || !strings.Contains(err.Error(), "with nothing changed yet") {
		t.Errorf("got error %v, want that nothing is changed", err)
	}
	if diff := cmp.Diff(before, c.applied(t)); diff != "" {
		t.Errorf("objects are changed (-before +after):\n%s", diff)
	}
}

// A definition that is being deleted goes away with all networks, whatever is applied. The Installation names it until
// it is gone, and the operator then applies it again. All other objects are applied meanwhile: a definition is gone only
// after the node daemons have removed their finalizers.
func TestTerminatingDefinition(t *testing.T) {
	c := newCluster(t)
	ctx, finalizer := t.Context(), "example.com/slow"
	const name = "networkviews.danm.io"
	definition := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}}
	definition.Name = name
	patch := func(ctx context.Context, finalizers string) error {
		return c.admin.Patch(ctx, definition, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+finalizers+`}}`)))
	}
	if err := patch(ctx, `["`+finalizer+`"]`); err != nil {
		t.Fatal(err)
	}
	old := definition.UID
	t.Cleanup(func() { _ = patch(context.WithoutCancel(ctx), "null") })
	if err := c.admin.Delete(ctx, definition); err != nil {
		t.Fatal(err)
	}
	startWorkloads(t, c, 1)
	startOperator(t, c)
	c.write(t, "{}")
	got := c.await(t, v1alpha1.ConditionApplied, v1alpha1.ReasonTerminating)
	if got.Status != metav1.ConditionFalse || !strings.Contains(got.Message, name) || !strings.Contains(got.Message, finalizer) {
		t.Errorf("Applied: got %+v, want False with the names of definition and finalizer", got)
	}
	c.await(t, v1alpha1.ConditionNode, v1alpha1.ReasonReady)
	if got := c.await(t, v1alpha1.ConditionReady, v1alpha1.ReasonTerminating); got.Status != metav1.ConditionFalse {
		t.Errorf("Ready: got %+v", got)
	}
	if err := patch(ctx, "null"); err != nil {
		t.Fatal(err)
	}
	c.await(t, v1alpha1.ConditionApplied, v1alpha1.ReasonApplied)
	if err := c.admin.Get(ctx, client.ObjectKeyFromObject(definition), definition); err != nil || definition.UID == old || definition.DeletionTimestamp != nil {
		t.Errorf("definition %s: got UID %s of %s, %v, want another one", name, definition.UID, old, err)
	}
	c.await(t, v1alpha1.ConditionReady, v1alpha1.ReasonReady)
}
