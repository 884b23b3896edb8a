// SPDX-License-Identifier: Apache-2.0

// Package podresources reads from kubelet which devices it has allocated to a Pod. Device plugins,
// such as sriov-network-device-plugin, advertise virtual functions as resources of the node; kubelet
// chooses the functions of a Pod, and only its pod-resources API names them.
package podresources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// DefaultSocket is the path of the socket of a kubelet with the default --root-dir.
const DefaultSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"

const (
	// maxMessageSize bounds the answer of kubelet. List has all Pods of the node, with some 100 bytes
	// for each device, CPU and block of memory.
	maxMessageSize = 16 << 20
	// requestTimeout is the time for one call of Devices.
	requestTimeout = 5 * time.Second
	// maxReconnectDelay is the longest time between two attempts to reach a kubelet that is away. A
	// call within that time fails at once.
	maxReconnectDelay = time.Second
)

// Kubelet rejects requests beyond 100 in a second, of all its clients together. gRPC then sends the
// request again, four times in about two seconds.
const serviceConfig = `{"methodConfig": [{
	"name": [{"service": "v1.PodResourcesLister"}],
	"retryPolicy": {
		"maxAttempts": 5, "initialBackoff": "0.05s", "backoffMultiplier": 3, "maxBackoff": "2s",
		"retryableStatusCodes": ["RESOURCE_EXHAUSTED"]
	}
}]}`

// Options are the options of a Client.
type Options struct {
	// HostRoot, such as /host, is the directory with the host's files. It is "/" by default. Links below it
	// are resolved in it, because /var/lib/kubelet is a link on some hosts.
	HostRoot string
}

// Client is a client of kubelet's pod-resources API. It has one connection, and connects again after
// a restart of kubelet.
type Client struct {
	hostRoot string
	conn     *grpc.ClientConn
	kubelet  podresourcesv1.PodResourcesListerClient
	// listOnly means that the kubelet of this connection does not serve Get.
	listOnly atomic.Bool
}

// New returns a Client. It connects with the first call of Devices, so kubelet may be away.
func New(o Options) (*Client, error) {
	c := &Client{hostRoot: cmp.Or(o.HostRoot, "/")}
	delays := backoff.DefaultConfig
	delays.BaseDelay, delays.MaxDelay = maxReconnectDelay/10, maxReconnectDelay
	conn, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return c.dial(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: delays, MinConnectTimeout: requestTimeout}),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageSize)),
	)
	if err != nil {
		return nil, fmt.Errorf("make a client of kubelet's pod-resources API: %w", err)
	}
	c.conn, c.kubelet = conn, podresourcesv1.NewPodResourcesListerClient(conn)
	return c, nil
}

// dial connects to kubelet, which may be a newer one than that of the last connection.
func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	c.listOnly.Store(false)
	root, err := os.Open(c.hostRoot)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	fd, err := unix.Openat2(int(root.Fd()), DefaultSocket, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: DefaultSocket, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	return new(net.Dialer).DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(fd))
}

// Close ends the connection. Calls that are in progress fail.
func (c *Client) Close() error { return c.conn.Close() }

// Devices returns the IDs of the devices that kubelet has allocated to the Pod, by resource name. For
// the functions of sriov-network-device-plugin, an ID is a PCI address. The IDs of a resource are in
// this order: containers in the order of the Pod's spec, init containers first, then device ID. A
// device that several containers share is listed once, at its first place: kubelet lends those of init
// containers to the containers after them. Kubelet does not report the devices of init containers that
// end before the others start, unless it has lent them.
//
// The Pod may be its metadata only. With a spec, Devices also checks that kubelet's containers are
// those of the Pod.
//
// Kubelet identifies the Pod by namespace and name, not by UID. Devices reports an error while it
// knows two Pods of that name, because the devices may be those of the other. All errors wrap
// attach.ErrTryAgain unless ctx is canceled: a Pod that kubelet does not know (yet), a kubelet that
// does not answer within 5 seconds, and one that rejects the request.
func (c *Client) Devices(ctx context.Context, pod *corev1.Pod) (map[string][]string, error) {
	requestCtx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	devices, err := c.read(requestCtx, pod)
	switch {
	case err == nil:
		return devices, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, fmt.Errorf("read the devices of Pod %s/%s from kubelet: %w", pod.Namespace, pod.Name, ctx.Err())
	}
	return nil, fmt.Errorf("read the devices of Pod %s/%s from kubelet: %w: %w", pod.Namespace, pod.Name, attach.ErrTryAgain, c.explain(err))
}

