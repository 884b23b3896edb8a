// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// deployment computes a Deployment's conditions from the sums in its status, as the
// controller in a cluster does from its own.
func (in *input) deployment(status map[string]any) error {
	desired := in.desired()
	unavailable, err := maxUnavailable(in.object, desired)
	if err != nil {
		return err
	}
	list := []condition{in.available(status, desired, unavailable), in.progressing(status, desired)}
	for i, row := range in.rows {
		if c := conditionsOf(row.Status)["ReplicaFailure"]; words(c, "status") == yes {
			list = append(list, condition{kind: "ReplicaFailure", status: yes, reason: words(c, "reason"), message: in.tell(i, words(c, "message"))})
			break
		}
	}
	for i := range list {
		list[i].also = "lastUpdateTime"
	}
	in.setConditions(status, list)
	return nil
}

// desired is how many replicas there are to be: what the object says, or more where
// clusters have a full set each. What a move adds for a while is not counted.
func (in *input) desired() int64 {
	replicas, ok, err := unstructured.NestedInt64(in.object.Object, "spec", "replicas")
	if !ok || err != nil {
		replicas = 1
	}
	var wanted int64
	for _, row := range in.rows {
		if row.Wanted != nil {
			wanted += int64(*row.Wanted)
		}
	}
	return max(replicas, wanted)
}

// maxUnavailable is how many of the desired replicas may be missing, by the strategy.
func maxUnavailable(object *unstructured.Unstructured, desired int64) (int64, error) {
	strategy, _, err := unstructured.NestedMap(object.Object, "spec", "strategy")
	if err != nil {
		return 0, fmt.Errorf("read spec.strategy: %w", err)
	}
	if words(strategy, "type") == "Recreate" || desired == 0 {
		return 0, nil
	}
	scaled := func(field string, up bool) (int64, error) {
		value, _, _ := unstructured.NestedFieldNoCopy(strategy, "rollingUpdate", field)
		if value == nil {
			value = "25%"
		}
		parsed := intstr.Parse(fmt.Sprint(value))
		n, err := intstr.GetScaledValueFromIntOrPercent(&parsed, int(desired), up)
		if err != nil {
			return 0, fmt.Errorf("read spec.strategy.rollingUpdate.%s: %w", field, err)
		}
		return int64(n), nil
	}
	unavailable, err := scaled("maxUnavailable", false)
	if err != nil {
		return 0, err
	}
	surge, err := scaled("maxSurge", true)
	if err == nil && unavailable == 0 && surge == 0 {
		unavailable = 1 // or nothing could ever be replaced
	}
	return min(unavailable, desired), err
}

// available is the condition Available.
func (in *input) available(status map[string]any, desired, unavailable int64) condition {
	has := least(status, "availableReplicas")
	c := condition{kind: "Available", status: yes, reason: "MinimumReplicasAvailable"}
	if has < desired-unavailable {
		c.status, c.reason = no, "MinimumReplicasUnavailable"
	}
	c.message = fmt.Sprintf("%d of %d replicas are available in %s", has, desired, in.where())
	return c
}

// where says in which clusters an object runs.
func (in *input) where() string {
	if len(in.rows) == 0 {
		return "no cluster"
	}
	names := make([]string, 0, len(in.rows))
	for _, row := range in.rows {
		if row.Reachable {
			names = append(names, row.Cluster)
		} else {
			names = append(names, row.Cluster+" (unreachable)")
		}
		if len(names) == 10 && len(in.rows) > 10 {
			return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), len(in.rows)-10)
		}
	}
	return strings.Join(names, ", ")
}
