// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// awaitPolicies waits until all admission policies are in force. The API server takes
// them over some time after they were created and does not say when. So one more is
// created after them, that refuses one certain object: once that is refused, all are.
func awaitPolicies(ctx context.Context, c client.Client) error {
	const name = "apitest-sentinel"
	meta := metav1.ObjectMeta{Name: name}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: sentinel(name)}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: meta,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        name,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	for _, o := range []client.Object{policy, binding} {
		if err := c.Create(ctx, o); err != nil {
			return fmt.Errorf("install sentinel policy: %w", err)
		}
	}
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault}}
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		err := c.Create(ctx, probe.DeepCopy(), client.DryRunAll)
		if apierrors.IsInvalid(err) {
			return true, nil
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("await policies: %w", err)
	}
	return nil
}

// sentinel refuses the one ConfigMap of this name.
func sentinel(name string) admissionv1.ValidatingAdmissionPolicySpec {
	rule := admissionv1.NamedRuleWithOperations{ResourceNames: []string{name}}
	rule.Operations = []admissionv1.OperationType{admissionv1.Create}
	rule.APIGroups, rule.APIVersions, rule.Resources = []string{""}, []string{"v1"}, []string{"configmaps"}
	return admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{rule}},
		Validations:      []admissionv1.Validation{{Expression: "false", Message: "the policies are in force"}},
	}
}
