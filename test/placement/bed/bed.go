// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/source"
)

// startTimeout bounds the start of everything on a busy machine.
const startTimeout = 4 * time.Minute

// InertControllers is what a hub's controller manager may run: nothing that makes or
// changes a workload.
const InertControllers = "namespace,garbagecollector,serviceaccount-token,ttl-after-finished,bootstrapsigner,tokencleaner," +
	"csrcleaner,csrsigning,clusterrole-aggregation,pvc-protection"

// Config says what to start.
type Config struct {
	// Clusters are the workload clusters' names.
	Clusters []string
	// APIServersOnly leaves out what makes clusters run Pods: for measurements with
	// many of them.
	APIServersOnly bool
	// Programs is the folder of our programs. Default: bin.
	Programs string
	// KeepDir leaves the folder with all logs there when the bed ends.
	KeepDir bool
}

// Bed is a hub and its clusters.
type Bed struct {
	// Hub is the API server that users talk to.
	Hub *Plane
	// Clusters are the workload clusters by name.
	Clusters map[string]*Cluster
	// Dir holds everything: logs too.
	Dir string

	root   string // of the repository
	config Config
}

// Launch starts a bed. Close ends it; when the caller dies the kernel does.
func Launch(ctx context.Context, config Config) (*Bed, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	root, err := source.Path()
	if err != nil {
		return nil, err
	}
	if config.Programs == "" {
		config.Programs = filepath.Join(root, "bin")
	}
	// The usual folder for temporary files keeps the path short: etcd's socket is in it.
	dir, err := os.MkdirTemp("", "placement")
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	b := &Bed{Dir: dir, root: root, config: config, Clusters: map[string]*Cluster{}}
	if err := b.start(ctx); err != nil {
		return nil, errors.Join(err, b.Close(context.WithoutCancel(ctx)))
	}
	return b, nil
}

// start brings up the hub and the clusters' etcd, then all clusters at once.
func (b *Bed) start(ctx context.Context) error {
	var err error
	if b.Hub, err = b.startHub(ctx); err != nil {
		return fmt.Errorf("start hub: %w", err)
	}
	var etcd string
	for i, name := range b.config.Clusters {
		if i > 0 {
			break
		}
		c, err := b.startCluster(ctx, name, "")
		if err != nil {
			return fmt.Errorf("start cluster %s: %w", name, err)
		}
		b.Clusters[name], etcd = c, c.ControlPlane.EtcdURL()
	}
	clusters := make([]*Cluster, len(b.config.Clusters))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(2)
	for i := 1; i < len(clusters); i++ {
		g.Go(func() error {
			var err error
			name := b.config.Clusters[i]
			if clusters[i], err = b.startCluster(ctx, name, etcd); err != nil {
				return fmt.Errorf("start cluster %s: %w", name, err)
			}
			return nil
		})
	}
	err = g.Wait()
	for _, c := range clusters {
		if c != nil {
			b.Clusters[c.Name] = c
		}
	}
	return err
}

// startHub starts the hub with a controller manager of few controllers. Nothing there
// makes service accounts, so their admission is off, as in every control plane that
// package controlplane starts without a controller manager of its own.
func (b *Bed) startHub(ctx context.Context) (*Plane, error) {
	dir := filepath.Join(b.Dir, "hub")
	frontProxy, err := frontProxyArgs(dir)
	if err != nil {
		return nil, err
	}
	p, err := b.startPlane(ctx, controlplane.Config{
		Dir: dir,
		ExtraArgs: map[controlplane.Part][]string{
			controlplane.APIServer: append(frontProxy, "--enable-bootstrap-token-auth=true"),
		},
	})
	if err != nil {
		return nil, err
	}
	err = p.startControllers("--controllers=" + InertControllers)
	if err != nil {
		return nil, errors.Join(err, p.close(context.WithoutCancel(ctx)))
	}
	return p, nil
}

