// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// podNamespace is the namespace of all Pods that are attached.
const podNamespace = "bench"

// clients is how many requests this program makes at a time.
const clients = 16

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

func networkName(i int) string { return fmt.Sprintf("net-%04d", i) }

// nodeAddress is the address of a node: hostAddress of the first one.
func nodeAddress(i int) string {
	return netip.AddrFrom4([4]byte{10, 89, byte((i + 1) >> 8), byte(i + 1)}).String()
}

// podAddress is the k-th address that the copies use in a network.
func podAddress(network, k int) string {
	const first = 10
	return fmt.Sprintf("10.%d.%d.%d/16", 100+network%100, (first+k)>>8, (first+k)&255)
}

// fill makes the nodes, the networks, and all Pods with their interfaces.
func (c *cluster) fill(ctx context.Context) error {
	if err := c.env.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: podNamespace}}); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	if err := each(ctx, c.nodes, c.createNode); err != nil {
		return err
	}
	if err := each(ctx, c.networks, c.createNetwork); err != nil {
		return err
	}
	report, endpoint, err := c.runDaemon(ctx)
	if err != nil {
		return err
	}
	nets := &v1.ClusterNetworkList{}
	if err := c.env.Client.List(ctx, nets); err != nil {
		return fmt.Errorf("list networks: %w", err)
	}
	return each(ctx, c.nodes, func(ctx context.Context, i int) error {
		host := &corev1.Node{}
		if err := c.env.Client.Get(ctx, client.ObjectKey{Name: nodeName(i)}, host); err != nil {
			return fmt.Errorf("read node: %w", err)
		}
		if i > 0 {
			if err := c.copyReport(ctx, report, i, host); err != nil {
				return err
			}
		}
		for j := range c.pods {
			if i == 0 && j == 0 {
				continue // the attached one
			}
			// The first network has the addresses of the daemon's warm pool.
			at := i*c.pods + j
			network := at % c.networks
			if c.networks > 1 {
				network = 1 + at%(c.networks-1)
			}
			address := podAddress(network, at/max(1, c.networks-1))
			if err := c.copyEndpoint(ctx, endpoint, i, host, &nets.Items[network], fmt.Sprintf("pod-%d", at), address); err != nil {
				return err
			}
		}
		return nil
	})
}

// each calls do with each number below n, many at a time.
func each(ctx context.Context, n int, do func(context.Context, int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(clients)
	for i := range n {
		all.Go(func() error { return do(ctx, i) })
	}
	return all.Wait()
}

func (c *cluster) createNode(ctx context.Context, i int) error {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{
		corev1.LabelHostname: nodeName(i), corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", corev1.LabelTopologyZone: "zone-a",
	}}}
	if err := c.env.Client.Create(ctx, n); err != nil {
		return fmt.Errorf("create node: %w", err)
	}
	return nil
}

func (c *cluster) createNetwork(ctx context.Context, i int) error {
	n := &v1.ClusterNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: networkName(i)},
		Spec: v1.NetworkSpec{NetworkID: fmt.Sprintf("n%d", i), NetworkType: v1.TypeMACVLAN, Options: v1.NetworkOptions{
			Device: hostDevice, VXLAN: int32(1000 + i), CIDR: fmt.Sprintf("10.%d.0.0/16", 100+i%100),
		}},
	}
	if err := c.env.Client.Create(ctx, n); err != nil {
		return fmt.Errorf("create network: %w", err)
	}
	return nil
}

