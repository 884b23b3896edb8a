// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/test/lab/netns"
	"github.com/patchbay-cni/patchbay/test/lab/process"
)

// stopTimeout is how long a part may take to end politely. The API server would wait for
// its watchers for a minute.
const stopTimeout = 3 * time.Second

// Errors of this package.
var (
	// ErrNotFound says that there is no control plane in the folder.
	ErrNotFound = errors.New("no control plane here")
	// ErrExists says that the folder holds a control plane already.
	ErrExists = errors.New("a control plane is here already")
	// ErrDied says that a part ended while its readiness was awaited.
	ErrDied = errors.New("process died")
	// ErrNoPart says that this control plane has no such part.
	ErrNoPart = errors.New("not a part of this control plane")
)

// ControlPlane is a control plane in a folder, started here or by an earlier command.
type ControlPlane struct {
	config Config
	ca     *authority
	admin  keyPair
}

// Start makes a control plane and returns when it is ready for work: the API server
// serves, and the controller manager, if there is one, has made the default service
// account. When that fails nothing is left running.
func Start(ctx context.Context, config Config) (*ControlPlane, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(config.path(configFile)); err == nil {
		return nil, fmt.Errorf("start in %s: %w", config.Dir, ErrExists)
	}
	if err := os.MkdirAll(config.path(etcdData), 0o700); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	if err := config.writeCredentials(); err != nil {
		return nil, err
	}
	if err := config.save(); err != nil {
		return nil, err
	}
	c, err := Open(config.Dir)
	if err != nil {
		return nil, err
	}
	if err := c.startAll(ctx); err != nil {
		return nil, errors.Join(err, c.Kill(context.WithoutCancel(ctx), config.parts()...))
	}
	return c, nil
}

// Open returns the control plane in the folder, whether its parts run or not. The
// error is ErrNone when there is none.
func Open(dir string) (*ControlPlane, error) {
	config, err := load(dir)
	if err != nil {
		return nil, err
	}
	ca, err := loadAuthority(config.path(caName))
	if err != nil {
		return nil, err
	}
	admin, err := ca.client("admin", mastersGroup)
	if err != nil {
		return nil, err
	}
	return &ControlPlane{config: config, ca: ca, admin: admin}, nil
}

