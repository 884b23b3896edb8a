// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/lab/process"
)

// SpareCluster starts a cluster on the etcd of the others. It is not among Clusters, no
// hub knows it, and its caller closes it.
func (b *Bed) SpareCluster(ctx context.Context, name string) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c, err := b.startCluster(ctx, name, b.etcd())
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
		Dir: filepath.Join(b.Dir, name), Etcd: b.etcd(), EtcdPrefix: "/" + name,
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

// etcd is that of the clusters.
func (b *Bed) etcd() string { return b.Clusters[b.config.Clusters[0]].Control.EtcdURL() }

// Close ends a spare cluster.
func (c *Cluster) Close(ctx context.Context) error { return c.close(ctx) }

// Close ends a spare API server.
func (p *Plane) Close(ctx context.Context) error { return p.close(ctx) }

// Run starts a program of ours that ends with this API server, if not before. Its log is
// <name>.log in Dir.
func (p *Plane) Run(name string, env []string, args ...string) (process.ID, error) {
	return p.runEnv(name, env, args...)
}

// Dir is where the API server and the programs beside it have their files.
func (p *Plane) Dir() string { return p.dir }