// runDaemon runs the daemon of the first node until it has reported all links and attached a Pod. It returns what
// the daemon has written about both.
func (c *cluster) runDaemon(ctx context.Context) (*v1.NodeNetwork, *v1.DanmEp, error) {
	own := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: patchbaySystem, Name: "daemon"},
		Spec:       corev1.PodSpec{NodeName: firstNode, ServiceAccountName: c.daemon.name, Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
	if err := c.env.Client.Create(ctx, own); err != nil {
		return nil, nil, fmt.Errorf("create Pod of the daemon: %w", err)
	}
	if err := errors.Join(
		c.daemon.authorize(ctx, c.env, c.dir, own), c.controller.authorize(ctx, c.env, c.dir, nil), c.operator.authorize(ctx, c.env, c.dir, nil),
	); err != nil {
		return nil, nil, err
	}
	if err := c.daemon.start(ctx, c.dir); err != nil {
		return nil, nil, err
	}
	report, endpoints := &v1.NodeNetwork{}, &v1.DanmEpList{}
	err := await(ctx, "the daemon's report", func(ctx context.Context) error {
		err := c.env.Client.Get(ctx, client.ObjectKey{Name: firstNode}, report)
		up := 0
		for _, l := range report.Status.Links {
			if l.State == v1.LinkUp {
				up++
			}
		}
		if err == nil && up != c.networks {
			err = fmt.Errorf("%w: %d of %d links are up", errNotReady, up, c.networks)
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if err := c.attachPod(ctx); err != nil {
		return nil, nil, err
	}
	err = await(ctx, "the DanmEp", func(ctx context.Context) error {
		err := c.env.Client.List(ctx, endpoints, client.InNamespace(podNamespace))
		if err == nil && len(endpoints.Items) != 1 {
			err = fmt.Errorf("%w: %d DanmEps", errNotReady, len(endpoints.Items))
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	// It does not clean up, as it would when its DaemonSet does not exist.
	return report, &endpoints.Items[0], c.daemon.id.Kill(ctx)
}

// attachPod attaches a Pod on the first node, as a runtime does.
func (c *cluster) attachPod(ctx context.Context) error {
	pod, err := c.createPod(ctx, 0, networkName(0), "attached")
	if err != nil {
		return err
	}
	c.sandbox = exec.Command("sleep", "infinity")
	c.sandbox.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := c.sandbox.Start(); err != nil {
		return fmt.Errorf("start sandbox: %w", err)
	}
	plugin := exec.CommandContext(ctx, filepath.Join(c.dir, "patchbay"))
	plugin.Env = []string{
		"CNI_COMMAND=ADD", "CNI_CONTAINERID=" + strings.Repeat("0123456789abcdef", 4), fmt.Sprintf("CNI_NETNS=/proc/%d/ns/net", c.sandbox.Process.Pid),
		"CNI_IFNAME=eth0", "CNI_PATH=" + c.dir,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=" + podNamespace + ";K8S_POD_NAME=" + pod.Name + ";K8S_POD_UID=" + string(pod.UID),
	}
	plugin.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion":"1.0.0","name":"bench","type":"patchbay","socket":%q}`, filepath.Join(c.dir, "socket")))
	if out, err := plugin.CombinedOutput(); err != nil {
		return fmt.Errorf("attach Pod: %w: %s", err, out)
	}
	return nil
}

// createPod creates a Pod with an interface, as it is when it runs.
func (c *cluster) createPod(ctx context.Context, node int, network, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: podNamespace, Name: name, Labels: map[string]string{"app": "bench"},
			Annotations: map[string]string{v1.InterfacesAnnotation: fmt.Sprintf(`[{"clusterNetwork":%q,"ip":"dynamic"}]`, network)},
		},
		Spec: corev1.PodSpec{NodeName: nodeName(node), Containers: []corev1.Container{{
			Name: "main", Image: "registry.example/app:1", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}},
		}}},
	}
	if err := c.env.Client.Create(ctx, pod); err != nil {
		return nil, fmt.Errorf("create Pod: %w", err)
	}
	pod.Status = runningStatus(pod)
	if err := c.env.Client.Status().Update(ctx, pod); err != nil {
		return nil, fmt.Errorf("write status of Pod: %w", err)
	}
	return pod, nil
}

// copyReport creates the NodeNetwork of another node with the links of the first one.
func (c *cluster) copyReport(ctx context.Context, first *v1.NodeNetwork, node int, host *corev1.Node) error {
	n := &v1.NodeNetwork{ObjectMeta: *first.ObjectMeta.DeepCopy()}
	n.Name, n.UID, n.ResourceVersion, n.ManagedFields = host.Name, "", "", nil
	n.OwnerReferences[0].Name, n.OwnerReferences[0].UID = host.Name, host.UID
	text, err := json.Marshal(first.Status)
	if err == nil {
		text = bytes.ReplaceAll(text, []byte(`"`+hostAddress), []byte(`"`+nodeAddress(node))) // also before a prefix length
		err = c.env.Client.Create(ctx, n)
	}
	if err == nil {
		err = json.Unmarshal(text, &n.Status)
	}
	if err == nil {
		err = c.env.Client.Status().Update(ctx, n)
	}
	if err != nil {
		return fmt.Errorf("create NodeNetwork: %w", err)
	}
	return nil
}

// copyEndpoint creates a Pod, and a DanmEp as the daemon of its node writes it.
func (c *cluster) copyEndpoint(ctx context.Context, first *v1.DanmEp, node int, host *corev1.Node, network *v1.ClusterNetwork, name, address string) error {
	pod, err := c.createPod(ctx, node, network.Name, name)
	if err != nil {
		return err
	}
	e := &v1.DanmEp{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: podNamespace, Name: name + strings.TrimPrefix(first.Name, first.Spec.Pod),
			Labels: first.Labels, Annotations: first.Annotations, Finalizers: first.Finalizers,
		},
		Spec: *first.Spec.DeepCopy(),
	}
	e.Spec.NetworkName, e.Spec.NetworkUID = network.Name, string(network.UID)
	e.Spec.Host, e.Spec.HostUID, e.Spec.Pod, e.Spec.PodUID = host.Name, string(host.UID), pod.Name, string(pod.UID)
	e.Spec.EndpointID, e.Spec.CID = string(pod.UID), strings.ReplaceAll(string(pod.UID)+string(pod.UID), "-", "")
	e.Spec.Interface.Address = address
	if err := c.env.Client.Create(ctx, e); err != nil {
		return fmt.Errorf("create DanmEp: %w", err)
	}
	return nil
}
