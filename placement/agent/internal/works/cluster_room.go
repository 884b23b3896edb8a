// SPDX-License-Identifier: Apache-2.0

package works

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/placement/internal/room"
)

// nodeRoom is what a node has free.
type nodeRoom struct {
	name string
	free room.Free
}

// freeNodes returns what the nodes have free that may get any Pod, by the names of the nodes. Nodes and Pods are as
// trimNode and podindex.TrimPod return them. Pods that the scheduler has not seen yet go to the first node with room.
func freeNodes(nodes, pods []any) []room.Free {
	byName := map[string]*nodeRoom{}
	var all []*nodeRoom
	for _, o := range nodes {
		node, ok := o.(*corev1.Node)
		if !ok || node.Status.Phase != corev1.NodeRunning || len(node.Spec.Taints) > 0 {
			continue
		}
		list := node.Status.Allocatable
		n := &nodeRoom{name: node.Name, free: room.Free{MilliCPU: list.Cpu().MilliValue(), Memory: list.Memory().Value(), Pods: list.Pods().Value()}}
		byName[node.Name], all = n, append(all, n)
	}
	slices.SortFunc(all, func(a, b *nodeRoom) int { return cmp.Compare(a.name, b.name) })
	var unbound []*corev1.Pod
	for _, o := range pods {
		pod, ok := o.(*corev1.Pod)
		switch {
		case !ok || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		case pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && len(pod.Status.Conditions) == 0: // else it is refused, or gated
			unbound = append(unbound, pod)
		case byName[pod.Spec.NodeName] != nil:
			n := byName[pod.Spec.NodeName]
			n.free = n.free.Without(requestsOf(pod), 1)
		}
	}
	slices.SortFunc(unbound, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, pod := range unbound {
		r := requestsOf(pod)
		if i := slices.IndexFunc(all, func(n *nodeRoom) bool { return n.free.Fit(r) > 0 }); i >= 0 {
			all[i].free = all[i].free.Without(r, 1)
		}
	}
	free := make([]room.Free, 0, len(all))
	for _, n := range all {
		free = append(free, n.free)
	}
	return free
}

// requestsOf returns the requests of a Pod, as podindex.TrimPod keeps them.
func requestsOf(pod *corev1.Pod) room.Requests {
	return room.Requests{MilliCPU: pod.Spec.Overhead.Cpu().MilliValue(), Memory: pod.Spec.Overhead.Memory().Value()}
}
