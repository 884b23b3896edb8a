// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"fmt"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Location is a cluster, with the properties of its Cluster.
type Location struct {
	Name       string
	Properties map[string]v1alpha1.PropertyValue
}

// Refusal returns why a volume can not be used in another cluster; "" when it can. A nil report is one that the
// agent has not sent.
func Refusal(report *v1alpha1.VolumeReport, from, to Location) string {
	switch {
	case report == nil:
		return fmt.Sprintf("%s has not reported its volume: a policy must place the claim with volumes: Transfer", from.Name)
	case report.Unmovable != "":
		return report.Unmovable
	case report.Source == nil:
		return from.Name + " has not reported its volume yet"
	}
	property := DomainProperty(report.Source.Driver)
	here, there := from.Properties[property], to.Properties[property]
	switch {
	case here == "":
		return fmt.Sprintf("Cluster %s must have the property %s, which names its storage", from.Name, property)
	case here != there:
		return fmt.Sprintf("Cluster %s must have the property %s: %q, as %s has", to.Name, property, here, from.Name)
	}
	return ""
}

// SharedRefusal returns why a volume stays where it is, because other claims have it in some clusters; "" when they have
// another one: only clusters with the same domain use the same storage. A cluster without the property may be one of them.
// A cluster may report the volume of another tenant, to get it in a second cluster.
func SharedRefusal(driver string, from Location, others []Location) string {
	property := DomainProperty(driver)
	for _, other := range others {
		if domain := other.Properties[property]; domain == "" || domain == from.Properties[property] {
			return fmt.Sprintf("%s reports the same volume for another PersistentVolumeClaim: it must belong to one only: delete the other one, or move the data yourself", other.Name)
		}
	}
	return ""
}

// DomainProperty returns the property of Clusters with the domain of a driver's storage. Clusters with the same
// domain can use the same volumes.
func DomainProperty(driver string) string { return "storage." + driver + ".domain" }