// read reads the devices of the Pod with Get, or with List from a kubelet that does not serve Get.
func (c *Client) read(ctx context.Context, pod *corev1.Pod) (map[string][]string, error) {
	if !c.listOnly.Load() {
		answer, err := c.kubelet.Get(ctx, &podresourcesv1.GetPodResourcesRequest{PodNamespace: pod.Namespace, PodName: pod.Name})
		switch {
		case err == nil:
			return selectDevices(pod, []*podresourcesv1.PodResources{answer.GetPodResources()})
		case !isGetDisabled(err):
			return nil, err
		}
		c.listOnly.Store(true)
	}
	answer, err := c.kubelet.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	return selectDevices(pod, answer.GetPodResources())
}

// isGetDisabled reports whether err is the answer of a kubelet that does not serve Get: before
// Kubernetes 1.27 it has no such method, and until 1.35 it has the feature gate KubeletPodResourcesGet,
// which is off by default before 1.34.
func isGetDisabled(err error) bool {
	answer := status.Convert(err)
	return answer.Code() == codes.Unimplemented ||
		answer.Code() == codes.Unknown && strings.HasSuffix(answer.Message(), "Get method disabled")
}

// explain adds what to do to an error of gRPC.
func (c *Client) explain(err error) error {
	answer, ok := status.FromError(err)
	if !ok {
		return err
	}
	switch answer.Code() {
	case codes.Unavailable:
		return fmt.Errorf("no connection to its socket %s: start kubelet, or correct the path: %s", DefaultSocket, answer.Message())
	case codes.DeadlineExceeded:
		return fmt.Errorf("no answer at its socket %s in time: see the log of kubelet: %s", DefaultSocket, answer.Message())
	default:
		return fmt.Errorf("kubelet answers with code %s: %s", answer.Code(), answer.Message())
	}
}

// selectDevices returns the devices of the Pod, of which there must be one entry.
func selectDevices(pod *corev1.Pod, entries []*podresourcesv1.PodResources) (map[string][]string, error) {
	entries = slices.DeleteFunc(slices.Clone(entries), func(e *podresourcesv1.PodResources) bool {
		return e.GetNamespace() != pod.Namespace || e.GetName() != pod.Name
	})
	switch len(entries) {
	case 0:
		return nil, errors.New("kubelet does not list the Pod yet")
	case 1:
	default:
		return nil, fmt.Errorf("kubelet lists %d Pods of that name: wait until the older one has ended", len(entries))
	}
	containers, err := sortContainers(pod, entries[0].GetContainers())
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for _, container := range containers {
		for resource, ids := range sortIDs(container.GetDevices()) {
			for _, id := range ids {
				if !slices.Contains(all[resource], id) {
					all[resource] = append(all[resource], id)
				}
			}
		}
	}
	return all, nil
}

// sortContainers returns the containers in the order of the Pod's spec. Without a spec, it returns them
// in kubelet's order, which is the same one.
func sortContainers(pod *corev1.Pod, containers []*podresourcesv1.ContainerResources) ([]*podresourcesv1.ContainerResources, error) {
	var names []string
	for i := range pod.Spec.InitContainers {
		names = append(names, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	if len(names) == 0 {
		return containers, nil
	}
	for _, container := range containers {
		if !slices.Contains(names, container.GetName()) {
			return nil, fmt.Errorf("kubelet lists another Pod of that name, with the container %q: wait until that Pod has ended", container.GetName())
		}
	}
	return slices.SortedStableFunc(slices.Values(containers), func(a, b *podresourcesv1.ContainerResources) int {
		return cmp.Compare(slices.Index(names, a.GetName()), slices.Index(names, b.GetName()))
	}), nil
}

// sortIDs returns the IDs of one container's devices by resource. Kubelet lists the devices in random
// order: each in an entry of its own, or in one for each of its NUMA nodes.
func sortIDs(devices []*podresourcesv1.ContainerDevices) map[string][]string {
	ids := map[string][]string{}
	for _, d := range devices {
		ids[d.GetResourceName()] = append(ids[d.GetResourceName()], d.GetDeviceIds()...)
	}
	for _, sorted := range ids {
		slices.Sort(sorted)
	}
	return ids
}
