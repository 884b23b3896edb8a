// SPDX-License-Identifier: Apache-2.0

package deviceplugin_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/patchbay-cni/patchbay/test/deviceplugin"
)

// fakeSysfs is a folder with the files of sysfs that the plugin reads.
type fakeSysfs struct {
	t    *testing.T
	root string
}

// newSysfs has the physical functions ens4, with two virtual functions on NUMA node 1, and ens5, whose
// two virtual functions are bound to vfio-pci and have one IOMMU group.
func newSysfs(t *testing.T) fakeSysfs {
	t.Helper()
	s := fakeSysfs{t: t, root: t.TempDir()}
	s.addPhysicalFunction("ens4", "0000:01:00.0")
	s.addPhysicalFunction("ens5", "0000:02:00.0")
	for i := range 2 {
		s.addFunction("0000:01:00.0", i, fmt.Sprintf("0000:01:10.%d", i), "igbvf", 1, 20+i)
		s.addFunction("0000:02:00.0", i, fmt.Sprintf("0000:02:10.%d", i), "vfio-pci", -1, 30)
	}
	return s
}

func (s fakeSysfs) addPhysicalFunction(netdev, address string) {
	s.t.Helper()
	s.write(filepath.Join("bus/pci/devices", address, "sriov_numvfs"), "2")
	s.link(filepath.Join("class/net", netdev, "device"), filepath.Join("../../../bus/pci/devices", address))
}

func (s fakeSysfs) addFunction(parent string, index int, address, driver string, numaNode, group int) {
	s.t.Helper()
	folder := filepath.Join("bus/pci/devices", address)
	s.write(filepath.Join(folder, "numa_node"), strconv.Itoa(numaNode)+"\n")
	s.link(filepath.Join(folder, "driver"), "../../../../bus/pci/drivers/"+driver)
	s.link(filepath.Join(folder, "iommu_group"), "../../../../kernel/iommu_groups/"+strconv.Itoa(group))
	s.link(filepath.Join("bus/pci/devices", parent, fmt.Sprintf("virtfn%d", index)), "../"+address)
}

func (s fakeSysfs) write(path, text string) {
	s.t.Helper()
	path = filepath.Join(s.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		s.t.Fatal(err)
	}
}

func (s fakeSysfs) link(path, target string) {
	s.t.Helper()
	path = filepath.Join(s.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink(target, path)); err != nil {
		s.t.Fatal(err)
	}
}

// run runs a plugin until the end of the test.
func run(t *testing.T, dir string, sysfs fakeSysfs, resources ...deviceplugin.Resource) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- deviceplugin.Run(ctx, deviceplugin.Options{
			Resources: resources, Dir: dir, Sysfs: sysfs.root, Interval: time.Millisecond,
			Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		sockets, err := filepath.Glob(filepath.Join(dir, "example.com_*"))
		if err != nil || len(sockets) > 0 {
			t.Errorf("sockets after the end: got %v and error %v, want none", sockets, err)
		}
	})
}

var (
	ens4 = deviceplugin.Resource{Name: "example.com/sriov_ens4", PhysicalFunctions: []string{"ens4"}}
	dpdk = deviceplugin.Resource{Name: "example.com/dpdk-ens5", Functions: []string{"0000:02:10.1", "0000:02:10.0"}}
)

// device returns a healthy device on these NUMA nodes.
func device(id string, nodes ...int64) *pluginapi.Device {
	d := &pluginapi.Device{ID: id, Health: pluginapi.Healthy}
	for _, node := range nodes {
		d.Topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: node}}}
	}
	return d
}

// checkDevices compares a list of devices.
func checkDevices(t *testing.T, got []*pluginapi.Device, want ...*pluginapi.Device) {
	t.Helper()
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("devices: -want +got:\n%s", diff)
	}
}

// Each resource registers, with the functions of its physical function or those given by address.
func TestRegisters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kubelet := startKubelet(t, dir)
	run(t, dir, newSysfs(t), ens4, dpdk)
	for _, want := range []struct {
		resource string
		devices  []*pluginapi.Device
	}{
		{ens4.Name, []*pluginapi.Device{device("0000:01:10.0", 1), device("0000:01:10.1", 1)}},
		{dpdk.Name, []*pluginapi.Device{device("0000:02:10.0"), device("0000:02:10.1")}},
	} {
		r := kubelet.wait()
		if r.request.GetResourceName() != want.resource || r.request.GetVersion() != "v1beta1" {
			t.Errorf("registration: got %v, want %s of version v1beta1", r.request, want.resource)
		}
		checkDevices(t, r.watch(t)(), want.devices...)
	}
}

