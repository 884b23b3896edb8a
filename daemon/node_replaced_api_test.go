// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package daemon

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/daemon/internal/nodestate"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// The daemon ends when its Node was deleted and created again. The next daemon takes over the running
// sandboxes.
func TestDaemonEndsWithItsNode(t *testing.T) {
	env := apitest.Start(t)
	n, ns := newNode(t, env), env.Namespace(t)
	enableWarmPool(n)
	cn := n.network("10.27.0.0/24")
	ended := make(chan error, 1)
	go func() { ended <- Run(context.WithoutCancel(t.Context()), n.args, t.Output(), t.Output()) }()
	n.awaitReady()
	p := n.pod(ns, requestInterface(cn, "dynamic"))
	result, err := n.call("ADD", p)
	if err != nil {
		t.Fatal(err)
	}
	n.expectMetric(t, "patchbay_warm_pool_usable", 1)
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	if err := env.Client.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deletion of the Node to be noticed", func(ctx context.Context) error {
		usable, err := n.metric(ctx, "patchbay_warm_pool_usable")
		if err == nil && usable != 0 {
			err = errors.New("the warm pool is still usable")
		}
		return err
	})
	object.ResourceVersion = ""
	if err := env.Client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, nodestate.ErrNodeReplaced) {
		t.Errorf("the daemon ended with %v, want ErrNodeReplaced", err)
	}
	stop := n.start()
	n.awaitReady()
	if repeated, err := n.call("ADD", p); err != nil || repeated.IPs[0].Address.String() != result.IPs[0].Address.String() {
		t.Errorf("repeated ADD: got %+v and error %v, want the same address", repeated, err)
	}
	if _, err := n.call("DEL", p); err != nil {
		t.Fatal(err)
	}
	n.endpoints(cn, 0)
	n.awaitNoPendingWrites() // the address is freed after its DanmEp
	stop()
	n.awaitUnused(cn)
}
