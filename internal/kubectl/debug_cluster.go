// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// proxiedCluster reads one namespace of a cluster through the hub.
type proxiedCluster struct {
	cluster, namespace string
	client             *rest.RESTClient
}

// clusterTimeout bounds one request to a cluster, and clusterRetries how often the hub is asked again when it does not
// reach the cluster: each time takes 2 s.
const (
	clusterTimeout = 30 * time.Second
	clusterRetries = 2
)

func newProxiedCluster(hub *rest.Config, namespace, cluster string) (*proxiedCluster, error) {
	config := rest.CopyConfig(hub)
	config.QPS = -1
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	return &proxiedCluster{cluster: cluster, namespace: namespace, client: client}, nil
}

// clusterPath returns the path at the hub that is the root of a cluster's API server; with a namespace for requests
// about it only.
func clusterPath(namespace, cluster string) string {
	path := debugRoot
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/clusters/" + cluster + "/proxy"
}

// debugRoot is the path of the debug API at the hub.
const debugRoot = "/apis/" + v1alpha1.DebugGroup + "/" + v1alpha1.DebugVersion

// groupPath returns the path of a version of an API.
func groupPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

// list reads the objects of a resource into a list.
func (r *proxiedCluster) list(ctx context.Context, gvr schema.GroupVersionResource, selector, accept string, into any) error {
	return r.get(ctx, gvr, "", selector, accept, into)
}

// get reads one object of a resource, or those that a selector selects if name is empty.
func (r *proxiedCluster) get(ctx context.Context, gvr schema.GroupVersionResource, name, selector, accept string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	path := clusterPath(r.namespace, r.cluster) + groupPath(gvr.GroupVersion()) + "/namespaces/" + r.namespace + "/" + gvr.Resource
	if name != "" {
		path += "/" + name
	}
	request := r.client.Get().AbsPath(path).MaxRetries(clusterRetries).SetHeader("Accept", accept)
	if selector != "" {
		request.Param("labelSelector", selector)
	}
	if err := decode(request.Do(ctx), into); err != nil {
		return r.explain(strings.TrimSuffix("read "+gvr.Resource+" "+name, " "), err)
	}
	return nil
}

// decode decodes an answer. Only Error reads the message of a Status.
func decode(answer rest.Result, into any) error {
	if err := answer.Error(); err != nil {
		return err
	}
	raw, err := answer.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// checkMayCreate returns an error unless hub and cluster allow the user to create a subresource of Pods.
func (r *proxiedCluster) checkMayCreate(ctx context.Context, subresource string) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	review := &authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: r.namespace, Verb: "create", Resource: "pods", Subresource: subresource,
		}},
	}
	body, err := json.Marshal(review)
	if err != nil {
		return fmt.Errorf("encode a review: %w", err)
	}
	path := clusterPath(r.namespace, r.cluster) + groupPath(authorizationv1.SchemeGroupVersion) + "/selfsubjectaccessreviews"
	request := r.client.Post().AbsPath(path).MaxRetries(clusterRetries).SetHeader("Accept", acceptJSON).SetHeader("Content-Type", acceptJSON).Body(body)
	if err := decode(request.Do(ctx), review); err != nil {
		return r.explain("ask what you may do", err)
	}
	if !review.Status.Allowed {
		return fmt.Errorf("you must be allowed to create pods/%s in namespace %s of Cluster %s: %s", subresource, r.namespace, r.cluster, r.clusterHint("edit"))
	}
	return nil
}

// Values of the header Accept.
const (
	acceptJSON  = "application/json"
	acceptTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
)

// errClusterAway is why a cluster cannot be reached.
var errClusterAway = errors.New("the hub does not reach it")

// explain adds to an error who gave it, the hub or the cluster, and what to do.
func (r *proxiedCluster) explain(what string, err error) error {
	details := &metav1.StatusDetails{}
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && status.ErrStatus.Details != nil {
		details = status.ErrStatus.Details
	}
	byHub := details.Group == v1alpha1.DebugGroup
	text := err.Error()
	switch {
	case apierrors.IsForbidden(err) && byHub && (strings.Contains(text, `resource "clusters/proxy"`) || strings.Contains(text, "must have the verb")):
		return fmt.Errorf("%s of Cluster %s: the hub forbids it: %w. At the hub, kubectl -n %s create rolebinding NAME --clusterrole=patchbay-debug --user=NAME allows it",
			what, r.cluster, err, r.namespace)
	case apierrors.IsForbidden(err) && byHub:
		return fmt.Errorf("%s of Cluster %s: a rule of the hub and the cluster's agent forbids it: %w", what, r.cluster, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s of Cluster %s: the cluster forbids it: %w: %s", what, r.cluster, err, r.clusterHint("view"))
	case apierrors.IsNotFound(err) && details.Group == v1alpha1.GroupName:
		return fmt.Errorf("%s of Cluster %s: the hub has no such Cluster: %w", what, r.cluster, err)
	case apierrors.IsNotFound(err) && details.Kind == "":
		return fmt.Errorf("%s of Cluster %s: the hub has no debug API: its admin must start patchbay-hub with --debug-address: %w", what, r.cluster, err)
	case apierrors.IsServiceUnavailable(err), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s of Cluster %s: %w: %w", what, r.cluster, errClusterAway, err)
	}
	return fmt.Errorf("%s of Cluster %s: %w", what, r.cluster, err)
}

// clusterHint says how the cluster's admin gives a right.
func (r *proxiedCluster) clusterHint(role string) string {
	return fmt.Sprintf("in the cluster, kubectl -n %s create rolebinding NAME --clusterrole=%s --user=%sNAME allows it, where NAME is your user at the hub",
		r.namespace, role, v1alpha1.DebugUserPrefix)
}
