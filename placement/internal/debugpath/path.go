// SPDX-License-Identifier: Apache-2.0

// Package debugpath parses the paths of requests that people send to a cluster through the hub, and decides which of
// them may pass. Hub and agent both use it: each of them alone stops a request that may not pass.
package debugpath

import (
	"errors"
	"fmt"
	"strings"
)

// Request is what an API server understands of a method and a path.
type Request struct {
	// Method is the HTTP method.
	Method string
	// Group is the API group; "" for the core group and for discovery.
	Group string
	// Namespace of the object; "" for discovery and for cluster-scoped objects.
	Namespace string
	// Resource, Name and Subresource name the object. Resource is "" for discovery.
	Resource, Name, Subresource string
	// discovery is true for documents that describe the API server.
	discovery bool
	// continues is true when the path goes on after the subresource.
	continues bool
}

// HTTP methods. Packages that only compute import no net/http.
const (
	methodGet  = "GET"
	methodHead = "HEAD"
	methodPost = "POST"
)

// maxLength is the longest path that passes.
const maxLength = 2048

// Parse parses a path as it is sent, before any decoding. It rejects each path that two programs could understand
// differently: escapes, empty segments, "." and "..". Names of Kubernetes objects need no escapes.
func Parse(method, escapedPath string) (Request, error) {
	if err := checkForm(escapedPath); err != nil {
		return Request{}, err
	}
	r := Request{Method: method}
	parts := strings.Split(strings.Trim(escapedPath, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		return r.parseResource(parts[2:])
	case parts[0] == "apis" && len(parts) > 3:
		r.Group = parts[1]
		return r.parseResource(parts[3:])
	case parts[0] == "api", parts[0] == "apis", parts[0] == "openapi", parts[0] == "version" && len(parts) == 1:
		r.discovery = true
		return r, nil
	}
	return Request{}, fmt.Errorf("path %q must begin with /api, /apis, /openapi or /version", escapedPath)
}

// checkForm returns an error for a path that is not in its only form.
func checkForm(path string) error {
	if len(path) > maxLength {
		return fmt.Errorf("path must have at most %d characters", maxLength)
	}
	if !strings.HasPrefix(path, "/") {
		return errors.New("path must begin with /")
	}
	for _, c := range []byte(path) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`%\;?#`, c) >= 0 {
			return fmt.Errorf(`path %q must have no escapes, spaces, control characters and none of \ ; ? #`, path)
		}
	}
	for segment := range strings.SplitSeq(strings.TrimSuffix(path[1:], "/"), "/") {
		if segment == "." || segment == ".." || segment == "" && path != "/" {
			return fmt.Errorf(`path %q must have no empty segments, "." and ".."`, path)
		}
	}
	return nil
}

// parseResource parses what follows the version, as API servers do.
func (r Request) parseResource(parts []string) (Request, error) {
	if parts[0] == "watch" || parts[0] == "proxy" {
		return Request{}, fmt.Errorf("path must not use the obsolete prefix %s: use the parameter watch=true, or the subresource proxy", parts[0])
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		r.Namespace, parts = parts[1], parts[2:]
	}
	r.Resource = parts[0]
	if len(parts) > 1 {
		r.Name = parts[1]
	}
	if len(parts) > 2 {
		r.Subresource, r.continues = parts[2], len(parts) > 3
	}
	return r, nil
}

// NeedsCreate tells whether the request acts on a Pod, so that its user needs the verb create at the hub. An exec over
// a WebSocket is a GET.
func (r Request) NeedsCreate() bool {
	switch r.Subresource {
	case "exec", "attach", "portforward", "proxy":
		return true
	}
	return false
}

// Check returns why the request may not pass; nil when it may. within is the only namespace that it may name; "" for
// all. checkPlaced returns why the cluster does not let hub users reach an object in a namespace; nil when it does.
func (r Request) Check(within string, checkPlaced func(Placed) error) error {
	switch {
	case r.discovery:
		return r.checkDiscovery()
	case strings.EqualFold(r.Resource, "secrets") || r.Resource == "serviceaccounts" && r.Subresource == "token":
		return errors.New("secrets and tokens must not pass through the hub: read them in the cluster")
	case r.isSelfReview():
		return nil
	case r.namespace() == "":
		return r.checkClusterScoped(within)
	case within != "" && r.namespace() != within:
		return fmt.Errorf("namespace must be %s, for which this path is: got %s", within, r.namespace())
	case (r.continues || r.Subresource == "proxy") && !r.forwards():
		return fmt.Errorf("path must end after %s: only the subresource proxy of Pods and Services forwards a path", r.Resource)
	case !r.isRead() && !r.isDebug():
		return fmt.Errorf("%s of %s must not pass through the hub, which allows reading, exec, attach and port-forward: change the object at the hub", r.Method, r.Resource)
	}
	return checkPlaced(r.placed())
}

