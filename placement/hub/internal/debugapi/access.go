// SPDX-License-Identifier: Apache-2.0

package debugapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/debugpath"
)

// access decides who may do what.
type access struct {
	reviewer *reviewer
	// cached has the Clusters.
	cached client.Reader
}

// cluster returns an accepted Cluster.
func (a *access) cluster(ctx context.Context, name string) (*v1alpha1.Cluster, error) {
	c := &v1alpha1.Cluster{}
	if err := a.cached.Get(ctx, client.ObjectKey{Name: name}, c); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.GroupName, Resource: "clusters"}, name)
		}
		return nil, fmt.Errorf("read Cluster %s: %w", name, err)
	}
	if !c.Spec.Accepted {
		return nil, apierrors.NewForbidden(resource("clusters"), name, errors.New("spec.accepted of the Cluster must be true"))
	}
	return c, nil
}

// checkAttach returns an error unless the user is the agent of the cluster. Rights alone are not enough: an admin of the
// hub has all rights, and is no agent.
func (a *access) checkAttach(ctx context.Context, u user, t target) error {
	if u.name != v1alpha1.ClusterUserPrefix+t.cluster &&
		u.name != fmt.Sprintf("system:serviceaccount:%s%s:%s", v1alpha1.ClusterNamespacePrefix, t.cluster, v1alpha1.AgentAccount) {
		return apierrors.NewForbidden(resource("clusters/attach"), t.cluster, fmt.Errorf("user %s must be the agent of this cluster", u.name))
	}
	return a.reviewer.review(ctx, u, t, "create")
}

// checkProxy returns an error unless the user may send the request to the cluster.
func (a *access) checkProxy(ctx context.Context, u user, t target, method string, upgrade bool) error {
	verb := verbOf(method)
	if upgrade {
		method = http.MethodPost // exec over a WebSocket is a GET
	}
	request, err := debugpath.Parse(method, t.path)
	if err == nil {
		// What is placed is known at the cluster.
		err = request.Check(t.namespace, func(debugpath.Placed) error { return nil })
	}
	if err != nil {
		return apierrors.NewForbidden(resource("clusters/proxy"), t.cluster, err)
	}
	if verb != "create" && (upgrade || request.NeedsCreate()) {
		if err := a.reviewer.review(ctx, u, t, "create"); err != nil {
			return err
		}
	}
	return a.reviewer.review(ctx, u, t, verb)
}

// verbOf returns the verb that the API server sees in the method of a request for a subresource.
func verbOf(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return "get"
}

func resource(name string) schema.GroupResource {
	return schema.GroupResource{Group: v1alpha1.DebugGroup, Resource: name}
}
