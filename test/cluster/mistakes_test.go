// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/allocations"
)

// mistake is a Pod that cannot have its networks.
type mistake struct {
	reason string
	// interfaces is the annotation; NETWORK stands for the case's network.
	interfaces string
	// network changes the case's network before it is created.
	network func(*v1.ClusterNetwork)
	// firstPod is an annotation of a Pod that runs first.
	firstPod string
	// refused says that admission refuses the Pod: nothing can make it right later.
	refused bool
	// wantWords are words that the refusal and the Pod's Event must have for its user.
	wantWords []string
}

// Whatever a user gets wrong is refused at once or an Event that says so, and nothing
// is left of it: no link, no bit, no DanmEp, no record.
func TestMistakes(t *testing.T) {
	t.Parallel()
	cases := map[string]mistake{
		"unknown-network": {
			reason:     "a network that does not exist is named",
			interfaces: `[{"clusterNetwork":"default"},{"clusterNetwork":"nowhere","ip":"dynamic"}]`,
			wantWords:  []string{"nowhere", "not found"},
		},
		"tenant": {
			reason: "AllowedTenants is a wall", refused: true,
			interfaces: `[{"clusterNetwork":"default"},{"clusterNetwork":"NETWORK","ip":"dynamic"}]`,
			network:    func(n *v1.ClusterNetwork) { n.Spec.AllowedTenants = []string{"somebody-else"} },
			wantWords:  []string{"NETWORK", "must contain the Pod's namespace", "ask a netadmin to add it"},
		},
		"json": {
			reason: "an annotation that is no JSON is refused with the place", refused: true,
			interfaces: `[{"clusterNetwork":"default"},{"clusterNetwork":]`,
			wantWords:  []string{v1.InterfacesAnnotation},
		},
		"unknown-key": {
			reason: "a key that means nothing is refused, not ignored", refused: true,
			interfaces: `[{"clusterNetwork":"NETWORK","addr":"dynamic"}]`,
			wantWords:  []string{`"addr": must be one of the keys`, "clusterNetwork, ip"},
		},
		"taken": {
			reason:     "a static address is one Pod's",
			interfaces: `[{"clusterNetwork":"default"},{"clusterNetwork":"NETWORK","ip":"SUBNET.40"}]`,
			firstPod:   `[{"clusterNetwork":"default"},{"clusterNetwork":"NETWORK","ip":"SUBNET.40"}]`,
			wantWords:  []string{"SUBNET.40", "NETWORK"},
		},
		"outside": {
			reason: "a static address outside of the subnet can never work", refused: true,
			interfaces: `[{"clusterNetwork":"default"},{"clusterNetwork":"NETWORK","ip":"10.99.0.42"}]`,
			wantWords:  []string{"10.99.0.42", "SUBNET.0/24"},
		},
		"full": {
			reason:     "a full pool says how many are in use",
			interfaces: `[{"clusterNetwork":"default"},{"clusterNetwork":"NETWORK","ip":"dynamic"}]`,
			firstPod:   `[{"clusterNetwork":"default"},{"clusterNetwork":"NETWORK","ip":"dynamic"}]`,
			network: func(n *v1.ClusterNetwork) {
				base := strings.TrimSuffix(n.Spec.Options.CIDR, ".0/24")
				n.Spec.Options.Pool = &v1.IPPool{Start: base + ".9", End: base + ".9"}
			},
			wantWords: []string{"NETWORK", "1"},
		},
		"no-nic": {
			reason:     "a parent NIC that the node does not have is named",
			interfaces: `[{"clusterNetwork":"default"},{"clusterNetwork":"NETWORK","ip":"dynamic"}]`,
			network:    func(n *v1.ClusterNetwork) { n.Spec.Options.Device = "ens9" },
			wantWords:  []string{"ens9"},
		},
		"long-name": {
			reason: "the kernel's interface names have 15 bytes", refused: true,
			interfaces: `[{"clusterNetwork":"default"}` + strings.Repeat(`,{"clusterNetwork":"NETWORK"}`, 10) + `]`,
			network:    func(n *v1.ClusterNetwork) { n.Spec.Options.Prefix = "fourteen-bytes" },
			wantWords:  []string{"fourteen-bytes10", "15"},
		},
		"path": {
			reason: "a name is no path", refused: true,
			interfaces: `[{"clusterNetwork":"../../etc/passwd"}]`,
			wantWords:  []string{"../../etc/passwd"},
		},
		"no-delegate": {
			reason:     "a delegate without its configuration on the node says which file",
			interfaces: `[{"clusterNetwork":"NETWORK"}]`,
			network: func(n *v1.ClusterNetwork) {
				n.Spec = v1.NetworkSpec{NetworkID: "absent", NetworkType: "bridge"}
			},
			wantWords: []string{"absent.conf"},
		},
	}
	i := 0
	for name, tc := range cases {
		i++
		own := i // the cases run when the loop is over
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.run(t, name, own)
		})
	}
}

