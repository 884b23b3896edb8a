// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// violations judges all writes, and says what is against I1 to I4, I6 to I8 and I10.
func (x *invariantChecker) violations() []string {
	inOrder(x.writes)
	return slices.Concat(x.secondRuns(), x.removalViolations(), x.availabilityViolations(), x.fieldViolations(), x.inventoryViolations(), x.sizeViolations(), x.secretViolations())
}

// replicaCount is how one Deployment stands in one cluster.
type replicaCount struct{ asked, available int64 }

// availabilityViolations is I1: no write of ours takes available replicas away while fewer are
// available elsewhere than are desired.
func (x *invariantChecker) availabilityViolations() (broken []string) {
	levels := map[string]map[string]replicaCount{} // by object, then cluster
	desired := map[string]int64{}                  // at the hub, by object
	autoscaled := autoscaledObjects{}              // what runs counts
	for _, one := range x.writes {
		if one.cluster == "" {
			autoscaled.recordHub(one)
		}
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
		scaled := autoscaled[key]
		if scaled != nil {
			scaled.recordCluster(one)
		}
		if levels[key] == nil {
			levels[key] = map[string]replicaCount{}
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
			now = replicaCount{}
		}
		if scaled.mayLose(one) && now.asked < before.asked && !x.allowUnavailable {
			had := total(levels[key])
			left := had - before.available + min(before.available, now.asked)
			wanted := desired[key]
			if scaled != nil && scaled.wanted > 0 && wanted > 0 {
				wanted = scaled.wanted
			}
			if left < had && left < wanted {
				broken = append(broken, fmt.Sprintf("I1: %s in %s leaves %d available of %d that there were, and %d are desired",
					one, one.cluster, left, had, wanted))
			}
		}
		levels[key][one.cluster] = now
	}
	return broken
}

func total(levels map[string]replicaCount) (sum int64) {
	for _, l := range levels {
		sum += l.available
	}
	return sum
}

