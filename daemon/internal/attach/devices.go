// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Errors of interfaces that need a device.
var (
	// ErrNoDevice means that kubelet has allocated too few devices to the Pod.
	ErrNoDevice = errors.New("no device allocated")
	// ErrDeviceInUse means that another sandbox has the device.
	ErrDeviceInUse = errors.New("device in use")
)

// assignDevices gives each interface that needs one the next device of its network's pool, in the order
// of the interfaces.
func assignDevices(ctx context.Context, pods PodReader, devices Devices, pod *corev1.Pod, rec *Record) error {
	first := slices.IndexFunc(rec.Interfaces, func(ifc Interface) bool { return ifc.Network.UsesDevicePool() })
	if first < 0 {
		return nil
	}
	var allocated map[string][]string
	pod, err := pods.PodWithSpec(ctx, pod)
	if err == nil {
		allocated, err = devices.Devices(ctx, pod)
	}
	if err != nil {
		ifc := &rec.Interfaces[first]
		return withNetwork(ifc.Network.Ref, fmt.Errorf("interface %d (%s), network %s: find the Pod's device of pool %s: %w",
			first, ifc.Name, ifc.Network.Ref, ifc.Network.DevicePool, err))
	}
	used := map[string]int{}
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		if !ifc.Network.UsesDevicePool() {
			continue
		}
		pool := ifc.Network.DevicePool
		used[pool]++
		if have := len(allocated[pool]); have < used[pool] {
			return withNetwork(ifc.Network.Ref, fmt.Errorf("interface %d (%s), network %s: %w: kubelet has allocated %d of %s to the Pod, and this is the Pod's interface number %d of that pool: request as many in resources of a container as the Pod has interfaces of the pool; if it does, the device plugin was away when the Pod came to the node: delete the Pod",
				i, ifc.Name, ifc.Network.Ref, ErrNoDevice, have, pool, used[pool]))
		}
		ifc.DeviceID = allocated[pool][used[pool]-1]
	}
	return checkAllAssigned(rec, pod, allocated, used)
}

// checkAllAssigned returns an error if the Pod has more devices of a pool than interfaces that take one. Patchbay
// sets no VLAN and no MAC address on a device without an interface: a Pod could send into all VLANs of the port with
// it. Kubelet does not report the devices of init containers that end, so the Pod's requests count, too.
func checkAllAssigned(rec *Record, pod *corev1.Pod, allocated map[string][]string, used map[string]int) error {
	template := network.PodTemplate{Containers: podContainers(&pod.Spec)}
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		pool := ifc.Network.DevicePool
		if have := max(int64(len(allocated[pool])), template.AllocatedDevices(pool)); ifc.DeviceID != "" && have > int64(used[pool]) {
			return withNetwork(ifc.Network.Ref, &causedError{cause: ErrInvalidAnnotation, err: fmt.Errorf(
				"network %s: the Pod has or requests %d devices of %s, and must have %d, one for each interface of that pool: request %d, and no more in an init container, or add interfaces to annotation %s",
				ifc.Network.Ref, have, pool, used[pool], used[pool], v1.InterfacesAnnotation)})
		}
	}
	return nil
}

// podContainers returns the containers in the order in which they start.
func podContainers(spec *corev1.PodSpec) []network.PodContainer {
	var all []network.PodContainer
	add := func(c *corev1.Container, ends bool) {
		all = append(all, network.PodContainer{Ends: ends, Requests: byName(c.Resources.Requests), Limits: byName(c.Resources.Limits)})
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		add(c, c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways)
	}
	for i := range spec.Containers {
		add(&spec.Containers[i], false)
	}
	return all
}

// byName returns the resources by their names as strings.
func byName(list corev1.ResourceList) map[string]resource.Quantity {
	all := make(map[string]resource.Quantity, len(list))
	for name, quantity := range list {
		all[string(name)] = quantity
	}
	return all
}

