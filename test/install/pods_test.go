// SPDX-License-Identifier: Apache-2.0

//go:build install

package install

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-cni/patchbay/test/lab/fabric"
	"github.com/patchbay-cni/patchbay/test/lab/image"
)

// pod describes a Pod of the tests.
type pod struct {
	name string
	// node is where it runs. If it is empty, the scheduler decides.
	node string
	// interfaces is its annotation danm.io/interfaces. Without it, it is an ordinary Pod.
	interfaces string
	// command of its container; by default it sleeps.
	command []string
	// usr mounts the machine's /usr.
	usr bool
}

// manifest returns the Pod as YAML.
func (p pod) manifest() string {
	annotations := "{}"
	if p.interfaces != "" {
		annotations = fmt.Sprintf("{danm.io/interfaces: %q}", p.interfaces)
	}
	command := []string{"sleep", "infinity"}
	if p.command != nil {
		command = p.command
	}
	quoted := make([]string, 0, len(command))
	for _, argument := range command {
		quoted = append(quoted, strconv.Quote(argument))
	}
	volumes, mounts := "[]", "[]"
	if p.usr {
		volumes, mounts = "[{name: usr, hostPath: {path: /usr}}]", "[{name: usr, mountPath: /usr, readOnly: true}]"
	}
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %q, annotations: %s}, spec: {
  nodeName: %q, terminationGracePeriodSeconds: 0, restartPolicy: Never, volumes: %s, containers: [
    {name: main, image: %q, imagePullPolicy: Never, command: [%s], volumeMounts: %s}]}}`,
		p.name, annotations, p.node, volumes, image.Busybox, strings.Join(quoted, ", "), mounts)
}

// startPod creates a Pod, and waits until it is ready.
func (b *bed) startPod(p pod) {
	b.Helper()
	b.apply(p.manifest())
	b.awaitPod(p.name)
}

// awaitPod waits until a Pod is ready.
func (b *bed) awaitPod(name string) {
	b.Helper()
	b.await("Pod "+name+" to be ready", func(ctx context.Context) (string, bool) {
		out, err := b.lab.Kubectl(ctx, "get", "pod", name, "-o", `jsonpath={.status.phase} {.status.conditions[?(@.type=="Ready")].status}`)
		if err != nil {
			return err.Error(), false
		}
		return out, out == "Running True"
	})
}

// dns is CoreDNS as clusters have it. Its program is the one of the machine.
const dns = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: coredns, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: coredns}
rules:
  - {apiGroups: [""], resources: [services, pods, namespaces], verbs: [list, watch]}
  - {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: coredns}
subjects: [{kind: ServiceAccount, name: coredns, namespace: kube-system}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    .:53 {
      errors
      kubernetes cluster.local
    }
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec:
      serviceAccountName: coredns
      dnsPolicy: Default
      terminationGracePeriodSeconds: 0
      tolerations: [{operator: Exists}]
      containers:
        - name: coredns
          image: %q
          imagePullPolicy: Never
          command: [/coredns/coredns, -conf, /etc/coredns/Corefile]
          readinessProbe: {tcpSocket: {port: 53}, periodSeconds: 1}
          volumeMounts:
            - {name: program, mountPath: /coredns, readOnly: true}
            - {name: config, mountPath: /etc/coredns}
      volumes:
        - {name: program, hostPath: {path: %q, type: Directory}}
        - {name: config, configMap: {name: coredns}}
`

// startDNS starts CoreDNS (make coredns).
func (b *bed) startDNS() {
	b.Helper()
	program, err := filepath.EvalSymlinks(b.path("bin", "coredns"))
	if err != nil {
		b.Fatalf("find CoreDNS (make coredns): %v", err)
	}
	b.apply(fmt.Sprintf(dns, image.Busybox, filepath.Dir(program)))
	b.scaleDNS(1)
}

// scaleDNS sets how many Pods of CoreDNS run, and waits for it.
func (b *bed) scaleDNS(replicas int) {
	b.Helper()
	b.run("scale", "-n", "kube-system", "deployment/coredns", "--replicas="+strconv.Itoa(replicas))
	b.await(fmt.Sprintf("%d Pods of CoreDNS", replicas), func(ctx context.Context) (string, bool) {
		out, err := b.lab.Kubectl(ctx, "get", "pods", "-n", "kube-system", "-l", "k8s-app=kube-dns", "-o",
			`jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status} {end}`)
		if err != nil {
			return err.Error(), false
		}
		return out, strings.TrimSpace(out) == strings.TrimSpace(strings.Repeat("True ", replicas))
	})
}

// checkOrdinaryPods starts CoreDNS anew, and a Pod without annotation on each node, which asks it for a name.
// The Pods have no DanmEp, because no network default is for them.
func (b *bed) checkOrdinaryPods() {
	b.Helper()
	b.scaleDNS(0)
	b.scaleDNS(1)
	server := b.run("get", "pods", "-n", "kube-system", "-l", "k8s-app=kube-dns", "-o", "jsonpath={.items[0].status.podIP}")
	for _, node := range b.nodes {
		name := "ordinary-" + node
		b.startPod(pod{name: name, node: node})
		b.await("CoreDNS to answer "+name, func(ctx context.Context) (string, bool) {
			out, err := b.lab.Kubectl(ctx, "exec", name, "--", "nslookup", "-type=a", "kubernetes.default.svc.cluster.local", server)
			if err != nil {
				return err.Error(), false
			}
			return out, strings.Contains(out, fabric.ServiceAddress().String())
		})
		b.run("delete", "pod", name, "--timeout="+waitTimeout.String())
	}
}

