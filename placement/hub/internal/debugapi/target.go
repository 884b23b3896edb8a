// SPDX-License-Identifier: Apache-2.0

package debugapi

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// root is the path of the API.
const root = "/apis/" + v1alpha1.DebugGroup + "/" + v1alpha1.DebugVersion

// target is what a path below root names.
type target struct {
	// namespace in which the user has rights; "" for all.
	namespace string
	// cluster is the name of the Cluster.
	cluster string
	// subresource is attach or proxy.
	subresource string
	// path is what follows it, for the cluster's API server.
	path string
}

// parseTarget parses a path as it is sent, in the same way as the API server, which has checked RBAC by it.
func parseTarget(escapedPath string) (target, bool) {
	rest, ok := strings.CutPrefix(escapedPath, root+"/")
	if !ok {
		return target{}, false
	}
	t := target{}
	if within, ok := strings.CutPrefix(rest, "namespaces/"); ok {
		if t.namespace, rest, ok = strings.Cut(within, "/"); !ok || !isName(t.namespace) {
			return target{}, false
		}
	}
	rest, ok = strings.CutPrefix(rest, "clusters/")
	if !ok {
		return target{}, false
	}
	if t.cluster, rest, ok = strings.Cut(rest, "/"); !ok || !isName(t.cluster) {
		return target{}, false
	}
	t.subresource, t.path, _ = strings.Cut(rest, "/")
	t.path = "/" + t.path
	switch t.subresource {
	case "proxy":
		return t, true
	case "attach":
		return t, t.namespace == "" && t.path == "/"
	}
	return target{}, false
}

func isName(text string) bool { return len(validation.IsDNS1123Label(text)) == 0 }
