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

// MaxAffinityTerms bounds the terms of a Pod's required node affinity to which NICs are added: a Pod has up to
// maxInterfaces of them, so that a long list of terms would become a huge Pod.
const MaxAffinityTerms = 100

// PodNeeds is what the networks of a Pod require of the Pod's node.
type PodNeeds struct {
	// Partial is true if a network of the Pod is not known, and may need more.
	Partial bool
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

// PodContainer is a container of a Pod that may request devices.
type PodContainer struct {
	// Path of the container.
	Path *field.Path
	// Ends is true for an init container that ends before the next container starts. kubelet then gives its
	// devices to the other containers, and does not report them to the node daemon.
	Ends bool
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
	networks, all := c.usableNetworks(p.Namespace, requests)
	needs.Partial = !all
	for _, n := range networks {
		if n.needsNIC() && !slices.Contains(needs.NICs, n.Device) {
			needs.NICs = append(needs.NICs, n.Device)
		}
		if n.UsesDevicePool() {
			needs.addDevice(n)
		}
	}
	slices.Sort(needs.NICs)
	slices.SortFunc(needs.Pools, func(a, b PoolNeed) int { return cmp.Compare(a.Pool, b.Pool) })
	return needs
}

// usableNetworks returns the network of each interface that a Pod can get, and whether these are all. A Pod that
// requests none gets the default network.
func (c *PodChecker) usableNetworks(namespace string, requests []InterfaceRequest) (usable []*Network, all bool) {
	if len(requests) == 0 {
		usable = append(usable, c.defaultNetwork(namespace))
	}
	for _, r := range requests {
		usable = append(usable, c.NetworkOf(r.Ref(namespace)))
	}
	count := len(usable)
	usable = slices.DeleteFunc(usable, func(n *Network) bool {
		return n == nil || n.Deleting || !n.Allows(namespace) || CheckAssignment(n) != nil
	})
	return usable, len(usable) == count
}

// needsNIC reports whether the Pod's node must have the NIC. Another plugin may move a bare NIC into the Pod: the
// node then reports it no more, and a Pod that requires it would not match its own node.
func (n *Network) needsNIC() bool {
	link, ok := n.Link()
	return ok && (!n.Delegates() || !link.IsNIC())
}

func (needs *PodNeeds) addDevice(n *Network) {
	i := slices.IndexFunc(needs.Pools, func(need PoolNeed) bool { return need.Pool == n.DevicePool })
	if i < 0 {
		i = len(needs.Pools)
		needs.Pools = append(needs.Pools, PoolNeed{Pool: n.DevicePool})
	}
	needs.Pools[i].Networks = append(needs.Pools[i].Networks, n.Ref)
}

// NeedsDeviceRequest reports whether admission adds the request for devices of a pool to the Pod: no container that
// runs with the others requests some, not even none. The pool must be one that containers can request.
func (p *PodTemplate) NeedsDeviceRequest(pool string) bool {
	return p.requestedDevices(pool).path == nil && isExtendedResource(pool)
}

// deviceRequests are the devices of a pool that the containers of a Pod request.
type deviceRequests struct {
	// running is the number in the containers that run together, path that of their first request; nil if there
	// is none.
	running int64
	path    *field.Path
	// allocated is the number of devices that kubelet allocates to the Pod: an init container may request more,
	// which it gets beside those of the sidecars that run already. mostPath is the path of the request that
	// makes it so many.
	allocated int64
	mostPath  *field.Path
}

// requestedDevices counts the devices of a pool that the containers request.
func (p *PodTemplate) requestedDevices(pool string) (requests deviceRequests) {
	for i := range p.Containers {
		container := &p.Containers[i]
		count, path := container.requested(pool)
		if path == nil {
			continue
		}
		together := requests.running + count
		if !container.Ends {
			requests.running = together
			requests.path = cmp.Or(requests.path, path)
		}
		if together > requests.allocated {
			requests.allocated, requests.mostPath = together, path
		}
	}
	return requests
}

// AllocatedDevices returns how many devices of a pool kubelet allocates to the Pod. An init container that ends may
// request more than the containers after it.
func (p *PodTemplate) AllocatedDevices(pool string) int64 { return p.requestedDevices(pool).allocated }

// maxCount bounds the devices of a container, so that a sum of such numbers is one, too.
const maxCount = 1 << 32

// requested returns how many devices of a pool a container requests, and the path of the request; nil if there is
// none. The API server makes requests of limits in Pods, and not in templates.
func (container *PodContainer) requested(pool string) (int64, *field.Path) {
	for _, resources := range []struct {
		name   string
		values map[string]resource.Quantity
	}{{"requests", container.Requests}, {"limits", container.Limits}} {
		if quantity, ok := resources.values[pool]; ok {
			return min(max(quantity.Value(), 0), maxCount), container.Path.Child("resources", resources.name).Key(pool)
		}
	}
	return 0, nil
}

// isExtendedResource reports whether containers can request a resource of a device plugin with this name,
// as IsExtendedResourceName of Kubernetes' validation does.
func isExtendedResource(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, "kubernetes.io/") && !strings.HasPrefix(name, "requests.") &&
		len(validation.IsQualifiedName("requests."+name)) == 0
}

