// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// ready sums the links up as a condition without times: true when each is up,
// else it names the first that is not, with what is wrong.
func ready(links []v1.HostLink) metav1.Condition {
	c := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "LinksUp"}
	c.Message = fmt.Sprintf("links up: %d", len(links))
	bad := 0
	for _, l := range links {
		if l.State == up {
			continue
		}
		if bad++; bad > 1 {
			continue
		}
		c.Status, c.Reason = metav1.ConditionFalse, "LinkNotUp"
		c.Message = l.Name + " is down"
		if l.Error != "" {
			c.Message = l.Name + ": " + l.Error
		}
	}
	if bad > 1 {
		c.Message += fmt.Sprintf(" (and %d more)", bad-1)
	}
	return c
}
