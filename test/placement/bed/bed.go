// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

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
	// Keep leaves the folder with all logs there when the bed ends.
	Keep bool
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
		b.Clusters[name], etcd = c, c.Control.EtcdURL()
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
	p, err := b.startPlane(ctx, controlplane.Config{
		Dir: dir,
		ExtraArgs: map[controlplane.Part][]string{
			controlplane.APIServer: {"--enable-bootstrap-token-auth=true"},
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
	if !b.config.Keep {
		errs = append(errs, os.RemoveAll(b.Dir))
	}
	return errors.Join(errs...)
}

// Keep makes Close leave the folder, with all logs.
func (b *Bed) Keep() { b.config.Keep = true }