// The plugin may start before kubelet, and kubelet may restart. It deletes the plugin's sockets then.
func TestKubeletRestarts(t *testing.T) {
	t.Parallel()
	dir, sysfs := t.TempDir(), newSysfs(t)
	run(t, dir, sysfs, ens4)
	for range 3 {
		kubelet := startKubelet(t, dir)
		checkDevices(t, kubelet.wait().watch(t)(), device("0000:01:10.0", 1), device("0000:01:10.1", 1))
		kubelet.server.Stop()
	}
}

// Functions that appear later are sent to kubelet, and missing ones are unhealthy.
func TestFunctionsChange(t *testing.T) {
	t.Parallel()
	dir, sysfs := t.TempDir(), newSysfs(t)
	kubelet := startKubelet(t, dir)
	late := deviceplugin.Resource{Name: "example.com/late", Functions: []string{"0000:02:10.7"}}
	run(t, dir, sysfs, ens4, late)
	functions, missing := kubelet.wait().watch(t), kubelet.wait().watch(t)
	checkDevices(t, functions(), device("0000:01:10.0", 1), device("0000:01:10.1", 1))
	checkDevices(t, missing(), &pluginapi.Device{ID: "0000:02:10.7", Health: pluginapi.Unhealthy})

	if err := os.MkdirAll(filepath.Join(sysfs.root, "bus/pci/devices/0000:02:10.7"), 0o700); err != nil {
		t.Fatal(err)
	}
	checkDevices(t, missing(), device("0000:02:10.7"))
	sysfs.addFunction("0000:01:00.0", 2, "0000:01:10.2", "igbvf", 1, 22)
	checkDevices(t, functions(), device("0000:01:10.0", 1), device("0000:01:10.1", 1), device("0000:01:10.2", 1))
}

// The physical function may get its netdev, or its name, after the plugin has started.
func TestPhysicalFunctionAppears(t *testing.T) {
	t.Parallel()
	dir, sysfs := t.TempDir(), newSysfs(t)
	kubelet := startKubelet(t, dir)
	run(t, dir, sysfs, deviceplugin.Resource{Name: "example.com/renamed", PhysicalFunctions: []string{"trunk"}})
	functions := kubelet.wait().watch(t)
	checkDevices(t, functions())
	if err := os.Rename(filepath.Join(sysfs.root, "class/net/ens4"), filepath.Join(sysfs.root, "class/net/trunk")); err != nil {
		t.Fatal(err)
	}
	checkDevices(t, functions(), device("0000:01:10.0", 1), device("0000:01:10.1", 1))
}