func (c *ControlPlane) startAll(ctx context.Context) error {
	for _, part := range c.config.parts() {
		if err := c.launch(part); err != nil {
			return err
		}
		// The API server takes a second to notice an etcd that came after it. The
		// controller manager ends by itself when the API server does not let it in ten
		// seconds after its own start, which a busy machine is not ready for.
		if part == Etcd || part == APIServer {
			if err := c.awaitReady(ctx, part); err != nil {
				return err
			}
		}
	}
	for _, part := range c.config.parts() {
		if err := c.awaitReady(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// Destroy ends all parts at once and removes the folder with all data.
func (c *ControlPlane) Destroy(ctx context.Context) error {
	if err := c.Kill(ctx, c.config.parts()...); err != nil {
		return err
	}
	if err := os.RemoveAll(c.config.Dir); err != nil {
		return fmt.Errorf("remove folder: %w", err)
	}
	return nil
}

// Stop ends all parts politely, etcd last. StartPart brings each back.
func (c *ControlPlane) Stop(ctx context.Context) error {
	parts := slices.Clone(c.config.parts())
	slices.Reverse(parts)
	var errs []error
	for _, part := range parts {
		errs = append(errs, c.StopPart(ctx, part))
	}
	return errors.Join(errs...)
}

// Parts lists the parts of this control plane in starting order.
func (c *ControlPlane) Parts() []Part { return c.config.parts() }

// StartPart starts a part that does not run and waits until it is ready.
func (c *ControlPlane) StartPart(ctx context.Context, part Part) error {
	if c.Alive(part) {
		return nil
	}
	if err := c.launch(part); err != nil {
		return err
	}
	return c.awaitReady(ctx, part)
}

func (c *ControlPlane) launch(part Part) error {
	if !slices.Contains(c.config.parts(), part) {
		return fmt.Errorf("start %s: %w", part, ErrNoPart)
	}
	if part == Etcd {
		if err := c.removeSockets(); err != nil {
			return err
		}
	}
	id, err := process.Start(process.Spec{
		Args:          c.config.command(part),
		Dir:           c.config.Dir,
		Log:           c.Log(part),
		Netns:         c.config.Netns,
		DieWithParent: c.config.DieWithParent,
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", part, err)
	}
	raw, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("encode process of %s: %w", part, err)
	}
	return writeFile(c.config.path(part.pidFile()), raw, 0o644)
}

// removeSockets clears away what a killed etcd left: it does not listen on an old socket.
func (c *ControlPlane) removeSockets() error {
	for _, socket := range []string{etcdSocket, peerSocket} {
		if err := os.RemoveAll(c.config.path(socket)); err != nil {
			return fmt.Errorf("remove old socket: %w", err)
		}
	}
	return nil
}

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

// StopPart ends a part politely. One that does not run is fine.
func (c *ControlPlane) StopPart(ctx context.Context, part Part) error {
	id, err := c.process(part)
	if err != nil {
		return err
	}
	if err := id.Stop(ctx, stopTimeout); err != nil {
		return fmt.Errorf("stop %s: %w", part, err)
	}
	return nil
}

// Restart ends a part politely and starts it again.
func (c *ControlPlane) Restart(ctx context.Context, part Part) error {
	if err := c.StopPart(ctx, part); err != nil {
		return err
	}
	return c.StartPart(ctx, part)
}

// Kill ends the parts as a power cut would. One that does not run is fine.
func (c *ControlPlane) Kill(ctx context.Context, parts ...Part) error {
	var errs []error
	for _, part := range parts {
		id, err := c.process(part)
		if err == nil {
			err = id.Kill(ctx)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("kill %s: %w", part, err))
		}
	}
	return errors.Join(errs...)
}

// Pause freezes a part: when it returns, the part keeps its connections and answers
// nothing.
func (c *ControlPlane) Pause(ctx context.Context, part Part) error {
	id, err := c.process(part)
	if err == nil {
		err = id.Pause(ctx)
	}
	if err != nil {
		return fmt.Errorf("pause %s: %w", part, err)
	}
	return nil
}

// Resume ends a pause.
func (c *ControlPlane) Resume(part Part) error {
	id, err := c.process(part)
	if err == nil {
		err = id.Signal(unix.SIGCONT)
	}
	if err != nil {
		return fmt.Errorf("resume %s: %w", part, err)
	}
	return nil
}

// Alive tells whether the part's process exists.
func (c *ControlPlane) Alive(part Part) bool {
	id, err := c.process(part)
	return err == nil && id.Alive()
}

// process returns the part's last process; one that never ran has the zero ID, which
// names no process.
func (c *ControlPlane) process(part Part) (process.ID, error) {
	if !slices.Contains(c.config.parts(), part) {
		return process.ID{}, fmt.Errorf("find %s: %w", part, ErrNoPart)
	}
	raw, err := os.ReadFile(c.config.path(part.pidFile()))
	if errors.Is(err, os.ErrNotExist) {
		return process.ID{}, nil
	}
	if err != nil {
		return process.ID{}, fmt.Errorf("find %s: %w", part, err)
	}
	var id process.ID
	if err := json.Unmarshal(raw, &id); err != nil {
		return process.ID{}, fmt.Errorf("find %s: %w", part, err)
	}
	return id, nil
}

// URL returns the API server's address, reachable in the control plane's namespace.
func (c *ControlPlane) URL() string { return c.config.url() }

// EtcdURL returns what further control planes put into Config.Etcd to share this etcd.
func (c *ControlPlane) EtcdURL() string { return c.config.etcdURL() }

// EtcdPrefix returns the prefix of this control plane's keys in etcd.
func (c *ControlPlane) EtcdPrefix() string { return c.config.EtcdPrefix }

// EtcdData returns the folder of etcd's data; while etcd is ended it can be copied.
func (c *ControlPlane) EtcdData() string { return c.config.path(etcdData) }

// Log returns the path of a part's log.
func (c *ControlPlane) Log(part Part) string { return c.config.path(part.logFile()) }

// AdminKubeconfig returns the path of a kubeconfig that may do everything.
func (c *ControlPlane) AdminKubeconfig() string { return c.config.path(adminFile) }

// Kubeconfig returns a self-contained kubeconfig for any user in any groups.
func (c *ControlPlane) Kubeconfig(user string, groups ...string) ([]byte, error) {
	return c.config.kubeconfig(c.ca, user, groups...)
}

// NodeKubeconfig returns the kubeconfig of a kubelet: the Node authorizer knows it as
// this node and lets it do what nodes do.
func (c *ControlPlane) NodeKubeconfig(node string) ([]byte, error) {
	return c.Kubeconfig("system:node:"+node, "system:nodes")
}

// RESTConfig returns the admin's client configuration, without client-side throttling.
// Its connections are made in the control plane's namespace, so it works from outside.
func (c *ControlPlane) RESTConfig() *rest.Config {
	config := &rest.Config{
		Host: c.URL(),
		TLSClientConfig: rest.TLSClientConfig{
			CAData: c.ca.pem, CertData: c.admin.cert, KeyData: c.admin.key,
		},
		QPS: -1,
	}
	if c.config.Netns != "" {
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			return netns.Dial(ctx, c.config.Netns, net.Dialer{}, network, address)
		}
	}
	return config
}
