// SPDX-License-Identifier: Apache-2.0

package podresources_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/podresources"
)

// errGetDisabled is what a kubelet answers without the feature gate KubeletPodResourcesGet.
var errGetDisabled = errors.New("PodResources API Get method disabled")

// withoutGet rejects Get like a kubelet without the feature gate.
func withoutGet(_ context.Context, method string) error {
	if method == "Get" {
		return errGetDisabled
	}
	return nil
}

func TestDevices(t *testing.T) {
	t.Parallel()
	const netdevice, dual = "intel.com/intel_sriov_netdevice", "example.com/dual"
	for name, tc := range map[string]struct {
		reason string
		pod    *corev1.Pod
		want   map[string][]string
	}{
		"ThreePools": {
			"Kubelet lists devices in random order, so a container's are sorted by ID. The containers are in the order of the spec.",
			podWith("default", "three-pools", nil, []string{"interfaces", "packets"}),
			map[string][]string{
				"example.com/sriov_ens4": {"0000:01:10.0", "0000:01:10.2"},
				"example.com/sriov_ens5": {"0000:02:11.2", "0000:02:11.4", "0000:02:10.2"},
				"example.com/dpdk_ens4":  {"0000:01:11.0", "0000:01:11.2"},
			},
		},
		"Sidecar": {
			"A sidecar is listed, and the function of another init container with the container that has it now.",
			podWith("default", "sidecar", []string{"setup", "sidecar"}, []string{"app"}),
			map[string][]string{
				"example.com/sriov_ens4": {"0000:01:10.4", "0000:01:10.6"},
				"example.com/sriov_ens5": {"0000:02:10.0"},
			},
		},
		"SeveralContainers": {
			"Containers are in the order of the spec, a device with two NUMA nodes or two containers is listed once, and dynamic resources are none.",
			podWith("core", "upf-0", []string{"migrate", "sidecar"}, []string{"dataplane", "offload"}),
			map[string][]string{
				netdevice:           {"0000:03:02.1", "0000:03:02.0", "0000:03:04.3"},
				dual:                {"0000:3b:02.1", "0000:3b:02.6"},
				"nvidia.com/bf2_sf": {"mlx5_core.sf.4"},
			},
		},
		"OrderOfSpec": {
			"The spec decides even if a kubelet lists the containers in another order.",
			podWith("core", "upf-0", nil, []string{"offload", "dataplane", "sidecar"}),
			map[string][]string{
				netdevice:           {"0000:03:02.1", "0000:03:02.0", "0000:03:04.3"},
				dual:                {"0000:3b:02.1", "0000:3b:02.6"},
				"nvidia.com/bf2_sf": {"mlx5_core.sf.4"},
			},
		},
		"Metadata": {
			"The daemon's cache has no specs. Kubelet lists the containers in the order of the spec.",
			podWith("core", "upf-0", nil, nil),
			map[string][]string{
				netdevice:           {"0000:03:02.1", "0000:03:02.0", "0000:03:04.3"},
				dual:                {"0000:3b:02.1", "0000:3b:02.6"},
				"nvidia.com/bf2_sf": {"mlx5_core.sf.4"},
			},
		},
		"Namespace": {
			"A Pod of the same name in another namespace is another Pod.",
			podWith("staging", "upf-0", nil, []string{"dataplane"}),
			map[string][]string{netdevice: {"0000:03:02.7"}},
		},
		"NoDevices": {
			"A Pod without devices is no error: the caller knows what it needs.",
			podWith("default", "plain", nil, []string{"main"}),
			map[string][]string{},
		},
		"RecordedTwoPools": {
			"A kubelet lists each device in an entry of its own.",
			podWith("default", "two-pools", nil, []string{"first", "second"}),
			map[string][]string{
				"example.com/sriov_ens4": {"0000:01:10.3", "0000:01:10.4", "0000:01:10.6"},
				"example.com/dpdk":       {"0000:02:10.0"},
			},
		},
		"RecordedInitContainers": {
			"A kubelet does not list init containers that end, and lists sidecars first.",
			podWith("default", "init-containers", []string{"setup", "sidecar"}, []string{"app"}),
			map[string][]string{"example.com/sriov_ens4": {"0000:01:10.0", "0000:01:10.5"}},
		},
		"RecordedLent": {
			"The function of an init container is listed with the container that has it now.",
			podWith("default", "lent", []string{"setup"}, []string{"plain", "app"}),
			map[string][]string{"example.com/sriov_ens4": {"0000:01:10.1"}},
		},
	} {
		for method, before := range map[string]func(context.Context, string) error{"Get": nil, "List": withoutGet} {
			t.Run(name+"/"+method, func(t *testing.T) {
				t.Parallel()
				h := newHost(t)
				h.start(t, &fakeKubelet{pods: readPods(t), before: before})
				got, err := h.client(t).Devices(t.Context(), tc.pod)
				if err != nil {
					t.Fatalf("%s: %v", tc.reason, err)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s\n-want +got:\n%s", tc.reason, diff)
				}
			})
		}
	}
}

