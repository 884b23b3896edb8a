// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/patchbay-cni/patchbay/test/lab/node"
)

// ErrNotReady says what a node's readiness still lacks.
var ErrNotReady = errors.New("not ready")

func (l *Lab) awaitNodes(ctx context.Context) error {
	names, err := l.Nodes()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := l.awaitNode(ctx, name); err != nil {
			return err
		}
		l.log.printf("  %s is ready", name)
	}
	return nil
}

// awaitNode returns when kubelet has reported since this boot that it is ready: what
// the API server says of a node that lost its power stays true for a while.
func (l *Lab) awaitNode(ctx context.Context, name string) error {
	const pause = 100 * time.Millisecond
	client, err := l.client()
	if err != nil {
		return err
	}
	c, err := l.known(name)
	if err != nil {
		return err
	}
	for {
		err := l.ready(ctx, client, name)
		if err == nil {
			return nil
		}
		if !node.On(c.Dir) {
			return fmt.Errorf("wait for %s: %w", name, node.ErrOff)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (%w)", name, ctx.Err(), err)
		}
	}
}

func (l *Lab) client() (kubernetes.Interface, error) {
	config, err := l.RESTConfig()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return client, nil
}

func (l *Lab) ready(ctx context.Context, client kubernetes.Interface, name string) error {
	boot, err := l.Exec(ctx, name, "cat", "/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	n, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s has not registered: %w", name, ErrNotReady)
	}
	if err != nil {
		return fmt.Errorf("get node: %w", err)
	}
	if n.Status.NodeInfo.BootID != strings.TrimSpace(boot) {
		return fmt.Errorf("%s has not reported since its boot: %w", name, ErrNotReady)
	}
	return condition(n)
}

func condition(n *corev1.Node) error {
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return fmt.Errorf("%s: %w: %s", n.Name, ErrNotReady, condition.Message)
		}
		if condition.Type == corev1.NodeReady {
			return nil
		}
	}
	return fmt.Errorf("%s has no condition yet: %w", n.Name, ErrNotReady)
}
