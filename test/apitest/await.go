// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Pause returns how long to wait before the next look at something awaited since began: a tenth of the
// wait so far, from 20 ms to half a second. So a long wait takes little processor time from other tests.
func Pause(began time.Time) time.Duration {
	return min(max(time.Since(began)/10, pollInterval), time.Second/2)
}

// poll asks until there is no error any more, or ctx ends.
func poll(ctx context.Context, what string, ask func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		last = ask(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("await %s: %w (last: %w)", what, err, last)
	}
	return nil
}

// awaitDefinitionsServed waits until the API server serves all kinds that are defined, and names them
// to who asks what there is: it does both some time after it called them established.
func awaitDefinitionsServed(ctx context.Context, config *rest.Config, c client.Client) error {
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("make discovery client: %w", err)
	}
	var definitions apiextensionsv1.CustomResourceDefinitionList
	if err := c.List(ctx, &definitions); err != nil {
		return fmt.Errorf("list definitions: %w", err)
	}
	return poll(ctx, "what is defined", func(ctx context.Context) error {
		_, lists, err := d.ServerGroupsAndResources()
		if err != nil {
			return fmt.Errorf("ask what is served: %w", err)
		}
		named := map[string]bool{}
		for _, l := range lists {
			for i := range l.APIResources {
				named[l.GroupVersion+" "+l.APIResources[i].Kind] = true
			}
		}
		for i := range definitions.Items {
			if err := checkDefinitionServed(ctx, c, &definitions.Items[i], named); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkDefinitionServed says what is missing of one kind.
func checkDefinitionServed(ctx context.Context, c client.Client, d *apiextensionsv1.CustomResourceDefinition, named map[string]bool) error {
	version := schema.GroupVersion{Group: d.Spec.Group, Version: d.Spec.Versions[0].Name}
	if key := version.String() + " " + d.Spec.Names.Kind; !named[key] {
		return fmt.Errorf("%s is not among what is served", key)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(version.WithKind(d.Spec.Names.ListKind))
	if err := c.List(ctx, list, client.Limit(1)); err != nil {
		return fmt.Errorf("list %s: %w", d.Name, err)
	}
	return nil
}

// awaitRBAC waits until the API server knows the rights of our accounts: its authorizer,
// too, hears of them some time after they were stored.
func awaitRBAC(ctx context.Context, c client.Client) error {
	objects, err := readClusterManifests()
	if err != nil {
		return err
	}
	open, err := accessReviews(objects)
	if err != nil {
		return err
	}
	return poll(ctx, "the rights of our accounts", func(ctx context.Context) error {
		for i := range open {
			if err := checkAllowed(ctx, c, open[i].DeepCopy()); err != nil {
				return err
			}
		}
		return nil
	})
}

func checkAllowed(ctx context.Context, c client.Client, review *authv1.SubjectAccessReview) error {
	if err := c.Create(ctx, review); err != nil {
		return fmt.Errorf("ask for rights: %w", err)
	}
	if !review.Status.Allowed {
		return fmt.Errorf("%s may not %v", review.Spec.User, review.Spec.ResourceAttributes)
	}
	return nil
}

// accessReviews are all that manifests give to service accounts, as questions.
func accessReviews(objects []*unstructured.Unstructured) ([]authv1.SubjectAccessReview, error) {
	rules := map[string][]rbacv1.PolicyRule{}
	for _, o := range objects {
		if kind := o.GetKind(); kind != "ClusterRole" && kind != "Role" {
			continue
		}
		role := rbacv1.Role{} // a ClusterRole has the same rules
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		rules[o.GetKind()+o.GetNamespace()+"/"+o.GetName()] = role.Rules
	}
	var all []authv1.SubjectAccessReview
	for _, o := range objects {
		if !strings.HasSuffix(o.GetKind(), "RoleBinding") {
			continue
		}
		b := rbacv1.RoleBinding{} // and a ClusterRoleBinding the same fields
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &b); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		key := b.RoleRef.Kind + "/" + b.RoleRef.Name
		if b.RoleRef.Kind == "Role" {
			key = b.RoleRef.Kind + b.Namespace + "/" + b.RoleRef.Name
		}
		for _, s := range b.Subjects {
			if s.Kind == rbacv1.ServiceAccountKind {
				all = append(all, bindingReviews(&b, "system:serviceaccount:"+s.Namespace+":"+s.Name, rules[key])...)
			}
		}
	}
	return all, nil
}

// bindingReviews ask for one right of each rule.
func bindingReviews(b *rbacv1.RoleBinding, user string, rules []rbacv1.PolicyRule) []authv1.SubjectAccessReview {
	var all []authv1.SubjectAccessReview
	for _, r := range rules {
		if len(r.Resources) == 0 {
			continue
		}
		what := &authv1.ResourceAttributes{Namespace: b.Namespace, Verb: r.Verbs[0], Group: r.APIGroups[0]}
		what.Resource, what.Subresource, _ = strings.Cut(r.Resources[0], "/")
		if len(r.ResourceNames) > 0 {
			what.Name = r.ResourceNames[0]
		}
		all = append(all, authv1.SubjectAccessReview{Spec: authv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: what}})
	}
	return all
}

// awaitPolicies waits until all admission policies are in force. The API server takes
// them over some time after they were created and does not say when. So one more is
// created after them, that refuses one certain object: once that is refused, all are.
func awaitPolicies(ctx context.Context, c client.Client) error {
	const name = "apitest-sentinel"
	meta := metav1.ObjectMeta{Name: name}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: sentinelPolicy(name)}
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

// sentinelPolicy refuses the one ConfigMap of this name.
func sentinelPolicy(name string) admissionv1.ValidatingAdmissionPolicySpec {
	rule := admissionv1.NamedRuleWithOperations{ResourceNames: []string{name}}
	rule.Operations = []admissionv1.OperationType{admissionv1.Create}
	rule.APIGroups, rule.APIVersions, rule.Resources = []string{""}, []string{"v1"}, []string{"configmaps"}
	return admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{rule}},
		Validations:      []admissionv1.Validation{{Expression: "false", Message: "the policies are in force"}},
	}
}

// awaitDefinitions waits until all resource definitions are served.
func awaitDefinitions(ctx context.Context, c client.Client) error {
	var last string
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		var list apiextensionsv1.CustomResourceDefinitionList
		if err := c.List(ctx, &list); err != nil {
			return false, fmt.Errorf("list definitions: %w", err)
		}
		for _, d := range list.Items {
			if !established(d) {
				last = d.Name
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("await definition %s: %w", last, err)
	}
	return nil
}

func established(d apiextensionsv1.CustomResourceDefinition) bool {
	for _, condition := range d.Status.Conditions {
		if condition.Type == apiextensionsv1.Established {
			return condition.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}