// networks are one on a VLAN, and that of eth0. None has the name default.
const networks = `
apiVersion: danm.io/v1
kind: ClusterNetwork
metadata: {name: pods}
spec: {NetworkID: pods, NetworkType: bridge}
---
apiVersion: danm.io/v1
kind: ClusterNetwork
metadata: {name: storage}
spec:
  NetworkID: storage
  NetworkType: ipvlan
  Options: {host_device: ens4, vlan: 500, container_prefix: storage, cidr: 10.50.0.0/24, allocation_pool: {start: 10.50.0.100, end: 10.50.0.200}}
`

const (
	// listenerAddress is that of a Pod on the network storage.
	listenerAddress = "10.50.0.10"
	toListener      = `[{"clusterNetwork":"pods"},{"clusterNetwork":"storage","ip":"` + listenerAddress + `/24"}]`
	toStorage       = `[{"clusterNetwork":"pods"},{"clusterNetwork":"storage","ip":"dynamic"}]`
)

// attached are two Pods with two interfaces on two nodes. One pings the other one all the time.
type attached struct {
	// interfaces of the Pods at the begin.
	interfaces map[string]string
}

// linkLibraries lets a container with the machine's /usr run the machine's programs. Busybox's ping is not good enough:
// in User-Mode Linux, it misses one of some thousand replies, which the Pod's interface has received.
const linkLibraries = "ln -s usr/lib usr/lib64 /; "

// attach creates the networks, and starts the Pods.
func (b *bed) attach() *attached {
	b.Helper()
	b.apply(networks)
	b.startPod(pod{name: "listener", node: b.nodes[1], interfaces: toListener})
	b.startPod(pod{
		name: "talker", node: b.nodes[0], interfaces: toStorage, usr: true,
		command: []string{"sh", "-c", linkLibraries + "exec /usr/bin/ping -i 0.2 " + listenerAddress},
	})
	a := &attached{interfaces: map[string]string{}}
	for _, name := range []string{"listener", "talker"} {
		a.interfaces[name] = b.interfaces(name)
	}
	b.awaitReplies("talker")
	b.ping("talker", b.run("get", "pod", "listener", "-o", "jsonpath={.status.podIP}"))
	return a
}

// interfaces returns the links of a Pod with their addresses.
func (b *bed) interfaces(name string) string {
	b.Helper()
	return b.run("exec", name, "--", "ip", "address")
}

// ping pings an address from a Pod.
func (b *bed) ping(name, address string) {
	b.Helper()
	b.await("the ping from "+name+" to "+address, func(ctx context.Context) (string, bool) {
		out, err := b.lab.Kubectl(ctx, "exec", name, "--", "ping", "-c", "1", "-w", "10", address)
		if err != nil {
			return err.Error(), false
		}
		return out, true
	})
}

// replies returns the sequence numbers of the replies that a Pod has got.
func (b *bed) replies(ctx context.Context, name string) ([]int, error) {
	out, err := b.lab.Kubectl(ctx, "logs", name)
	if err != nil {
		return nil, err
	}
	var all []int
	for field := range strings.FieldsSeq(out) {
		if number, ok := strings.CutPrefix(field, "icmp_seq="); ok {
			n, err := strconv.Atoi(number)
			if err != nil {
				return nil, fmt.Errorf("read the log of Pod %s: %w", name, err)
			}
			all = append(all, n)
		}
	}
	slices.Sort(all) // a reply may overtake another one
	return all, nil
}

// awaitReplies waits until a Pod that pings has got more replies than now.
func (b *bed) awaitReplies(name string) {
	b.Helper()
	before, err := b.replies(b.Context(), name)
	if err != nil {
		b.Fatal(err)
	}
	const more = 5
	b.await("more replies to Pod "+name, func(ctx context.Context) (string, bool) {
		now, err := b.replies(ctx, name)
		if err != nil {
			return err.Error(), false
		}
		return fmt.Sprintf("%d replies", len(now)), len(now) >= len(before)+more
	})
}

// checkUndisturbed checks that the Pods have the interfaces that they had, and that no ping was lost since the first
// reply.
func (b *bed) checkUndisturbed(a *attached) {
	b.Helper()
	for name, before := range a.interfaces {
		if now := b.interfaces(name); now != before {
			b.Errorf("the interfaces of Pod %s have changed:\n%s\nbecame\n%s", name, before, now)
		}
	}
	b.awaitReplies("talker")
	all, err := b.replies(b.Context(), "talker")
	if err != nil {
		b.Fatal(err)
	}
	for i := 1; i < len(all); i++ {
		if all[i] != all[i-1]+1 {
			b.Errorf("after reply %d to Pod talker comes %d, want no gap", all[i-1], all[i])
		}
	}
	b.Logf("%d pings were answered", len(all))
}

// detach deletes all Pods of the tests and then their networks, as the first step of an uninstallation. Those of CoreDNS
// end, too, because the plugin stays on a node for Pods that it has started.
func (b *bed) detach() {
	b.Helper()
	b.run("delete", "pods", "--all", "--timeout="+waitTimeout.String())
	b.scaleDNS(0)
	b.awaitNothing("the nodes to detach all Pods", "get", "danmeps", "--all-namespaces", "-o", "name")
	b.run("delete", "clusternetworks", "--all", "--timeout="+waitTimeout.String())
	b.awaitNothing("the networks to be gone", "get", "clusternetworks", "-o", "name")
}