// The result does not depend on the order in which kubelet lists Pods, and the devices of a container.
func TestOrderIsStable(t *testing.T) {
	t.Parallel()
	pod := podWith("core", "upf-0", []string{"sidecar"}, []string{"dataplane", "offload"})
	kubelet := &fakeKubelet{pods: readPods(t), before: withoutGet}
	h := newHost(t)
	h.start(t, kubelet)
	client := h.client(t)
	want, err := client.Devices(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		kubelet.pods = rapid.Permutation(readPods(t)).Draw(rt, "pods")
		for _, entry := range kubelet.pods {
			for _, container := range entry.GetContainers() {
				container.Devices = rapid.Permutation(container.GetDevices()).Draw(rt, "devices")
			}
		}
		got, err := client.Devices(t.Context(), pod)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Errorf("-want +got:\n%s", diff)
		}
	})
}

// Errors name the Pod and what to do, and wrap attach.ErrTryAgain, because a retry may succeed.
func TestErrors(t *testing.T) {
	t.Parallel()
	huge := &podresourcesv1.PodResources{Namespace: "core", Name: "smf-0", Containers: []*podresourcesv1.ContainerResources{{
		Name: strings.Repeat("x", 16<<20),
	}}}
	for name, tc := range map[string]struct {
		reason  string
		pod     *corev1.Pod
		kubelet *fakeKubelet
		want    []string
	}{
		"Unknown": {
			"Kubelet may have rejected the Pod, or not seen it yet.",
			podWith("core", "new", nil, nil), &fakeKubelet{},
			[]string{"Pod core/new", "not found"},
		},
		"UnknownInList": {
			"The same, from a kubelet without Get.",
			podWith("core", "new", nil, nil), &fakeKubelet{before: withoutGet},
			[]string{"Pod core/new", "does not list the Pod"},
		},
		"TwoOfOneName": {
			"Entries have no UID, so either may be the Pod's.",
			podWith("core", "smf-0", nil, []string{"smf"}),
			&fakeKubelet{pods: readPods(t), before: withoutGet},
			[]string{"Pod core/smf-0", "2 Pods of that name"},
		},
		"OtherContainers": {
			"The entry is of a Pod that had the name before.",
			podWith("core", "smf-0", nil, []string{"smf-2"}),
			&fakeKubelet{pods: readPods(t)},
			[]string{"Pod core/smf-0", "another Pod of that name", `container "smf"`},
		},
		"NoKubelet": {
			"The path is named, because --root-dir of kubelet moves it.",
			podWith("core", "smf-0", nil, nil), nil,
			[]string{podresources.DefaultSocket, "start kubelet, or correct the path", "no such file"},
		},
		"Rejected": {
			"Any other error may be over with the next request.",
			podWith("core", "smf-0", nil, nil),
			&fakeKubelet{before: func(context.Context, string) error { return status.Error(codes.Internal, "checkpoint is corrupted") }},
			[]string{"code Internal", "checkpoint is corrupted"},
		},
		"TooLarge": {
			"An answer of any size would exhaust the daemon's memory.",
			podWith("core", "smf-0", nil, nil), &fakeKubelet{pods: []*podresourcesv1.PodResources{huge}},
			[]string{"code ResourceExhausted", "larger than max"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			if tc.kubelet != nil {
				h.start(t, tc.kubelet)
			}
			_, err := h.client(t).Devices(t.Context(), tc.pod)
			if !errors.Is(err, attach.ErrTryAgain) {
				t.Fatalf("%s: got %v, want an error that wraps ErrTryAgain", tc.reason, err)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: got %q, want %q in it", tc.reason, err, part)
				}
			}
		})
	}
}

