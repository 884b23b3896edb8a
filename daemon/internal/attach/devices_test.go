// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/pods"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// newDeviceEnvironment returns an environment whose Pod ns/web requests an interface of another plugin
// and two of device pool a/b, and has two devices of that pool.
func newDeviceEnvironment() *environment {
	env := newEnvironment()
	env.add(network.Network{
		Ref: network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "fast"}, ID: "fast", Type: "sriov", Prefix: "vf",
		DevicePool: "a/b", VLAN: 500, V4: subnet("10.0.0.0/29", "10.0.0.1", "10.0.0.6"),
	})
	env.pod(`[{"clusterNetwork":"flat"},{"network":"fast","ip":"dynamic"},{"network":"fast"}]`)
	env.devices = map[string]map[string][]string{"ns/web": {"a/b": {"0000:03:10.2", "0000:03:10.0"}, "c/d": {"x"}}}
	env.functions = map[string]string{}
	return env
}

// Devices implements attach.Devices.
func (d *testDaemon) Devices(ctx context.Context, pod *corev1.Pod) (devices map[string][]string, err error) {
	err = d.call(ctx, "Devices", func() error {
		devices = d.env.devices[pod.Namespace+"/"+pod.Name]
		return nil
	})
	return devices, err
}

// deviceBackend is a backend whose interfaces are devices of the host. Prepare saves the state of a device,
// to which Detach returns it.
type deviceBackend struct{ backend }

func (b deviceBackend) Prepare(ctx context.Context, _ *attach.Request, ifc *attach.Interface) error {
	return b.call(ctx, "Prepare", func() error {
		state, err := json.Marshal(b.env.functions[ifc.DeviceID])
		ifc.DeviceState = state
		return err
	})
}

func (b deviceBackend) Attach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	err := b.call(ctx, "Attach "+ifc.Name, func() error {
		if owner := b.env.functions[ifc.DeviceID]; owner != "" {
			return fmt.Errorf("device %s is %s", ifc.DeviceID, owner)
		}
		b.env.functions[ifc.DeviceID] = rec.ContainerID + "/" + ifc.Name
		return b.make(rec, ifc)
	})
	if err != nil && !b.killed {
		_ = b.remove(rec, ifc)
		b.env.mu.Lock()
		defer b.env.mu.Unlock()
		delete(b.env.functions, ifc.DeviceID)
	}
	return err
}

func (b deviceBackend) Detach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	return b.call(ctx, "Detach "+ifc.Name, func() error {
		delete(b.env.namespaces[rec.Netns], ifc.Name)
		if rec.BootID != b.env.bootID() {
			return nil // the boot has reset the device
		}
		var state string
		err := json.Unmarshal(ifc.DeviceState, &state)
		b.env.functions[ifc.DeviceID] = state
		return err
	})
}

// Interfaces get the devices of their pool in kubelet's order, and the result has their PCI addresses.
func TestAddWithDevices(t *testing.T) {
	t.Parallel()
	env := newDeviceEnvironment()
	d := env.mustStart(t)
	result, err := d.Add(context.Background(), env.sandbox("a"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, i := range result.Interfaces {
		got = append(got, i.Name+" "+i.PciID)
	}
	if diff := cmp.Diff([]string{"veth0 ", "eth0 ", "vf1 0000:03:10.2", "vf2 0000:03:10.0"}, got); diff != "" {
		t.Errorf("interfaces and devices: -want +got:\n%s", diff)
	}
	attached := []string{"0000:03:10.0", "0000:03:10.2"}
	if diff := cmp.Diff(attached, d.AttachedDevices()); diff != "" {
		t.Errorf("devices of Pods: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(attached, env.mustStart(t).AttachedDevices()); diff != "" {
		t.Errorf("devices of Pods after a restart: -want +got:\n%s", diff)
	}
	if calls := d.callsWithPrefix("Devices"); len(calls) != 1 {
		t.Errorf("got %d requests for the Pod's devices, want one", len(calls))
	}
	if calls := d.callsWithPrefix("Parent"); len(calls) > 0 {
		t.Errorf("an interface that is a device needs no host link: %q", calls)
	}
}

func TestTooFewDevices(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		devices map[string][]string
		message string
	}{
		"None": {
			"The Pod requests no device, or another resource.", map[string][]string{"c/d": {"x"}},
			"interface 1 (vf1), network DanmNet/ns/fast: no device allocated: kubelet has allocated 0 of a/b to the Pod",
		},
		"One": {
			"Two networks need two devices.", map[string][]string{"a/b": {"x"}},
			"interface 2 (vf2), network DanmNet/ns/fast: no device allocated: kubelet has allocated 1 of a/b to the Pod, and this is the Pod's interface number 2 of that pool",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newDeviceEnvironment()
			env.devices["ns/web"] = tc.devices
			_, err := env.mustStart(t).Add(context.Background(), env.sandbox("a"))
			if !errors.Is(err, attach.ErrNoDevice) || !strings.Contains(err.Error(), tc.message) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.message)
			}
			if reason := pods.EventReason(err); reason != v1.ReasonDeviceNotAllocated {
				t.Errorf("%s: got reason %s", tc.reason, reason)
			}
			env.mustBeEmpty(t, "after the failed ADD")
		})
	}
}