// checkDevices adds faults of a Pod that requests fewer or more devices than it has interfaces that need one. The
// mutating webhook has added the requests of a Pod whose author has left them out, and will add those of a
// template's Pods. A device that no interface uses has none of the settings of a network, such as its VLAN.
func (c *podCheck) checkDevices(needs PodNeeds) {
	for _, need := range needs.Pools {
		want, of := len(need.Networks), joinRefs(need.Networks)
		have := c.template.requestedDevices(need.Pool)
		tooFew, tooMany := have.running < int64(want), have.allocated > int64(want) && !needs.Partial
		switch {
		case !isExtendedResource(need.Pool):
			c.faults.invalid(c.path, need.Pool, fmt.Sprintf("the device_pool of %s must be the resource of a device plugin, such as \"example.com/sriov_ens4\", which no container can request: ask a netadmin to correct it", of))
		case !tooFew && !tooMany:
		case c.template.Mirror:
			c.warnMistake(fmt.Sprintf("%s: the Pod's interfaces need %d of %s, and its containers request %d, so its node refuses it: request as many in the file of the static Pod",
				c.template.Path.Child("spec", "containers"), want, need.Pool, max(have.running, have.allocated)))
		case tooMany:
			c.faults.invalid(have.mostPath, have.allocated, fmt.Sprintf("must be %d in all containers together, one for each interface in %s, because a device without an interface has no VLAN and no other setting of the network: request %d, or leave the resource out so that Patchbay adds it, or request more interfaces",
				want, of, want))
		case have.path != nil:
			c.faults.invalid(have.path, have.running, fmt.Sprintf("must be %d in all containers together, one for each interface in %s (init containers that end do not count): request %d, or leave the resource out so that Patchbay adds it",
				want, of, want))
		case c.template.Path == nil:
			c.faults.required(c.template.Path.Child("spec", "containers").Index(0).Child("resources", "limits").Key(need.Pool),
				fmt.Sprintf("must be %d, one for each interface in %s, and Patchbay has not added it: %s", want, of, c.deviceRemedy(want)))
		}
	}
}

// checkAffinityTerms adds a fault of a Pod with too many terms for its NICs.
func (c *podCheck) checkAffinityTerms(needs PodNeeds) {
	if c.template.AffinityTerms > MaxAffinityTerms && len(needs.NICs) > 0 {
		c.faults.invalid(c.template.Path.Child("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"), c.template.AffinityTerms,
			fmt.Sprintf("must have at most %d terms, because Patchbay adds the NICs of the Pod's networks to each: use fewer terms, or set the annotation %s to %q", MaxAffinityTerms, v1.NodeAffinityAnnotation, v1.NodeAffinityNone))
	}
}

// deviceRemedy returns the advice to the author of a Pod without requests for devices.
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
