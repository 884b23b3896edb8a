// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// matcher selects objects and clusters.
type matcher struct {
	namespace         string // of the objects; empty for all
	kinds             []schema.GroupKind
	objects, clusters labels.Selector
}

// newMatcher reads what a Customization of a namespace matches. With an error the
// matcher takes in more rather than less.
func newMatcher(namespace string, match *v1alpha1.CustomizationMatch) (matcher, error) {
	m := matcher{namespace: namespace, objects: labels.Everything(), clusters: labels.Everything()}
	if namespace == v1alpha1.SystemNamespace {
		m.namespace = ""
	}
	for _, kind := range match.Kinds {
		m.kinds = append(m.kinds, schema.ParseGroupKind(string(kind)))
	}
	objects, err := selector(match.Selector)
	if err != nil {
		return m, fmt.Errorf("selector: %w", err)
	}
	clusters, err := selector(match.ClusterSelector)
	if err != nil {
		return m, fmt.Errorf("clusterSelector: %w", err)
	}
	m.objects, m.clusters = objects, clusters
	return m, nil
}

// selector reads a selector; none selects all.
func selector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

// matches tells whether an object on its way to a cluster is meant.
func (m *matcher) matches(object *unstructured.Unstructured, cluster *v1alpha1.Cluster) bool {
	if m.namespace != "" && object.GetNamespace() != m.namespace {
		return false
	}
	is := len(m.kinds) == 0
	gk := object.GroupVersionKind().GroupKind()
	for _, kind := range m.kinds {
		// A kind without a group is that kind of any group.
		is = is || kind.Kind == gk.Kind && (kind.Group == "" || kind.Group == gk.Group)
	}
	return is && m.objects.Matches(labels.Set(object.GetLabels())) && m.clusters.Matches(labels.Set(cluster.Labels))
}
