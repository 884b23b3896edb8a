// SPDX-License-Identifier: Apache-2.0

package netwatcher

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// ready sums the links up as a condition without times: true when each is up and
// no network is refused, else it names the first that is not, with what is wrong.
func ready(links []v1.HostLink, refused []v1.RefusedNetwork) metav1.Condition {
	c := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "LinksUp"}
	c.Message = fmt.Sprintf("links up: %d", len(links))
	var bad []string
	for _, l := range links {
		switch {
		case l.State == v1.LinkUp:
		case l.Error != "":
			bad = append(bad, l.Name+": "+l.Error)
		default:
			bad = append(bad, l.Name+" is down")
		}
	}
	if len(bad) > 0 {
		c.Reason = "LinkNotUp"
	} else if len(refused) > 0 {
		c.Reason = "NetworkRefused"
	}
	for _, r := range refused {
		bad = append(bad, r.Network+": "+r.Error)
	}
	if len(bad) > 0 {
		c.Status, c.Message = metav1.ConditionFalse, andMore(bad)
	}
	return c
}
