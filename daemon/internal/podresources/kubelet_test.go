// SPDX-License-Identifier: Apache-2.0

package podresources_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/patchbay-cni/patchbay/daemon/internal/podresources"
)

// fakeKubelet serves the pod-resources API.
type fakeKubelet struct {
	podresourcesv1.UnimplementedPodResourcesListerServer

	// pods are the Pods that it knows.
	pods []*podresourcesv1.PodResources
	// before, unless it is nil, is called first in each request. The request fails with its error.
	before func(ctx context.Context, method string) error
	// gets and lists count the requests.
	gets, lists atomic.Int32
}

// Get answers like a kubelet of Kubernetes 1.37: with one Pod of that name.
func (k *fakeKubelet) Get(ctx context.Context, req *podresourcesv1.GetPodResourcesRequest) (*podresourcesv1.GetPodResourcesResponse, error) {
	k.gets.Add(1)
	if k.before != nil {
		if err := k.before(ctx, "Get"); err != nil {
			return nil, err
		}
	}
	for _, pod := range k.pods {
		if pod.GetNamespace() == req.GetPodNamespace() && pod.GetName() == req.GetPodName() {
			return &podresourcesv1.GetPodResourcesResponse{PodResources: pod}, nil
		}
	}
	return nil, fmt.Errorf("pod %s in namespace %s not found", req.GetPodName(), req.GetPodNamespace())
}

// List implements podresourcesv1.PodResourcesListerServer.
func (k *fakeKubelet) List(ctx context.Context, _ *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	k.lists.Add(1)
	if k.before != nil {
		if err := k.before(ctx, "List"); err != nil {
			return nil, err
		}
	}
	return &podresourcesv1.ListPodResourcesResponse{PodResources: k.pods}, nil
}

// host is a folder with the files of a host.
type host struct{ root string }

func newHost(t *testing.T) host {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, filepath.Dir(podresources.DefaultSocket)), 0o700); err != nil {
		t.Fatal(err)
	}
	return host{root: root}
}

// start starts a kubelet at the default socket, until its end or that of the test.
func (h host) start(t *testing.T, kubelet *fakeKubelet) (stop func()) {
	t.Helper()
	// The path of a socket has 107 bytes at most, which that of the test's folder may exceed.
	dir, err := os.Open(filepath.Join(h.root, filepath.Dir(podresources.DefaultSocket)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	name := filepath.Base(podresources.DefaultSocket)
	if err := os.RemoveAll(filepath.Join(dir.Name(), name)); err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false) // the path is of no use later
	server := grpc.NewServer()
	podresourcesv1.RegisterPodResourcesListerServer(server, kubelet)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	stop = func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("fake kubelet: %v", err)
		}
		served <- nil
	}
	t.Cleanup(stop)
	return stop
}

// client returns a client of the host's kubelet.
func (h host) client(t *testing.T) *podresources.Client {
	t.Helper()
	client, err := podresources.New(podresources.Options{HostRoot: h.root})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return client
}

// readPods reads the Pods in the answers to List in testdata. Each file names its source.
func readPods(t *testing.T) []*podresourcesv1.PodResources {
	t.Helper()
	files, err := filepath.Glob("testdata/*.textproto")
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata: got files %v and error %v, want answers to List", files, err)
	}
	var pods []*podresourcesv1.PodResources
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		answer := &podresourcesv1.ListPodResourcesResponse{}
		if err := prototext.Unmarshal(content, answer); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		pods = append(pods, answer.GetPodResources()...)
	}
	return pods
}

// podWith returns a Pod with these containers.
func podWith(namespace, name string, initContainers, containers []string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, c := range initContainers {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: c})
	}
	for _, c := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c})
	}
	return pod
}