func TestAllocate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kubelet := startKubelet(t, dir)
	run(t, dir, newSysfs(t), ens4, dpdk)
	netdevices, userspace := kubelet.wait().plugin, kubelet.wait().plugin
	node := func(path string) *pluginapi.DeviceSpec {
		return &pluginapi.DeviceSpec{HostPath: path, ContainerPath: path, Permissions: "rw"}
	}
	for name, tc := range map[string]struct {
		reason    string
		plugin    pluginapi.DevicePluginClient
		ids       []string
		want      *pluginapi.ContainerAllocateResponse
		wantError string
	}{
		"Netdevices": {
			reason: "The order is kubelet's. A function with a netdev has no device node.",
			plugin: netdevices, ids: []string{"0000:01:10.1", "0000:01:10.0"},
			want: &pluginapi.ContainerAllocateResponse{
				Envs: map[string]string{"PCIDEVICE_EXAMPLE_COM_SRIOV_ENS4": "0000:01:10.1,0000:01:10.0"},
			},
		},
		"Userspace": {
			reason: "Functions of one IOMMU group share its device node. A hyphen stays in the variable's name.",
			plugin: userspace, ids: []string{"0000:02:10.0", "0000:02:10.1"},
			want: &pluginapi.ContainerAllocateResponse{
				Envs:    map[string]string{"PCIDEVICE_EXAMPLE_COM_DPDK-ENS5": "0000:02:10.0,0000:02:10.1"},
				Devices: []*pluginapi.DeviceSpec{node("/dev/vfio/30"), node("/dev/vfio/vfio")},
			},
		},
		"Unknown": {
			reason: "A container without its function must not start.",
			plugin: userspace, ids: []string{"0000:02:10.0", "0000:01:10.0"},
			wantError: "resource example.com/dpdk-ens5: function 0000:01:10.0: must exist",
		},
	} {
		answer, err := tc.plugin.Allocate(t.Context(), &pluginapi.AllocateRequest{
			ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: tc.ids}},
		})
		if tc.wantError != "" {
			if err == nil || !strings.Contains(err.Error(), tc.wantError) {
				t.Errorf("%s: %s: got error %v, want %q in it", name, tc.reason, err, tc.wantError)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %s: %v", name, tc.reason, err)
			continue
		}
		want := []*pluginapi.ContainerAllocateResponse{tc.want}
		if diff := cmp.Diff(want, answer.GetContainerResponses(), protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s\n-want +got:\n%s", name, tc.reason, diff)
		}
	}
}

func TestParseOptions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, args string
		want         []deviceplugin.Resource
		wantError    string
	}{
		"PhysicalFunction": {
			reason: "A netdev stands for all of its virtual functions.",
			args:   "-resource example.com/sriov_ens4=ens4", want: []deviceplugin.Resource{ens4},
		},
		"Mixed": {
			reason: "Addresses and netdevs may be mixed, and the flag repeated.",
			args:   "-resource example.com/sriov_ens4=ens4 -resource example.com/mixed=0000:02:10.1,ens5,10000:e1:00.3",
			want: []deviceplugin.Resource{ens4, {
				Name: "example.com/mixed", PhysicalFunctions: []string{"ens5"}, Functions: []string{"0000:02:10.1", "10000:e1:00.3"},
			}},
		},
		"None":      {reason: "A plugin without resources is a mistake.", args: "", wantError: "-resource: must be given"},
		"NoDomain":  {reason: "Kubelet accepts extended resources only.", args: "-resource sriov=ens4", wantError: `name "sriov": must be a domain and a name`},
		"NoName":    {reason: "The resource needs a name.", args: "-resource =ens4", wantError: `name "": must be`},
		"Empty":     {reason: "A resource without functions is a mistake.", args: "-resource example.com/a=", wantError: `function "" of example.com/a: must be`},
		"Path":      {reason: "The name of a netdev must not leave sysfs.", args: "-resource example.com/a=../ens4", wantError: `function "../ens4" of example.com/a: must be`},
		"Twice":     {reason: "Kubelet would allocate the function twice.", args: "-resource example.com/a=ens4 -resource example.com/b=ens4", wantError: "ens4 must be in one resource"},
		"SameName":  {reason: "Kubelet has one plugin for each resource.", args: "-resource example.com/a=ens4 -resource example.com/a=ens5", wantError: "example.com/a must be in one resource"},
		"Argument":  {reason: "A forgotten flag must not be ignored.", args: "-resource example.com/a=ens4 ens5", wantError: "must be none besides flags"},
		"Interval":  {reason: "A ticker needs a duration.", args: "-resource example.com/a=ens4 -interval 0s", wantError: "-interval: must be positive"},
		"OtherFlag": {reason: "Unknown flags are mistakes.", args: "-config x", wantError: "not defined"},
		"Help":      {reason: "Help ends the program.", args: "-help", wantError: flag.ErrHelp.Error()},
	} {
		got, err := deviceplugin.ParseOptions(strings.Fields(tc.args), io.Discard)
		if tc.wantError != "" {
			if err == nil || !strings.Contains(err.Error(), tc.wantError) {
				t.Errorf("%s: %s: got error %v, want %q in it", name, tc.reason, err, tc.wantError)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %s: %v", name, tc.reason, err)
		}
		if diff := cmp.Diff(tc.want, got.Resources); diff != "" {
			t.Errorf("%s: %s\n-want +got:\n%s", name, tc.reason, diff)
		}
	}
}