// The client sends only List to a kubelet without Get, until kubelet restarts: the new one may serve Get.
func TestGetIsTriedOncePerKubelet(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		answer error
	}{
		"FeatureGate": {"KubeletPodResourcesGet is off by default before Kubernetes 1.34.", errGetDisabled},
		"NoMethod":    {"Kubernetes 1.26 has no Get.", status.Error(codes.Unimplemented, "unknown method Get for service v1.PodResourcesLister")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, pod := newHost(t), podWith("default", "three-pools", nil, nil)
			client, pods := h.client(t), readPods(t)
			old := &fakeKubelet{pods: pods, before: func(_ context.Context, method string) error {
				if method == "Get" {
					return tc.answer
				}
				return nil
			}}
			stop := h.start(t, old)
			for range 3 {
				if _, err := client.Devices(t.Context(), pod); err != nil {
					t.Fatalf("%s: %v", tc.reason, err)
				}
			}
			if gets, lists := old.gets.Load(), old.lists.Load(); gets != 1 || lists != 3 {
				t.Errorf("%s: kubelet got %d Get and %d List, want 1 and 3", tc.reason, gets, lists)
			}
			stop()
			updated := &fakeKubelet{pods: pods}
			h.start(t, updated)
			waitForDevices(t, client, pod) // this call connects, and may still be a List
			if _, err := client.Devices(t.Context(), pod); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if gets := updated.gets.Load(); gets < 1 {
				t.Errorf("%s: the new kubelet got %d Get, want at least 1", tc.reason, gets)
			}
		})
	}
}

// waitForDevices reads the devices until it succeeds, as kubelet repeats an ADD.
func waitForDevices(t *testing.T, client *podresources.Client, pod *corev1.Pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		_, err := client.Devices(ctx, pod)
		if err == nil {
			return
		}
		if !errors.Is(err, attach.ErrTryAgain) || ctx.Err() != nil {
			t.Fatalf("after the restart of kubelet: %v", err)
		}
	}
}

// Kubelet's limit is for all of its clients together. A burst of ADDs beyond it succeeds.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	h, rejected := newHost(t), 0
	kubelet := &fakeKubelet{pods: readPods(t), before: func(context.Context, string) error {
		if rejected++; rejected <= 3 {
			return status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}
		return nil
	}}
	h.start(t, kubelet)
	if _, err := h.client(t).Devices(t.Context(), podWith("default", "three-pools", nil, nil)); err != nil {
		t.Fatal(err)
	}
	if got := kubelet.gets.Load(); got != 4 {
		t.Errorf("requests: got %d, want 3 that are rejected and one more", got)
	}
}

// A retry may succeed after a deadline: kubelet may have been busy.
func TestDeadline(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.start(t, &fakeKubelet{before: func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return ctx.Err()
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := h.client(t).Devices(ctx, podWith("core", "smf-0", nil, nil))
	if !errors.Is(err, attach.ErrTryAgain) || !strings.Contains(err.Error(), "no answer at its socket "+podresources.DefaultSocket) {
		t.Errorf("got %v, want an error that wraps ErrTryAgain and names the socket", err)
	}
}

// A caller that cancels its request does not ask for a retry.
func TestCanceled(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h.start(t, &fakeKubelet{before: func(requestCtx context.Context, _ string) error {
		cancel()
		<-requestCtx.Done()
		return requestCtx.Err()
	}})
	_, err := h.client(t).Devices(ctx, podWith("core", "smf-0", nil, nil))
	if !errors.Is(err, context.Canceled) || errors.Is(err, attach.ErrTryAgain) {
		t.Errorf("got %v, want context.Canceled without ErrTryAgain", err)
	}
}

// Some hosts have kubelet's folder elsewhere, and an absolute link to it. It is a path of the host.
func TestLinkedRootDir(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.start(t, &fakeKubelet{pods: readPods(t)})
	folder, data := filepath.Join(h.root, "var/lib/kubelet"), filepath.Join(h.root, "data")
	if err := errors.Join(os.Mkdir(data, 0o700), os.Rename(folder, filepath.Join(data, "kubelet")), os.Symlink("/data/kubelet", folder)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.client(t).Devices(t.Context(), podWith("default", "three-pools", nil, nil)); err != nil {
		t.Error(err)
	}
}

// Many ADDs share the connection.
func TestConcurrentCalls(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.start(t, &fakeKubelet{pods: readPods(t), before: withoutGet})
	client, results := h.client(t), make(chan error)
	for range 20 {
		go func() {
			devices, err := client.Devices(t.Context(), podWith("default", "three-pools", nil, nil))
			if err == nil && len(devices["example.com/sriov_ens5"]) != 3 {
				err = fmt.Errorf("got %v, want 3 functions", devices)
			}
			results <- err
		}()
	}
	for range 20 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}
