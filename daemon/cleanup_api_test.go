// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// daemonSet creates the daemon's DaemonSet. A finalizer keeps it while it is being deleted, as that of a deletion in
// the foreground does.
func (n *node) daemonSet() *appsv1.DaemonSet {
	n.t.Helper()
	labels := map[string]string{"a": "b"}
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "patchbay-system", Name: "patchbayd", Finalizers: []string{"example.com/test"}},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
	if err := n.env.Client.Create(n.t.Context(), ds); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		_ = n.env.Client.Delete(context.Background(), ds)
		_ = n.env.Client.Patch(context.Background(), ds, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
	})
	return ds
}

// vxlanNetwork creates a network with a VXLAN over the node's NIC.
func (n *node) vxlanNetwork(vxlan int32) *v1.ClusterNetwork {
	n.t.Helper()
	if err := ip("address", "add", "198.51.100.1/24", "dev", "ens4"); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = ip("address", "delete", "198.51.100.1/24", "dev", "ens4") })
	cn := &v1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("net")}}
	cn.Spec = v1.NetworkSpec{NetworkID: "vx", NetworkType: "macvlan", Options: v1.NetworkOptions{Device: "ens4", VXLAN: vxlan, CIDR: "10.0.0.0/24"}}
	if err := n.env.Client.Create(n.t.Context(), cn); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { // after the daemon has stopped
		_ = n.env.Client.Delete(context.Background(), cn)
		_ = n.env.Client.Patch(context.Background(), cn, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
		_ = ip("link", "delete", "vx_vx")
	})
	return cn
}

// vxlans lists the VXLAN links of the node.
func vxlans(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("ip", "-o", "link", "show", "type", "vxlan").CombinedOutput()
	if err != nil {
		t.Fatalf("ip link: %v: %s", err, out)
	}
	return string(out)
}

// awaitCleanedUp waits for a report, or for none if part is empty.
func (n *node) awaitCleanedUp(status metav1.ConditionStatus, part string) {
	n.t.Helper()
	eventually(n.t, fmt.Sprintf("the report %q", part), func(ctx context.Context) error {
		nn := &v1.NodeNetwork{}
		if err := n.env.Client.Get(ctx, client.ObjectKey{Name: n.name}, nn); err != nil {
			return err
		}
		c := meta.FindStatusCondition(nn.Status.Conditions, v1alpha1.ConditionCleanedUp)
		if part == "" && c == nil || part != "" && c != nil && c.Status == status && strings.Contains(c.Message, part) {
			return nil
		}
		return fmt.Errorf("got %+v", c)
	})
}

// A daemon that is restarted or updated removes no link. When the operator deletes its DaemonSet, it removes the links
// that no Pod uses, without the deletion of a network, and reports that.
func TestHostLinksOfAnUninstallation(t *testing.T) {
	env := apitest.Start(t)
	n := newNode(t, env)
	ds := n.daemonSet()
	cn := n.vxlanNetwork(700)
	p := n.pod(env.Namespace(t), fmt.Sprintf(`[{"clusterNetwork": %q, "ip": "dynamic"}]`, cn.Name))
	stop := n.start()
	n.awaitReady()
	if _, err := n.call("ADD", p); err != nil {
		t.Fatal(err)
	}
	stop() // as for an update
	if vxlans(t) == "" {
		t.Error("the link is gone after a restart")
	}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"uid-1"}}}`, v1alpha1.CleanUpAnnotation))
	if err := env.Client.Patch(t.Context(), ds, patch); err != nil {
		t.Fatal(err)
	}
	stop = n.start()
	n.awaitReady()
	n.awaitCleanedUp("", "")
	stop() // the annotation alone removes nothing
	if _, err := os.Stat(n.path("conf/00-patchbay.conflist")); err != nil || vxlans(t) == "" {
		t.Errorf("configuration %v, links %q: want them to stay while the DaemonSet exists", err, vxlans(t))
	}

	stop = n.start()
	n.awaitReady()
	if err := env.Client.Delete(t.Context(), ds); err != nil {
		t.Fatal(err)
	}
	stop()
	n.awaitCleanedUp(metav1.ConditionTrue, v1alpha1.CleanUpMessage("uid-1", "CNI configuration removed; plugin kept"))
	if vxlans(t) == "" {
		t.Error("the link of a Pod is gone")
	}
	if _, err := os.Stat(n.path("conf/00-patchbay.conflist")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the configuration: got %v, want it to be removed", err)
	}

	stop = n.start()
	n.awaitReady()
	n.awaitCleanedUp("", "")
	if _, err := n.call("DEL", p); err != nil {
		t.Fatal(err)
	}
	stop()
	n.awaitCleanedUp(metav1.ConditionTrue, v1alpha1.CleanUpMessage("uid-1", "CNI configuration removed"))
	if got := vxlans(t); got != "" {
		t.Errorf("links that no Pod uses: got %q, want none", got)
	}
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(cn), cn); err != nil || cn.DeletionTimestamp != nil {
		t.Errorf("the network: %v, want it to stay", err)
	}
}

// An administrator deletes the DaemonSet, which is how Patchbay is uninstalled without the operator, or the DaemonSet is
// gone when the daemon reads it. The daemon removes the CNI configuration. It keeps the links and writes no report,
// because the operator has not requested a clean-up.
func TestHostLinksOfADeletionWithoutTheOperator(t *testing.T) {
	env := apitest.Start(t)
	for name, daemonSet := range map[string]func(*node){
		"InDeletion": func(n *node) {
			if err := env.Client.Delete(n.t.Context(), n.daemonSet()); err != nil {
				n.t.Fatal(err)
			}
		},
		"Gone": func(*node) {},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, env)
			n.vxlanNetwork(701)
			stop := n.start()
			n.awaitReady()
			eventually(t, "the link in the NodeNetwork", func(ctx context.Context) error {
				nn := &v1.NodeNetwork{}
				if err := env.Client.Get(ctx, client.ObjectKey{Name: n.name}, nn); err != nil {
					return err
				}
				if len(nn.Status.Links) == 0 {
					return errors.New("there is none")
				}
				return nil
			})
			daemonSet(n)
			stop()
			n.awaitCleanedUp("", "")
			if vxlans(t) == "" {
				t.Error("the link is gone")
			}
			if _, err := os.Stat(n.path("conf/00-patchbay.conflist")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the configuration: got %v, want it to be removed", err)
			}
		})
	}
}
