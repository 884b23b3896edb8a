// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Sum is the status of an object that runs in several clusters, or in none. The answer
// is nil when there is nothing to write: the kind has no status, or it is the hub's
// own. An error names object, cluster and field.
func Sum(object *unstructured.Unstructured, rows []Row, now time.Time) (map[string]any, error) {
	rows = byCluster(rows)
	status, err := sum(&input{object: object, rows: rows, now: now})
	if err != nil {
		return nil, fmt.Errorf("summarize status of %s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	return status, nil
}

// input is what a summary is made from.
type input struct {
	object *unstructured.Unstructured
	rows   []Row // in the order of clusters
	now    time.Time
}

// sum builds the summary of a kind.
func sum(in *input) (map[string]any, error) {
	gk := in.object.GroupVersionKind().GroupKind()
	switch gk {
	case namespaces:
		return nil, nil
	case services, ingresses:
		return balancers(in.rows), nil
	case claims:
		return claim(in)
	case pods:
		return pod(in), nil
	case cronJobs:
		return cronJob(in.rows), nil
	}
	status, err := add(in.object, in.rows)
	if err != nil {
		return nil, err
	}
	switch {
	case gk == jobs:
		return job(in, status), nil
	case gk.Group == networkGroup:
		in.setConditions(status, in.merged())
		return status, nil
	case counted(gk) == nil:
		return other(in), nil
	}
	status["observedGeneration"] = observed(in.object, in.rows)
	keepCollisions(in.object, status)
	switch gk {
	case deployments:
		return status, in.deployment(status)
	case statefulSets:
		in.revisions(status)
	case scalers:
		latest(status, in.rows, "lastScaleTime")
	}
	in.setConditions(status, in.merged())
	return status, nil
}

// allCurrent tells whether all clusters speak of the present object.
func (in *input) allCurrent() bool {
	for _, row := range in.rows {
		if !row.current(in.object) {
			return false
		}
	}
	return true
}