// Placed is what the hub must have placed, so that a request may pass.
type Placed struct {
	// Namespace in which there must be an object of the hub.
	Namespace string
	// Pod that must belong to an object of the hub; "" for none.
	Pod string
	// Service that must be an object of the hub; "" for none.
	Service string
}

// placed returns what the request needs. RBAC decides which objects of a namespace its user reads, and cannot tell
// Pods apart. But logs, exec and ports of a Pod are more than its object, so that they are for Pods of the hub only.
func (r Request) placed() Placed {
	p := Placed{Namespace: r.namespace()}
	if r.Group != "" || r.Subresource == "" {
		return p
	}
	name := r.Name
	if r.Subresource == "proxy" {
		name = withoutPort(name)
	}
	switch r.Resource {
	case "pods":
		p.Pod = name
	case "services":
		p.Service = name
	}
	return p
}

// withoutPort returns NAME of NAME, NAME:PORT or SCHEME:NAME:PORT.
func withoutPort(text string) string {
	parts := strings.Split(text, ":")
	if len(parts) == 3 {
		return parts[1]
	}
	return parts[0]
}

// namespace returns the namespace of the object, or the Namespace that the request reads.
func (r Request) namespace() string {
	if r.Namespace == "" && r.Group == "" && r.Resource == "namespaces" {
		return r.Name
	}
	return r.Namespace
}

func (r Request) checkDiscovery() error {
	if !r.isRead() {
		return fmt.Errorf("%s of a document that describes the API must be GET", r.Method)
	}
	return nil
}

// checkClusterScoped allows the cluster-scoped objects that tools like kubectl top and k9s read. An API server treats
// the list of a namespaced kind in all namespaces the same way, so that all others are rejected.
func (r Request) checkClusterScoped(within string) error {
	allowed := false
	switch r.Group + "/" + r.Resource {
	case "/nodes", "metrics.k8s.io/nodes", "storage.k8s.io/storageclasses", "danm.io/clusternetworks":
		allowed = r.isRead() && r.Subresource == ""
	}
	switch {
	case within != "":
		return fmt.Errorf("%s must be in namespace %s, for which this path is", r.Resource, within)
	case !allowed:
		return fmt.Errorf("%s must be in a namespace: give one with --namespace. Of cluster-scoped objects only nodes, storageclasses and clusternetworks can be read", r.Resource)
	}
	return nil
}

// debugGroup is the group of the API by which requests come here: a cluster may be a hub itself, which then decides
// what passes to its clusters.
const debugGroup = "debug.placement.patchbay.io"

// forwards tells whether what follows the subresource is a path of another server. An extension of an API server could
// have such subresources, too, and so reach Secrets.
func (r Request) forwards() bool {
	if r.Subresource != "proxy" {
		return false
	}
	switch r.Group {
	case "":
		return r.Resource == "pods" || r.Resource == "services"
	case debugGroup:
		return r.Resource == "clusters"
	}
	return false
}

// isSelfReview tells whether the request asks what its user may do.
func (r Request) isSelfReview() bool {
	return r.Group == "authorization.k8s.io" && r.Method == methodPost && r.Namespace == "" && r.Name == "" &&
		(r.Resource == "selfsubjectaccessreviews" || r.Resource == "selfsubjectrulesreviews")
}

func (r Request) isRead() bool { return r.Method == methodGet || r.Method == methodHead }

// isDebug tells whether the request acts on a Pod without changing it. An ephemeral container is a change: it could
// read each Secret of the namespace into its environment, and have rights that the Pod has not.
func (r Request) isDebug() bool {
	if r.Group != "" || r.Resource != "pods" || r.Name == "" {
		return false
	}
	switch r.Subresource {
	case "exec", "attach", "portforward":
		return r.Method == methodPost
	}
	return false
}
