// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	danmv1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/preflight"
)

// clusterReader reads what `preflight` checks at the API server.
type clusterReader struct {
	kube     kubernetes.Interface
	metadata metadata.Interface
}

// read reads the cluster and the nodes with the names, or all nodes. What else cannot be read becomes one of the
// cluster's Errors.
func (r clusterReader) read(ctx context.Context, names []string) (*preflight.Cluster, error) {
	version, err := r.kube.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("read the API server's version: %w", err)
	}
	c := &preflight.Cluster{Version: version.GitVersion}
	if err := r.readNodes(ctx, c, names); err != nil {
		return nil, err
	}
	for what, read := range map[string]func(context.Context, *preflight.Cluster) error{
		"the kinds that are served":     r.readResources,
		"your rights":                   r.readRights,
		"CustomResourceDefinitions":     r.readDefinitions,
		"the configuration of Cilium":   r.readCilium,
		"the configuration of webhooks": r.readWebhooks,
		"namespaces":                    r.readNamespaces,
	} {
		if err := read(ctx, c); err != nil {
			c.Errors = append(c.Errors, fmt.Sprintf("failed to read %s: %v", what, err))
		}
	}
	slices.Sort(c.Errors)
	return c, ctx.Err()
}

func (r clusterReader) readNodes(ctx context.Context, c *preflight.Cluster, names []string) error {
	list, err := r.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	missing := slices.Clone(names)
	c.AllNodes = len(list.Items)
	for i := range list.Items {
		n := &list.Items[i]
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == n.Name })
		if len(names) == 0 || slices.Contains(names, n.Name) {
			c.Nodes = append(c.Nodes, describeNode(n))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("flag --nodes: must name Nodes of the cluster: there is no %s", strings.Join(missing, ", "))
	}
	return nil
}

func describeNode(n *corev1.Node) preflight.Node {
	info := n.Status.NodeInfo
	ready := string(corev1.ConditionUnknown)
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			ready = string(c.Status)
		}
	}
	return preflight.Node{
		Name: n.Name, OS: cmp.Or(info.OperatingSystem, "linux"), Architecture: info.Architecture,
		Kernel: info.KernelVersion, Kubelet: info.KubeletVersion, Runtime: info.ContainerRuntimeVersion, Ready: ready,
	}
}

func (r clusterReader) readResources(_ context.Context, c *preflight.Cluster) error {
	for version, resources := range preflight.NeededResources() {
		list, err := r.kube.Discovery().ServerResourcesForGroupVersion(version)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		for _, name := range resources {
			served := list != nil && slices.ContainsFunc(list.APIResources, func(a metav1.APIResource) bool { return a.Name == name })
			if !served {
				c.MissingResources = append(c.MissingResources, version+" "+name)
			}
		}
	}
	slices.Sort(c.MissingResources)
	return nil
}

// readRights asks whether the user may apply what deployments/ has: create it, and patch what exists.
func (r clusterReader) readRights(ctx context.Context, c *preflight.Cluster) error {
	var rights [][3]string
	for version, resources := range preflight.NeededResources() {
		gv, err := schema.ParseGroupVersion(version)
		if err != nil {
			return err
		}
		for _, name := range resources {
			if name == "endpointslices" || name == "leases" {
				continue // the programs create these
			}
			rights = append(rights, [3]string{"create", gv.Group, name}, [3]string{"patch", gv.Group, name})
		}
	}
	for _, right := range append(rights, [][3]string{
		{"create", "", "namespaces"}, {"create", "", "serviceaccounts"}, {"create", "", "services"},
		{"patch", "", "namespaces"}, {"patch", "", "serviceaccounts"}, {"patch", "", "services"},
		// Roles with rights that the user lacks are created with escalate only.
		{"escalate", "rbac.authorization.k8s.io", "clusterroles"}, {"bind", "rbac.authorization.k8s.io", "clusterroles"},
	}...) {
		if err := r.readRight(ctx, c, right[0], right[1], right[2]); err != nil {
			return err
		}
	}
	slices.Sort(c.Forbidden)
	return nil
}

func (r clusterReader) readRight(ctx context.Context, c *preflight.Cluster, verb, group, resource string) error {
	review, err := r.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource},
		},
	}, metav1.CreateOptions{})
	if err == nil && !review.Status.Allowed {
		c.Forbidden = append(c.Forbidden, verb+" "+resource)
	}
	return err
}

func (r clusterReader) readDefinitions(ctx context.Context, c *preflight.Cluster) error {
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	list, err := r.metadata.Resource(definitions).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	c.Definitions = map[string]bool{}
	for i := range list.Items {
		if d := &list.Items[i]; strings.HasSuffix(d.Name, "."+danmv1.GroupName) {
			c.Definitions[d.Name] = d.DeletionTimestamp != nil
		}
	}
	return nil
}

// readCilium reads whether Cilium, where its chart and its command install it, removes configurations of others.
func (r clusterReader) readCilium(ctx context.Context, c *preflight.Cluster) error {
	config, err := r.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "cilium-config", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	c.CiliumExclusive = config.Data["cni-exclusive"] == "true"
	return nil
}

// readWebhooks looks for configurations of webhooks whose Service is gone.
func (r clusterReader) readWebhooks(ctx context.Context, c *preflight.Cluster) error {
	const name = "patchbay"
	admission := r.kube.AdmissionregistrationV1()
	services := map[string]*admissionregistrationv1.ServiceReference{}
	validating, err := admission.ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	for _, w := range validating.Webhooks {
		services["validatingwebhookconfiguration"] = w.ClientConfig.Service
	}
	mutating, err := admission.MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	for _, w := range mutating.Webhooks {
		services["mutatingwebhookconfiguration"] = w.ClientConfig.Service
	}
	for _, kind := range slices.Sorted(maps.Keys(services)) {
		service := services[kind]
		if service == nil {
			continue
		}
		_, err := r.kube.CoreV1().Services(service.Namespace).Get(ctx, service.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			c.Webhooks = append(c.Webhooks, kind)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (r clusterReader) readNamespaces(ctx context.Context, c *preflight.Cluster) error {
	list, err := r.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: preflightLabel + "=" + preflightName})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if n := &list.Items[i]; n.DeletionTimestamp == nil {
			c.OtherPreflights = append(c.OtherPreflights, n.Name)
		}
	}
	return nil
}