// A device without an interface has no VLAN, so the Pod could send into all VLANs of the port with it. Patchbay
// does not count devices of pools that no network of the Pod names.
func TestTooManyDevices(t *testing.T) {
	t.Parallel()
	two := map[string][]string{"a/b": {"x", "y"}, "c/d": {"v", "w", "u"}}
	always := corev1.ContainerRestartPolicyAlways
	cases := map[string]struct {
		reason    string
		allocated map[string][]string
		// init and containers are the numbers that they request.
		init, containers []int64
		sidecar          bool
		// message is that of the error, or empty.
		message string
	}{
		"Third":       {reason: "A third device would have no interface.", allocated: map[string][]string{"a/b": {"x", "y", "z"}}, containers: []int64{3}, message: "network DanmNet/ns/fast: the Pod has or requests 3 devices of a/b, and must have 2, one for each interface of that pool: request 2"},
		"Unrequested": {reason: "What kubelet reports counts, whatever the Pod requests.", allocated: map[string][]string{"a/b": {"x", "y", "z"}}, containers: []int64{2}, message: "the Pod has or requests 3 devices of a/b"},
		"Init":        {reason: "Kubelet does not report a device that only an init container has, and that one may run for ever.", allocated: two, init: []int64{3}, containers: []int64{2}, message: "the Pod has or requests 3 devices of a/b"},
		"InitBeside":  {reason: "An init container has its devices beside those of a sidecar.", allocated: two, sidecar: true, init: []int64{2, 1}, containers: []int64{0}, message: "the Pod has or requests 3 devices of a/b"},
		"Lent":        {reason: "The containers get the devices of an init container.", allocated: two, init: []int64{2}, containers: []int64{1, 1}},
		"OtherPool":   {reason: "No network names the other pool.", allocated: two, containers: []int64{2}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newDeviceEnvironment()
			env.devices["ns/web"] = tc.allocated
			spec := &env.pods["ns/web"].Spec
			spec.InitContainers, spec.Containers = containersWith("a/b", tc.init), containersWith("a/b", tc.containers)
			if tc.sidecar {
				spec.InitContainers[0].RestartPolicy = &always
			}
			_, err := env.mustStart(t).Add(context.Background(), env.sandbox("a"))
			if tc.message == "" {
				if err != nil {
					t.Errorf("%s: %v", tc.reason, err)
				}
				return
			}
			if !errors.Is(err, attach.ErrInvalidAnnotation) || !strings.Contains(err.Error(), tc.message) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.message)
			}
			if reason := pods.EventReason(err); reason != v1.ReasonInvalidAnnotations {
				t.Errorf("got reason %s", reason)
			}
			env.mustBeEmpty(t, "after the failed ADD")
		})
	}
}

// containersWith returns containers that request so many devices of a pool each.
func containersWith(pool corev1.ResourceName, counts []int64) []corev1.Container {
	var all []corev1.Container
	for _, count := range counts {
		all = append(all, corev1.Container{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{pool: *resource.NewQuantity(count, resource.DecimalSI)},
		}})
	}
	return all
}