// fieldViolations is I4: our writes in clusters are server-side apply without force, and
// leave the fields of other managers as they were.
func (x *invariantChecker) fieldViolations() (broken []string) {
	before := map[string]unstructured.Unstructured{}
	for _, one := range x.writes {
		at := one.cluster + " " + one.Key()
		if one.isApplied() && one.Verb == "patch" && !x.allowForce {
			if strings.Contains(one.URI, "force=true") && !strings.Contains(one.URI, "-ceded") {
				broken = append(broken, fmt.Sprintf("I4: %s in %s by force: %s", one, one.cluster, one.URI))
			}
			if old, ok := before[at]; ok && old.GetUID() == one.Object.GetUID() {
				for _, changed := range one.foreignChanges(old) {
					if strings.Contains(one.URI, "-ceded") && strings.HasPrefix(changed, ".spec.replicas ") {
						continue // whether an autoscaler's object has replicas, and that it has enough in a move, is the hub's
					}
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
		if strings.HasPrefix(entry.Manager, v1alpha1.AgentFieldManager) || entry.FieldsV1 == nil || w.isUnlogged(entry.Manager) {
			continue
		}
		set := &fieldpath.Set{}
		if set.FromJSON(entry.FieldsV1.GetRawReader()) != nil {
			continue
		}
		set.Leaves().Iterate(func(path fieldpath.Path) {
			if was, is := valueAt(old.Object, path), valueAt(now.Object, path); was != is {
				changed = append(changed, fmt.Sprintf("%s of %s from %s to %s", path, entry.Manager, was, is))
			}
		})
	}
	return changed
}

// isUnlogged tells whether the audit log leaves out what a manager writes of such a resource
// (audit.yaml): it may have done so between two writes of ours.
func (w write) isUnlogged(manager string) bool {
	all := w.Group == "apps" && slices.Contains([]string{"deployments", "statefulsets"}, w.Resource)
	return !all && slices.Contains([]string{"kube-controller-manager", "kube-scheduler", "kwok"}, manager)
}

// valueAt is what stands at the path, as JSON.
func valueAt(value any, path fieldpath.Path) string {
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

// removalViolations is I2, I3 and I6: whatever we delete has an order for its UID, no decision leaves
// a cluster that no person has asked for, and each makes at most one creation, where it newly
// wants the object, and one deletion, where it no longer does. A creation more is for each time
// that somebody else deletes the object, unless it is a Pod.
func (x *invariantChecker) removalViolations() []string {
	l := &decisionState{
		spots: map[objectLocation]*objectState{}, last: map[string]v1alpha1.AssignmentSpec{}, uids: map[string]types.UID{}, asked: newUserIntent(),
	}
	for _, one := range x.writes {
		if one.cluster == "" {
			if err := l.asked.record(one); err != nil {
				l.violationf("I6: %s cannot be read: %v", one, err)
			}
		}
		deletes := strings.HasPrefix(one.Verb, "delete")
		switch {
		case one.cluster == "" && one.Resource == "works":
			l.recordOrder(one)
		case one.cluster == "" && one.Resource == "assignments" && one.Subresource == "" && !deletes:
			l.recordDecision(one)
		case one.isApplied() && deletes:
			l.checkDeletion(one)
		case one.isApplied() && one.Created:
			l.checkCreation(one)
		case one.cluster != "" && deletes:
			l.state(one.cluster, one.Key()).mayCreate = one.Resource != "pods" // these are never made again
		}
		if uid := one.Object.GetUID(); one.cluster != "" && uid != "" && one.Subresource != "scale" {
			h := l.state(one.cluster, one.Key())
			h.uid, h.source = uid, types.UID(one.Object.GetAnnotations()[v1alpha1.SourceUIDAnnotation])
			h.mayCreate = h.mayCreate && one.Verb != verbInitial // it is there already
		}
	}
	return l.violations
}

// secondRuns is I10: a Job or a bare Pod of the hub, by its UID there, is created in one cluster, once. A policy that
// wants it whole in each cluster is not in the tests.
func (x *invariantChecker) secondRuns() (broken []string) {
	first := map[string]write{}
	for _, one := range x.writes {
		isJob := one.Group == "batch" && one.Resource == "jobs"
		source := one.Object.GetAnnotations()[v1alpha1.SourceUIDAnnotation]
		if !one.isApplied() || !one.Created || source == "" || !isJob && (one.Group != "" || one.Resource != "pods") {
			continue
		}
		if before, ok := first[source]; ok {
			broken = append(broken, fmt.Sprintf("I10: %s in %s, and it was created in %s before", one, one.cluster, before.cluster))
			continue
		}
		first[source] = one
	}
	return broken
}

// sizeViolations is I7: no object of our kinds is too large.
func (x *invariantChecker) sizeViolations() (broken []string) {
	for _, one := range x.writes {
		if one.Group != v1alpha1.GroupName {
			continue
		}
		if raw, err := one.Object.MarshalJSON(); err != nil || len(raw) > v1alpha1.MaxObjectBytes {
			broken = append(broken, fmt.Sprintf("I7: %s has %d bytes (%v)", one, len(raw), err))
		}
	}
	return broken
}

// secretValues are the values that the Secrets of the test's namespaces have had at the hub.
func (x *invariantChecker) secretValues() [][]byte {
	found := map[string]bool{}
	for _, one := range x.writes {
		if one.cluster != "" || one.Group != "" || one.Resource != "secrets" || !slices.Contains(x.namespaces, one.Namespace) {
			continue
		}
		data, _, _ := unstructured.NestedStringMap(one.Object.Object, "data")
		for _, encoded := range data {
			if value, err := base64.StdEncoding.DecodeString(encoded); err == nil && len(value) >= minValue {
				found[string(value)] = true
			}
		}
	}
	var values [][]byte
	for _, value := range slices.Sorted(maps.Keys(found)) {
		values = append(values, []byte(value))
	}
	return values
}

// minValue is how long a value in a Secret must be for the watcher to look for it: shorter
// ones are in other things by chance.
const minValue = 12

// encodings are how a value may be written somewhere: as it is, and in base64, alone or in the
// middle of something longer, whatever stands before it.
func encodings(value []byte) [][]byte {
	all := [][]byte{value}
	for before := range 3 {
		encoded := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), value...))
		first := (before*8 + 5) / 6           // the first character that the value alone decides
		last := (before + len(value)) * 8 / 6 // one behind the last
		all = append(all, []byte(encoded[first:last]))
	}
	return all
}

// secretMatcher returns what tells whether a text has one of the values.
func (x *invariantChecker) secretMatcher() func(text []byte) bool {
	var wanted [][]byte
	for _, value := range x.secretValues() {
		wanted = append(wanted, encodings(value)...)
	}
	return func(text []byte) bool {
		return slices.ContainsFunc(wanted, func(form []byte) bool { return bytes.Contains(text, form) })
	}
}

// secretViolations is I8, as far as writes tell: no value of a Secret is written into anything else.
func (x *invariantChecker) secretViolations() (broken []string) {
	if len(x.secretValues()) == 0 {
		return nil
	}
	has := x.secretMatcher()
	for _, one := range x.writes {
		if one.Resource != "secrets" && (has(one.Request) || has(marshalObject(one.Object)) || has([]byte(one.URI))) {
			broken = append(broken, fmt.Sprintf("I8: %s in %q has a Secret's value", one, one.cluster))
		}
	}
	return broken
}

// marshalObject is an object as JSON; nothing for a write whose answer was none.
func marshalObject(o unstructured.Unstructured) []byte {
	if len(o.Object) == 0 {
		return nil
	}
	raw, err := o.MarshalJSON()
	if err != nil {
		return []byte(err.Error())
	}
	return raw
}

// secretLeaks is I8 in all that the hub and the clusters have in etcd, raw, and in the logs of our
// programs: where values of Secrets are that is no Secret. Seen is how many Secrets in each etcd
// have a value.
func (x *invariantChecker) secretLeaks(ctx context.Context, w *world) (broken []string, seen map[string]int, err error) {
	seen = map[string]int{}
	if len(x.secretValues()) == 0 {
		return nil, seen, nil
	}
	has, planes := x.secretMatcher(), map[string]*bed.Plane{"hub": w.Hub}
	for name, c := range w.Clusters {
		planes[name] = c.Plane
	}
	for name, p := range planes {
		if p.ControlPlane == nil {
			continue // a hub that was made by patchbay-hub up: its etcd is its own
		}
		err = errors.Join(err, p.ControlPlane.WalkStored(ctx, func(key string, value []byte) {
			switch {
			case !has(value) && !has([]byte(key)):
			case strings.HasPrefix(key, "/secrets/"):
				seen[name]++
			default:
				broken = append(broken, fmt.Sprintf("I8: etcd of %s has a Secret's value in %s", name, key))
			}
		}))
	}
	logs, globErr := filepath.Glob(filepath.Join(w.Dir, "*", "patchbay-*.log"))
	if len(logs) == 0 {
		err = errors.Join(err, errors.New("our programs have no logs"))
	}
	err = errors.Join(err, globErr)
	for _, pattern := range x.logPatterns {
		more, globErr := filepath.Glob(pattern)
		logs, err = append(logs, more...), errors.Join(err, globErr)
	}
	for _, log := range logs {
		raw, readErr := os.ReadFile(log)
		err = errors.Join(err, readErr)
		if has(raw) {
			broken = append(broken, fmt.Sprintf("I8: the log %s has a Secret's value", log))
		}
	}
	return broken, seen, err
}

// conditionViolations is I9 when a test has ended: the conditions that were untrue for a while in it,
// or that do not become true.
func (x *invariantChecker) conditionViolations(ctx context.Context, w *world) ([]string, error) {
	for {
		f, err := x.readSnapshot(ctx, w)
		if err != nil {
			return nil, err
		}
		x.staleConditions.observe(f.now, f.findFalseConditions())
		lasting := slices.ContainsFunc(slices.Collect(maps.Keys(x.staleConditions.firstSeen)), func(what string) bool { return x.staleConditions.lasting[what] == "" })
		if !lasting {
			return sortedLines(x.staleConditions.lasting), nil
		}
		<-time.After(10 * pollInterval)
	}
}

func sortedLines(broken map[string]string) (list []string) {
	for _, what := range slices.Sorted(maps.Keys(broken)) {
		list = append(list, "I9: "+what+": "+broken[what])
	}
	return list
}

// inventoryViolations: our programs write a Cluster's status and nothing else of it.
func (x *invariantChecker) inventoryViolations() (broken []string) {
	for _, one := range x.writes {
		if one.cluster == "" && one.isOurs() && one.Resource == "clusters" && one.Subresource != "status" {
			broken = append(broken, fmt.Sprintf("inventory: %s", one))
		}
	}
	return broken
}
