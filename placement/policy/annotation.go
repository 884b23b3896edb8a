// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// clusterName is what the name of a Cluster may be.
var clusterName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,53}[a-z0-9])?$`)

// ParseClusters reads the annotation: names in order, and weights if there are any.
// Either all names have a weight or none; they act as weights of the object's replicas,
// so that "east=3,west=1" gives 3 and 1 of 4, and 6 and 2 of 8.
func ParseClusters(text string) (names []string, weights map[string]int64, err error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil, nil
	}
	weights = map[string]int64{}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		name, number, weighted := strings.Cut(strings.TrimSpace(part), "=")
		if !clusterName.MatchString(name) {
			return nil, nil, invalid("%q is no name of a cluster", name)
		}
		if seen[name] {
			return nil, nil, invalid("%s is named twice", name)
		}
		seen[name] = true
		names = append(names, name)
		if !weighted {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 32)
		if err != nil || n < 0 || n > maxWeight {
			return nil, nil, invalid("%s=%s: want a number from 0 to %d", name, number, maxWeight)
		}
		weights[name] = n
	}
	if len(weights) == 0 {
		return names, nil, nil
	}
	if len(weights) != len(names) {
		return nil, nil, invalid("give all clusters a number, or none")
	}
	return names, weights, nil
}

// maxWeight is what package divide takes.
const maxWeight = 1_000_000

func invalid(format string, args ...any) error {
	return &Error{
		Reason: v1alpha1.ReasonInvalidAnnotation, Field: "metadata.annotations[" + v1alpha1.ClustersAnnotation + "]",
		Message: fmt.Sprintf(format, args...) + ` (such as "east", "east,west" or "east=3,west=1")`,
	}
}