// A device can be part of two pools by mistake.
func TestDeviceOfTwoPools(t *testing.T) {
	t.Parallel()
	env := newDeviceEnvironment()
	env.devices["ns/web"] = map[string][]string{"a/b": {"x", "x"}}
	_, err := env.mustStart(t).Add(context.Background(), env.sandbox("a"))
	if !errors.Is(err, attach.ErrDeviceInUse) || !strings.Contains(err.Error(), "device x is interface vf1 of the Pod already") {
		t.Errorf("got %v, want an error about the device", err)
	}
	env.mustBeEmpty(t, "after the failed ADD")
}

// Kubelet allocates a device twice when it has lost its checkpoint.
func TestDeviceHasOneOwner(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, namespace string
		restart           bool
		message           string
	}{
		"SameDaemon": {
			"The daemon has attached the owner itself.", "ns", false,
			"kubelet has allocated device 0000:03:10.2 of pool a/b to Pod ns/second, but interface vf1 of Pod ns/web still is that device",
		},
		"Restarted": {
			"The journal has the owner of the device.", "ns", true, "interface vf1 of Pod ns/web still is that device",
		},
		"OtherTenant": {
			"Tenants must not learn the names of others' Pods.", "other", true, "a Pod of another namespace still has it",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newDeviceEnvironment()
			d := env.mustStart(t)
			if _, err := d.Add(context.Background(), env.sandbox("a")); err != nil {
				t.Fatal(err)
			}
			d.runPublisher()
			if tc.restart {
				d = env.mustStart(t)
			}
			second := env.secondPod(tc.namespace)
			_, err := d.Add(context.Background(), second)
			if !errors.Is(err, attach.ErrDeviceInUse) || !errors.Is(err, attach.ErrTryAgain) || !strings.Contains(err.Error(), tc.message) {
				t.Fatalf("%s: got %v, want %q", tc.reason, err, tc.message)
			}
			if tc.namespace != "ns" && strings.Contains(err.Error(), "web") {
				t.Errorf("%s: got %v", tc.reason, err)
			}
			if reason := pods.EventReason(err); reason != v1.ReasonDeviceInUse {
				t.Errorf("%s: got reason %s", tc.reason, reason)
			}
			if got := env.functions["0000:03:10.2"]; got != "a/vf1" {
				t.Errorf("%s: the owner's device is %q", tc.reason, got)
			}
			if err := d.Del(context.Background(), request("a")); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Add(context.Background(), second); err != nil {
				t.Errorf("%s: after the owner's DEL: %v", tc.reason, err)
			}
		})
	}
}

// secondPod adds Pod second with the same device as Pod ns/web, and returns the request of its sandbox.
func (env *environment) secondPod(namespace string) attach.Request {
	req := env.sandbox("b")
	env.mu.Lock()
	defer env.mu.Unlock()
	pod := env.pods["ns/web"].DeepCopy()
	pod.Namespace, pod.Name, pod.UID = namespace, "second", "second"
	pod.Annotations[v1.InterfacesAnnotation] = `[{"network":"fast"}]`
	env.pods[namespace+"/second"] = pod
	env.devices[namespace+"/second"] = map[string][]string{"a/b": env.devices["ns/web"]["a/b"][:1]}
	fast := *env.networks[network.Ref{Kind: v1.KindDanmNet, Namespace: "ns", Name: "fast"}]
	fast.Ref.Namespace = namespace
	env.networks[fast.Ref] = &fast
	req.PodNamespace, req.PodName, req.PodUID = namespace, "second", "second"
	return req
}

// A device is free again after each failure of an ADD.
func TestFailedAddFreesDevices(t *testing.T) {
	t.Parallel()
	for k := 1; ; k++ {
		env := newDeviceEnvironment()
		d := env.mustStart(t)
		d.calls, d.faults = nil, map[int]fault{k: {}}
		_, err := d.Add(context.Background(), env.sandbox("a"))
		if err == nil && len(d.calls) < k {
			return
		}
		d.faults = nil
		if err := d.Del(context.Background(), request("a")); err != nil {
			t.Fatalf("DEL after a fault in call %d (%s): %v", k, d.calls[k-1], err)
		}
		if _, err := d.Add(context.Background(), env.secondPod("ns")); err != nil {
			t.Fatalf("another Pod's ADD after a fault in call %d (%s): %v", k, d.calls[k-1], err)
		}
		if owner := env.functions["0000:03:10.2"]; owner != "b/eth0" {
			t.Fatalf("another Pod's ADD after a fault in call %d: the device is %q", k, owner)
		}
	}
}