// startPlane starts a control plane that keeps an audit log.
func (b *Bed) startPlane(ctx context.Context, config controlplane.Config) (*Plane, error) {
	config.Bin, config.DieWithParent = filepath.Join(b.root, "bin", "kubernetes"), true
	if err := os.MkdirAll(config.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	policy := filepath.Join(config.Dir, "audit-policy.yaml")
	rules := auditPolicy
	if b.config.APIServersOnly { // what was written counts there, not its contents
		rules = bytes.ReplaceAll(rules, []byte("level: RequestResponse"), []byte("level: Metadata"))
	}
	if err := os.WriteFile(policy, rules, 0o600); err != nil {
		return nil, fmt.Errorf("write audit policy: %w", err)
	}
	if config.ExtraArgs == nil {
		config.ExtraArgs = map[controlplane.Part][]string{}
	}
	config.ExtraArgs[controlplane.APIServer] = append(config.ExtraArgs[controlplane.APIServer],
		"--audit-policy-file="+policy, "--audit-log-path="+filepath.Join(config.Dir, auditFile), "--audit-log-mode=blocking",
		// Debian's etcd 3.4 cannot serve streamed lists. Told so, clients list; else KWOK
		// asks again and again, and hears of changes a minute late.
		"--feature-gates=WatchList=false")
	control, err := controlplane.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	p := &Plane{ControlPlane: control, Config: control.RESTConfig(), bin: config.Bin, dir: config.Dir}
	if p.Client, err = client.NewWithWatch(p.Config, client.Options{Scheme: Scheme()}); err != nil {
		return nil, errors.Join(fmt.Errorf("make client: %w", err), p.close(context.WithoutCancel(ctx)))
	}
	return p, nil
}

// startCluster starts a cluster with one node, on that etcd or one of its own. As at the
// hub the admission of service accounts is off.
func (b *Bed) startCluster(ctx context.Context, name, etcd string) (*Cluster, error) {
	full := !b.config.APIServersOnly
	plane, err := b.startPlane(ctx, controlplane.Config{
		Dir: filepath.Join(b.Dir, name), Etcd: etcd, EtcdPrefix: "/" + name,
		ServiceCIDR: netip.MustParsePrefix("10.97.0.0/16"),
	})
	if err != nil {
		return nil, err
	}
	c := &Cluster{Plane: plane, Name: name}
	if err := c.prepare(ctx, b, full); err != nil {
		return nil, errors.Join(err, c.close(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// SpareCluster starts a cluster on the etcd of the others. It is not among Clusters, no
// hub knows it, and its caller closes it.
func (b *Bed) SpareCluster(ctx context.Context, name string) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c, err := b.startCluster(ctx, name, b.etcdURL())
	if err != nil {
		return nil, fmt.Errorf("start cluster %s: %w", name, err)
	}
	return c, nil
}

// SpareHub starts an API server for a hub on the etcd of the clusters. There is nothing
// of ours in it, and its caller closes it.
func (b *Bed) SpareHub(ctx context.Context, name string) (*Plane, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	p, err := b.startPlane(ctx, controlplane.Config{
		Dir: filepath.Join(b.Dir, name), Etcd: b.etcdURL(), EtcdPrefix: "/" + name,
		ExtraArgs: map[controlplane.Part][]string{controlplane.APIServer: {"--enable-bootstrap-token-auth=true"}},
	})
	if err != nil {
		return nil, fmt.Errorf("start API server %s: %w", name, err)
	}
	if err := p.startControllers("--controllers=" + InertControllers); err != nil {
		return nil, errors.Join(err, p.Close(context.WithoutCancel(ctx)))
	}
	return p, nil
}

// etcdURL is that of the clusters.
func (b *Bed) etcdURL() string { return b.Clusters[b.config.Clusters[0]].ControlPlane.EtcdURL() }

// Close ends everything and removes the folder, unless it is to be kept.
func (b *Bed) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var errs []error
	for _, c := range b.Clusters {
		errs = append(errs, c.close(ctx))
	}
	if b.Hub != nil {
		errs = append(errs, b.Hub.close(ctx))
	}
	if !b.config.KeepDir {
		errs = append(errs, os.RemoveAll(b.Dir))
	}
	return errors.Join(errs...)
}

// KeepDir makes Close leave the folder, with all logs.
func (b *Bed) KeepDir() { b.config.KeepDir = true }

// Scheme knows Kubernetes' kinds and ours.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s)) // fails only for a kind registered twice
	utilruntime.Must(v1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}