// run makes the case's network with a VLAN and a subnet of its own, and the Pod.
func (m mistake) run(t *testing.T, name string, i int) {
	t.Helper()
	c, ns := shared, shared.namespace(t)
	network, subnet := "mistake-"+name, fmt.Sprintf("10.60.%d", i)
	n := vlan(network, fmt.Sprintf("mis%d", i), int32(600+i), subnet+".0/24")
	if m.network != nil {
		m.network(n)
	}
	c.create(t, n)
	fill := strings.NewReplacer("NETWORK", network, "SUBNET", subnet).Replace
	if m.firstPod != "" {
		first := pod(ns, "first", c.nodes[1], fill(m.firstPod))
		c.create(t, first)
		c.awaitRunning(t.Context(), t, first)
	}
	p := pod(ns, "mistake-"+name, c.nodes[0], fill(m.interfaces))
	if m.refused {
		m.checkRefused(t, p, fill)
		// The node daemon says the same of a Pod that nobody asked admission about.
		p = pod(metav1.NamespaceSystem, p.Name, c.nodes[0], fill(m.interfaces))
	}
	c.create(t, p)
	c.await(t.Context(), t, "an Event says what is wrong", func(ctx context.Context) string {
		var best string
		for _, message := range c.warningEvents(ctx, p) {
			missing := m.missingWord(message, fill)
			if missing == "" {
				return ""
			}
			best += message + " (no word of " + missing + ")\n"
		}
		return "the Pod's Events:\n" + best
	})
	c.delete(t, p)
	c.await(t.Context(), t, m.reason+"; and nothing is left", func(ctx context.Context) string {
		return c.leftovers(ctx, network, m.firstPod != "", p)
	})
}

// checkRefused checks that the Pod is refused with the words.
func (m mistake) checkRefused(t *testing.T, p *corev1.Pod, fill func(string) string) {
	t.Helper()
	c := shared
	c.await(t.Context(), t, "the Pod is refused", func(ctx context.Context) string {
		// When admission is away for a moment, Pods are let in.
		err := c.Create(ctx, p.DeepCopy(), client.DryRunAll)
		if !apierrors.IsInvalid(err) {
			return fmt.Sprintf("%s: created with %v", m.reason, err)
		}
		if missing := m.missingWord(err.Error(), fill); missing != "" {
			return err.Error() + " (no word of " + missing + ")"
		}
		return ""
	})
}

// missingWord is the first word that the message lacks.
func (m mistake) missingWord(message string, fill func(string) string) string {
	for _, word := range m.wantWords {
		if w := fill(word); !strings.Contains(message, w) {
			return w
		}
	}
	return ""
}

// leftovers says what is left of a Pod that is deleted: its DanmEps, or addresses of
// the network beyond those of the one Pod that ran before it.
func (c *cluster) leftovers(ctx context.Context, network string, before bool, p client.Object) string {
	l, err := allocations.Read(ctx, c, network)
	if err != nil {
		return err.Error()
	}
	if wrong := l.Inconsistency(); wrong != "" {
		return wrong
	}
	want := 0
	if before {
		want = 1
	}
	if both := l.PublishedAndHeld(); len(l.Endpoints) != want || len(both) > 0 {
		return fmt.Sprintf("%d addresses have a DanmEp, and %v are held, too; want %d and none", len(l.Endpoints), both, want)
	}
	var eps v1.DanmEpList
	if err := c.List(ctx, &eps, client.InNamespace(p.GetNamespace())); err != nil {
		return err.Error()
	}
	for _, ep := range eps.Items {
		if ep.Spec.Pod == p.GetName() {
			return "DanmEp " + ep.Name + " is left"
		}
	}
	return c.leftOnNode(ctx, c.nodes[0], p)
}
