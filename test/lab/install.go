// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/patchbay-cni/patchbay/test/lab/node"
)

// Names in deployments/.
const (
	productNamespace = "patchbay-system"
	productDaemon    = "patchbayd"
	productManager   = "patchbay-controller"
	productLabel     = "app.kubernetes.io/part-of=patchbay"
	nameLabel        = "app.kubernetes.io/name="
	workloads        = "daemonset,deployment"
)

// overlay is what an administrator would write to install Patchbay: the manifests of
// deployments/, plus a mark on the Pods that changes with the images. Their tags stay
// the same from build to build, so nothing else would roll a new one out. The patch's
// own kind and name mean nothing: the target chooses what it is for.
const overlay = `resources: [%s]
patches:
  - target: {kind: DaemonSet|Deployment, labelSelector: ` + productLabel + `}
    patch: |
      {apiVersion: apps/v1, kind: Any, metadata: {name: any}, spec: {template: {metadata: {annotations: {patchbay.local/images: %q}}}}}
`

// Install applies deployments/ of the module that the lab was built from and waits
// until its daemon is ready on every node and its controller answers the API server.
func (l *Lab) Install(ctx context.Context) error {
	dir := l.config.path("install")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	base, err := filepath.Rel(dir, l.config.source("deployments"))
	if err != nil {
		return fmt.Errorf("find deployments: %w", err)
	}
	sum, err := l.imagesSum()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), fmt.Appendf(nil, overlay, base, sum), 0o644); err != nil {
		return fmt.Errorf("write kustomization: %w", err)
	}
	// What a test changed for a while, and did not take back, is no reason to stop.
	if _, err := l.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "--kustomize", dir); err != nil {
		return err
	}
	return l.awaitRollout(ctx, productLabel)
}

// imagesSum changes with the archives in bin/images.
func (l *Lab) imagesSum() (string, error) {
	files, err := l.config.builtImages()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return "", fmt.Errorf("read image: %w", err)
		}
		_, err = io.Copy(h, f)
		_ = f.Close()
		if err != nil {
			return "", fmt.Errorf("read image: %w", err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// restartProduct brings images that were built meanwhile to the nodes, and the program
// of that name to life again.
func (l *Lab) restartProduct(ctx context.Context, name string) error {
	if err := l.importAll(ctx); err != nil {
		return err
	}
	label := nameLabel + name
	if _, err := l.Kubectl(ctx, "rollout", "restart", "--namespace", productNamespace, workloads, "--selector", label); err != nil {
		return err
	}
	return l.awaitRollout(ctx, label)
}

// importAll gives all nodes that are on the images that they lack.
func (l *Lab) importAll(ctx context.Context) error {
	nodes, err := l.Nodes()
	if err != nil {
		return err
	}
	group, importing := errgroup.WithContext(ctx)
	for _, name := range nodes {
		group.Go(func() error {
			c, err := l.nodeConfig(name)
			if err != nil || !node.On(c.Dir) {
				return err
			}
			return c.Import(importing, c.Images...)
		})
	}
	return group.Wait()
}

// awaitRollout waits for all programs of the product that have the label, and for
// admission.
func (l *Lab) awaitRollout(ctx context.Context, label string) error {
	_, err := l.Kubectl(ctx, "rollout", "status", "--namespace", productNamespace, workloads, "--selector", label, "--timeout=480s")
	if err != nil {
		return err
	}
	return l.awaitAdmission(ctx)
}
