// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// PodNeeds is what the networks of a Pod require of the Pod's node.
type PodNeeds struct {
	// Pools are the device pools with the Pod's interfaces, ordered by name.
	Pools []PoolNeed
	// NICs are the names of the NICs that the Pod's interfaces are on, ordered.
	NICs []string
}

// PoolNeed is a device pool, and the interfaces that need one device of it each.
type PoolNeed struct {
	// Pool is the resource name of the device plugin.
	Pool string
	// Networks has the network of each interface.
	Networks []Ref
}

// PodContainer is a container of a Pod whose devices are the Pod's while the Pod runs: a container, or an
// init container that keeps running (a sidecar). Those of another init container are not counted: kubelet
// gives them to the containers afterwards, and does not report them to the node daemon.
type PodContainer struct {
	// Path of the container.
	Path *field.Path
	// Requests and Limits are the container's resources.
	Requests, Limits map[string]resource.Quantity
}

// Needs returns what the networks of a Pod require of its node. A network that does not exist, is being
// deleted, has no valid assignment, or is not for the Pod's namespace requires nothing: Check reports it.
func (c *PodChecker) Needs(p PodTemplate) PodNeeds {
	var needs PodNeeds
	if p.HostNetwork {
		return needs
	}
	_, requests, err := parseInterfaces(p.annotations(), p.Annotations)
	if err != nil {
		return needs
	}
	for _, n := range c.usableNetworks(p.Namespace, requests) {
		if n.needsNIC() && !slices.Contains(needs.NICs, n.Device) {
			needs.NICs = append(needs.NICs, n.Device)
		}
		if n.needsDevice() {
			needs.addDevice(n)
		}
	}
	slices.Sort(needs.NICs)
	slices.SortFunc(needs.Pools, func(a, b PoolNeed) int { return cmp.Compare(a.Pool, b.Pool) })
	return needs
}

// usableNetworks returns the network of each interface that a Pod can get. A Pod that requests none gets
// the default network.
func (c *PodChecker) usableNetworks(namespace string, requests []InterfaceRequest) []*Network {
	var all []*Network
	if len(requests) == 0 {
		all = append(all, c.defaultNetwork(namespace))
	}
	for _, r := range requests {
		all = append(all, c.NetworkOf(r.Ref(namespace)))
	}
	return slices.DeleteFunc(all, func(n *Network) bool {
		return n == nil || n.Deleting || !n.Allows(namespace) || CheckAssignment(n) != nil
	})
}

// needsNIC reports whether the Pod's node must have the NIC. Another plugin may move a bare NIC into the Pod: the
// node then reports it no more, and a Pod that requires it would not match its own node.
func (n *Network) needsNIC() bool {
	link, ok := n.Link()
	return ok && (!n.Delegates() || !link.IsNIC())
}

// needsDevice reports whether each interface on the network needs a device of its pool.
func (n *Network) needsDevice() bool { return n.Type == v1.TypeSRIOV && n.DevicePool != "" }

func (needs *PodNeeds) addDevice(n *Network) {
	i := slices.IndexFunc(needs.Pools, func(need PoolNeed) bool { return need.Pool == n.DevicePool })
	if i < 0 {
		i = len(needs.Pools)
		needs.Pools = append(needs.Pools, PoolNeed{Pool: n.DevicePool})
	}
	needs.Pools[i].Networks = append(needs.Pools[i].Networks, n.Ref)
}

// IsUnrequested reports whether no container of the Pod requests devices of a pool, not even none. The
// pool must be one that containers can request.
func (p *PodTemplate) IsUnrequested(pool string) bool {
	_, at := p.requestedDevices(pool)
	return at == nil && isExtendedResource(pool)
}

// requestedDevices returns how many devices of a pool the containers request together, at most
// maxInterfaces of each, and the path of the first request; nil if there is none. The API server makes
// requests of limits in Pods, and not in templates.
func (p *PodTemplate) requestedDevices(pool string) (total int, at *field.Path) {
	for _, container := range p.Containers {
		for _, resources := range []struct {
			name   string
			values map[string]resource.Quantity
		}{{"requests", container.Requests}, {"limits", container.Limits}} {
			quantity, ok := resources.values[pool]
			if !ok {
				continue
			}
			total += int(min(max(quantity.Value(), 0), maxInterfaces))
			if at == nil {
				at = container.Path.Child("resources", resources.name).Key(pool)
			}
			break
		}
	}
	return total, at
}

// isExtendedResource reports whether containers can request a resource of a device plugin with this name,
// as IsExtendedResourceName of Kubernetes' validation does.
func isExtendedResource(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, "kubernetes.io/") && !strings.HasPrefix(name, "requests.") &&
		len(validation.IsQualifiedName("requests."+name)) == 0
}

// checkDevices adds faults of a Pod that requests fewer devices than it has interfaces that need one. The
// mutating webhook has added the requests of a Pod whose author has left them out, and will add those of a
// template's Pods.
func (c *podCheck) checkDevices(needs PodNeeds) {
	for _, need := range needs.Pools {
		want, of := len(need.Networks), joinRefs(need.Networks)
		have, at := c.template.requestedDevices(need.Pool)
		switch {
		case !isExtendedResource(need.Pool):
			c.faults.invalid(c.path, need.Pool, fmt.Sprintf("the device_pool of %s must be the resource of a device plugin, such as \"example.com/sriov_ens4\", which no container can request: ask a netadmin to correct it", of))
		case have >= want:
		case c.template.Mirror:
			c.warnMistake(fmt.Sprintf("%s: the Pod's interfaces need %d of %s, and its containers request %d, so its node refuses it: request as many in the file of the static Pod",
				c.template.Path.Child("spec", "containers"), want, need.Pool, have))
		case at != nil:
			c.faults.invalid(at, have, fmt.Sprintf("must be at least %d in all containers together, one for each interface in %s (init containers that end do not count): request as many in one container, or remove the resource so that Patchbay adds it",
				want, of))
		case c.template.Path == nil:
			c.faults.required(c.template.Path.Child("spec", "containers").Index(0).Child("resources", "limits").Key(need.Pool),
				fmt.Sprintf("must be %d, one for each interface in %s, and Patchbay has not added it: %s", want, of, c.deviceRemedy(want)))
		}
	}
}

// deviceRemedy says what the author of a Pod does that has no requests for devices.
func (c *podCheck) deviceRemedy(want int) string {
	for _, key := range InterfaceAnnotations() {
		if _, ok := c.template.Annotations[key]; ok {
			return fmt.Sprintf("create the Pod again, or set it to %d in limits and requests", want)
		}
	}
	return fmt.Sprintf("set the annotation %s to \"[]\" for the default network, or set the resource to %d in limits and requests", v1.InterfacesAnnotation, want)
}

// joinRefs lists networks, each once.
func joinRefs(refs []Ref) string {
	var names []string
	for _, ref := range refs {
		if name := ref.String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
