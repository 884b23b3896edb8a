// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// level is how one Deployment stands in one cluster.
type level struct{ asked, available int64 }

// brokenAvailable is I1: no write of ours takes available replicas away while fewer are
// available elsewhere than are desired.
func (x *watcher) brokenAvailable() (broken []string) {
	levels := map[string]map[string]level{} // by object, then cluster
	desired := map[string]int64{}           // at the hub, by object
	for _, one := range x.all {
		if one.Group != "apps" || one.Resource != "deployments" {
			continue
		}
		key := one.Key()
		asked, _, _ := unstructured.NestedInt64(one.Object.Object, "spec", "replicas")
		if one.cluster == "" {
			desired[key] = asked
			clusters, annotated := one.Object.GetAnnotations()[v1alpha1.ClustersAnnotation]
			if one.Verb == "delete" || one.Object.GetDeletionTimestamp() != nil || annotated && clusters == "" {
				desired[key] = 0
			}
			continue
		}
		if levels[key] == nil {
			levels[key] = map[string]level{}
		}
		before := levels[key][one.cluster]
		now := before
		now.asked = asked
		if n, found, _ := unstructured.NestedInt64(one.Object.Object, "status", "availableReplicas"); found {
			now.available = n
		} else if one.Subresource == "status" {
			now.available = 0
		}
		if one.Verb == "delete" {
			now = level{}
		}
		if one.applied() && now.asked < before.asked && !x.loss {
			had := total(levels[key])
			left := had - before.available + min(before.available, now.asked)
			if left < had && left < desired[key] {
				broken = append(broken, fmt.Sprintf("I1: %s in %s leaves %d available of %d that there were, and %d are desired",
					one, one.cluster, left, had, desired[key]))
			}
		}
		levels[key][one.cluster] = now
	}
	return broken
}

func total(levels map[string]level) (sum int64) {
	for _, l := range levels {
		sum += l.available
	}
	return sum
}

// brokenFields is I4: our writes in clusters are server-side apply without force, and
// leave the fields of other managers as they were.
func (x *watcher) brokenFields() (broken []string) {
	before := map[string]unstructured.Unstructured{}
	for _, one := range x.all {
		at := one.cluster + " " + one.Key()
		if one.applied() && one.Verb == "patch" && !x.force {
			if strings.Contains(one.URI, "force=true") && !strings.Contains(one.URI, "-ceded") {
				broken = append(broken, fmt.Sprintf("I4: %s in %s by force: %s", one, one.cluster, one.URI))
			}
			if old, ok := before[at]; ok && old.GetUID() == one.Object.GetUID() {
				for _, changed := range one.foreignChanges(old) {
					broken = append(broken, fmt.Sprintf("I4: %s in %s changed %s", one, one.cluster, changed))
				}
			}
		}
		if one.Object.GetUID() != "" {
			before[at] = one.Object
		}
	}
	return broken
}

// foreignChanges names fields of other managers that are not what they were.
func (w write) foreignChanges(old unstructured.Unstructured) []string {
	now := w.Object
	var changed []string
	for _, entry := range old.GetManagedFields() {
		if strings.HasPrefix(entry.Manager, v1alpha1.AgentManager) || entry.FieldsV1 == nil || w.unlogged(entry.Manager) {
			continue
		}
		set := &fieldpath.Set{}
		if set.FromJSON(entry.FieldsV1.GetRawReader()) != nil {
			continue
		}
		set.Leaves().Iterate(func(path fieldpath.Path) {
			if was, is := lookup(old.Object, path), lookup(now.Object, path); was != is {
				changed = append(changed, fmt.Sprintf("%s of %s from %s to %s", path, entry.Manager, was, is))
			}
		})
	}
	return changed
}

// unlogged tells whether the audit log leaves out what a manager writes of such a resource
// (audit.yaml): it may have done so between two writes of ours.
func (w write) unlogged(manager string) bool {
	all := w.Group == "apps" && slices.Contains([]string{"deployments", "statefulsets"}, w.Resource)
	return !all && slices.Contains([]string{"kube-controller-manager", "kube-scheduler", "kwok"}, manager)
}

// lookup is what stands at the path, as JSON.
func lookup(value any, path fieldpath.Path) string {
	for _, element := range path {
		value = step(value, element)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

func step(value any, element fieldpath.PathElement) any {
	switch {
	case element.FieldName != nil:
		fields, _ := value.(map[string]any)
		return fields[*element.FieldName]
	case element.Key != nil:
		items, _ := value.([]any)
		for _, item := range items {
			fields, _ := item.(map[string]any)
			same := true
			for _, key := range *element.Key {
				same = same && fmt.Sprint(fields[key.Name]) == fmt.Sprint(key.Value.Unstructured())
			}
			if same {
				return item
			}
		}
	}
	return nil
}