// deviceOwners knows which sandbox has which device. Kubelet may allocate a device twice when it has lost
// its checkpoint. The journal's records say who has a device; deviceOwners indexes them.
type deviceOwners struct {
	journal Journal

	mu sync.Mutex
	// owners has the owners by device ID; nil until the journal is read.
	owners map[string]deviceOwner
}

// deviceOwner is a sandbox and its Pod.
type deviceOwner struct {
	key             RecordKey
	namespace, name string
	ifName          string
}

// claim makes the record's sandbox the owner of its devices, or returns ErrDeviceInUse without effect.
func (d *deviceOwners) claim(rec *Record) error {
	wanted := ownersOf(rec)
	if len(wanted) == 0 {
		return nil
	}
	if err := checkDistinct(rec); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.load(); err != nil {
		return err
	}
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		owner, taken := d.owners[ifc.DeviceID]
		if !taken || owner.key == rec.Key() {
			continue
		}
		return withNetwork(ifc.Network.Ref, fmt.Errorf("interface %d (%s), network %s: %w: %w: kubelet has allocated device %s of pool %s to Pod %s/%s, but %s: delete one of the Pods",
			i, ifc.Name, ifc.Network.Ref, ErrDeviceInUse, ErrTryAgain, ifc.DeviceID, ifc.Network.DevicePool,
			rec.PodNamespace, rec.PodName, owner.describe(rec.PodNamespace)))
	}
	maps.Copy(d.owners, wanted)
	return nil
}

// checkDistinct returns an error if two interfaces have the same device, as when it is part of two pools.
func checkDistinct(rec *Record) error {
	first := map[string]string{}
	for i := range rec.Interfaces {
		ifc := &rec.Interfaces[i]
		if other := first[ifc.DeviceID]; ifc.DeviceID != "" && other != "" {
			return withNetwork(ifc.Network.Ref, fmt.Errorf("interface %d (%s), network %s: %w: device %s is interface %s of the Pod already: the device is part of two device pools, and must be part of one: ask a cluster administrator to correct the configuration of the device plugin",
				i, ifc.Name, ifc.Network.Ref, ErrDeviceInUse, ifc.DeviceID, other))
		}
		first[ifc.DeviceID] = ifc.Name
	}
	return nil
}

// describe names the owner to a Pod of the namespace. Tenants must not learn the names of others.
func (o deviceOwner) describe(namespace string) string {
	if o.namespace != namespace {
		return "a Pod of another namespace still has it (DanmEps name it: `kubectl get danmeps -A`)"
	}
	return fmt.Sprintf("interface %s of Pod %s/%s still is that device", o.ifName, o.namespace, o.name)
}

// load reads the owners from the journal, once.
func (d *deviceOwners) load() error {
	if d.owners != nil {
		return nil
	}
	recs, err := d.journal.List()
	if err != nil {
		return fmt.Errorf("find the owners of devices: %w", err)
	}
	owners := map[string]deviceOwner{}
	for _, rec := range recs {
		if rec.State == Released {
			continue
		}
		maps.Copy(owners, ownersOf(rec))
	}
	d.owners = owners
	return nil
}

// devices returns the IDs of the devices that sandboxes have, sorted; none if the journal cannot be read.
func (d *deviceOwners) devices() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.load(); err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(d.owners))
}

// ownersOf returns the record's sandbox as owner of each of its devices.
func ownersOf(rec *Record) map[string]deviceOwner {
	owners := map[string]deviceOwner{}
	for i := range rec.Interfaces {
		if ifc := &rec.Interfaces[i]; ifc.DeviceID != "" {
			owners[ifc.DeviceID] = deviceOwner{key: rec.Key(), namespace: rec.PodNamespace, name: rec.PodName, ifName: ifc.Name}
		}
	}
	return owners
}

// release ends the record's claims. The record must be gone or Released.
func (d *deviceOwners) release(rec *Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, owner := range ownersOf(rec) {
		if d.owners[id].key == owner.key {
			delete(d.owners, id)
		}
	}
}
