// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// A Node that is gone takes the kept addresses away at once; another of its name
// ends the daemon.
func TestNodeStateFollowsDeletion(t *testing.T) {
	t.Parallel()
	env, ctx := apitest.Start(t), logged(t)
	name := apitest.Name("node")
	conn, err := Connect(env.ConfigAs(apitest.NodeDaemon(name)), name)
	if err != nil {
		t.Fatal(err)
	}
	n, err := WatchNode(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	start(ctx, t, conn.Cache.Start)
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	expect := func(what string, usable bool) {
		t.Helper()
		wait(t, what, func(context.Context) error {
			if n.WarmPoolUsable() != usable {
				return errors.New("not so")
			}
			return nil
		})
	}
	if _, ok := n.Identity(); ok || n.WarmPoolUsable() {
		t.Error("the Node is known before it is there")
	}
	first := makeNode(t, env, name)
	expect("the Node to be read", true)
	if h, ok := n.Identity(); !ok || h != (NodeIdentity{Name: name, UID: string(first.UID)}) {
		t.Errorf("the Node is %+v, want UID %s", h, first.UID)
	}
	// Any change of the Node, such as kubelet's every minute, is no news.
	first.Labels = map[string]string{"a": "b"}
	if err := env.Client.Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := env.Client.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	expect("the Node's end to be known", false)
	wait(t, "a reading to say so", func(context.Context) error {
		if !n.Gone() {
			return errors.New("not yet")
		}
		return nil
	})
	if h, ok := n.Identity(); !ok || h.UID != string(first.UID) {
		t.Errorf("the Node is %+v, want still UID %s: DanmEps of what runs are its", h, first.UID)
	}
	second := makeNode(t, env, name)
	err = <-ended
	if !errors.Is(err, ErrNodeReplaced) || !strings.Contains(err.Error(), string(first.UID)) || !strings.Contains(err.Error(), string(second.UID)) {
		t.Errorf("Run ended with %v, want ErrNodeReplaced with both UIDs", err)
	}
	if n.WarmPoolUsable() {
		t.Error("the former Node's addresses are usable")
	}
}
