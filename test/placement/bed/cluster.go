// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of Pods that KWOK heeds.
const (
	// ReadyAfter is how long a Pod takes to be ready, as a Go duration; 0 without.
	ReadyAfter = "test.patchbay.io/ready-after"
	// EndsAfter is how long a Pod takes to end, as a Go duration; 0 without.
	EndsAfter = "test.patchbay.io/ends-after"
	// Broken is on Pods that never are, in CrashLoopBackOff.
	Broken = "test.patchbay.io/broken"
)

//go:embed stages.yaml
var stages []byte

// Cluster is a workload cluster.
type Cluster struct {
	*Plane

	// Name is what the hub knows it by.
	Name string
	// Link is its agent's only way to the hub.
	Link *Link
}

func (c *Cluster) prepare(ctx context.Context, b *Bed, full bool) error {
	var err error
	if c.Link, err = NewLink(b.Hub.ControlPlane.URL()); err != nil {
		return err
	}
	if !full {
		return nil
	}
	if err := errors.Join(c.startControllers("--node-monitor-grace-period=240h", "--horizontal-pod-autoscaler-sync-period=3s"), c.startScheduler()); err != nil {
		return err
	}
	file := filepath.Join(c.dir, "stages.yaml")
	if err := os.WriteFile(file, stages, 0o600); err != nil {
		return fmt.Errorf("write stages: %w", err)
	}
	// In the group of nodes the audit log leaves it out.
	kubeconfig, err := c.UserKubeconfig("kwok", "system:masters", "system:nodes")
	if err != nil {
		return err
	}
	// Its nodes have no heartbeat: a busy machine would make them fail.
	if _, err := c.startProgram("kwok", filepath.Join(b.root, "bin", "kwok"),
		"--kubeconfig="+kubeconfig, "--config="+file, "--manage-all-nodes", "--node-lease-duration-seconds=0"); err != nil {
		return err
	}
	return c.AddNode(ctx, c.Name+"-1", 64)
}

// AddNode adds a node with that many CPUs and room for as many Pods as it likes.
func (c *Cluster) AddNode(ctx context.Context, name string, cpus int64) error {
	room := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(cpus, resource.DecimalSI),
		corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods:   resource.MustParse("1000"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"}},
		Status:     corev1.NodeStatus{Capacity: room, Allocatable: room},
	}
	if err := c.Client.Create(ctx, node); err != nil {
		return fmt.Errorf("create node %s: %w", name, err)
	}
	return nil
}

// Close ends a spare cluster.
func (c *Cluster) Close(ctx context.Context) error { return c.close(ctx) }

func (c *Cluster) close(ctx context.Context) error {
	var err error
	if c.Link != nil {
		err = c.Link.Close()
	}
	return errors.Join(err, c.Plane.close(ctx))
}
