// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package nodestate

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/daemon/internal/kubetest"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// makeNode creates a Node.
func makeNode(t *testing.T, env *apitest.Env, name string) *corev1.Node {
	t.Helper()
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := env.Client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// The deletion of the Node makes the warm pool unusable at once. Another Node of its name
// ends the daemon.
func TestNodeStateFollowsDeletion(t *testing.T) {
	t.Parallel()
	env, ctx := apitest.Start(t), kubetest.LogContext(t)
	name := apitest.Name("node")
	conn := kubetest.ConnectAs(t, env, name)
	n, err := WatchNode(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	kubetest.Start(ctx, t, conn.Cache.Start)
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	expect := func(what string, usable bool) {
		t.Helper()
		kubetest.Eventually(t, what, func(context.Context) error {
			if n.WarmPoolUsable() != usable {
				return errors.New("not yet")
			}
			return nil
		})
	}
	if _, ok := n.Identity(); ok || n.WarmPoolUsable() {
		t.Error("got an identity before the Node exists, want none")
	}
	first := makeNode(t, env, name)
	expect("the Node to be read", true)
	if id, ok := n.Identity(); !ok || id != (Identity{Name: name, UID: string(first.UID)}) {
		t.Errorf("the Node is %+v, want UID %s", id, first.UID)
	}
	// Kubelet changes the Node every minute. Such a change must not end the daemon.
	first.Labels = map[string]string{"a": "b"}
	if err := env.Client.Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := env.Client.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	expect("the deletion to be noticed", false)
	kubetest.Eventually(t, "a read to find no Node", func(context.Context) error {
		if !n.Gone() {
			return errors.New("not yet")
		}
		return nil
	})
	if id, ok := n.Identity(); !ok || id.UID != string(first.UID) {
		t.Errorf("the Node is %+v, want UID %s: the DanmEps of running sandboxes belong to it", id, first.UID)
	}
	second := makeNode(t, env, name)
	err = <-ended
	if !errors.Is(err, ErrNodeReplaced) || !strings.Contains(err.Error(), string(first.UID)) || !strings.Contains(err.Error(), string(second.UID)) {
		t.Errorf("Run ended with %v, want ErrNodeReplaced with both UIDs", err)
	}
	if n.WarmPoolUsable() {
		t.Error("got usable for the former Node, want not usable")
	}
}
