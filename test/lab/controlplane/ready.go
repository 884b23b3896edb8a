// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// awaitReady polls until the part works, died, or ctx ends. The error ends with the
// last lines of the part's log.
func (c *ControlPlane) awaitReady(ctx context.Context, part Part) error {
	const pause = 30 * time.Millisecond
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		err := c.probe(ctx, part)
		if err == nil {
			return nil
		}
		if !c.Alive(part) {
			return fmt.Errorf("await %s: %w\n%s", part, ErrDied, c.logTail(part))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("await %s: %w (last answer: %w)\n%s", part, ctx.Err(), err, c.logTail(part))
		}
	}
}

func (c *ControlPlane) probe(ctx context.Context, part Part) error {
	switch part {
	case Etcd:
		return c.probeEtcd(ctx)
	case APIServer:
		return c.probeAPIServer(ctx)
	case ControllerManager:
		return c.probeControllerManager(ctx)
	default: // the scheduler serves nothing and leaves no trace before the first Pod
		if !c.Alive(part) {
			return ErrDied
		}
		return nil
	}
}

func (c *ControlPlane) probeEtcd(ctx context.Context) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", c.config.path(etcdSocket))
	if err != nil {
		return fmt.Errorf("dial etcd: %w", err)
	}
	return conn.Close()
}

func (c *ControlPlane) probeAPIServer(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	answer, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("get /readyz: %w: %s", err, answer)
	}
	if _, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("get namespace: %w", err)
	}
	return nil
}

// probeControllerManager looks for what every Pod needs before it can be created.
func (c *ControlPlane) probeControllerManager(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	const account, trust = "default", "kube-root-ca.crt"
	ns := metav1.NamespaceDefault
	if _, err := client.CoreV1().ServiceAccounts(ns).Get(ctx, account, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("get service account: %w", err)
	}
	if _, err := client.CoreV1().ConfigMaps(ns).Get(ctx, trust, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("get trust bundle: %w", err)
	}
	return nil
}

func (c *ControlPlane) logTail(part Part) []byte {
	const most = 4 << 10
	raw, err := os.ReadFile(c.Log(part))
	if err != nil {
		return []byte(err.Error())
	}
	if len(raw) > most {
		raw = raw[len(raw)-most:]
		raw = raw[bytes.IndexByte(raw, '\n')+1:]
	}
	return raw
}
