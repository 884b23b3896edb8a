// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// bitmapRecovery starts and ends the recovery of networks whose status went back in time.
type bitmapRecovery struct {
	cluster *clusterReader
	gc      GarbageCollector
	events  EventRecorder
	now     func() time.Time
}

// recoveryProgress is the state of a network's recovery.
type recoveryProgress struct {
	// since is when the recovery started, in RFC 3339; empty when there is none. It tells one
	// recovery of a network from the next.
	since string
	// awaited are the nodes that have not reported; empty when the recovery is over.
	awaited []string
	// skipped are the nodes that the annotation danm.io/ipam-skip excludes.
	skipped []string
	// deferred are the nodes whose rollback reports start no recovery, and until when.
	deferred map[string]metav1.MicroTime
	// stale is true when the network has changed since it was read.
	stale bool
}

// annotationValue is what the annotation danm.io/recovering should be; empty for none.
func (p recoveryProgress) annotationValue(err error) string {
	if err == nil && len(p.awaited) == 0 {
		return "" // the recovery is over
	}
	return p.since
}

// reconcile starts the recovery of a network when a node reports a rollback, and ends it when every
// Node has reported the addresses that it uses, or is skipped.
func (b *bitmapRecovery) reconcile(ctx context.Context, r networkSnapshot) (recoveryProgress, error) {
	p := recoveryProgress{deferred: r.deferredNodes()}
	if r.RollbackDue(b.now()) {
		return b.start(ctx, r, p)
	}
	state := r.recovery()
	if state == nil {
		return p, nil
	}
	p.since = state.StartTime.UTC().Format(time.RFC3339Nano)
	nodes, err := b.cluster.cachedNodes(ctx)
	if err != nil {
		return p, err
	}
	text, _ := r.skipRequest()
	p.skipped = skippedNodes(nodes.linuxNames(), text)
	if p.awaited = awaitedNodes(nodes.linuxNames(), state.ReportedNodes, p.skipped); len(p.awaited) > 0 {
		return p, nil // the cache may still have a deleted Node: a later event corrects that
	}
	// The API server decides: the recovery must also wait for a Node that is not in the cache yet.
	if nodes, err = b.cluster.listedNodes(ctx); err != nil {
		return p, err
	}
	p.skipped = skippedNodes(nodes.linuxNames(), text)
	if p.awaited, err = b.gc.Recover(ctx, r.key(), nodes.linuxNames(), p.skipped); err != nil {
		return p, fmt.Errorf("end the recovery of %s: %w", r.Ref, err)
	}
	if len(p.awaited) == 0 {
		b.reportRecovered(ctx, r, p.skipped)
	}
	return p, nil
}

// start starts the recovery that a node requests with its rollback report, unless that node has
// reported too many rollbacks.
func (b *bitmapRecovery) start(ctx context.Context, r networkSnapshot, p recoveryProgress) (recoveryProgress, error) {
	nodes, err := b.cluster.listedNodes(ctx)
	if err != nil {
		return p, err
	}
	text, _ := r.skipRequest()
	p.skipped = skippedNodes(nodes.linuxNames(), text)
	if p.awaited, err = b.gc.Recover(ctx, r.key(), nodes.linuxNames(), p.skipped); err != nil {
		return p, fmt.Errorf("start the recovery of %s: %w", r.Ref, err)
	}
	logr.FromContextOrDiscard(ctx).Info("Processed rollback reports", "awaited", p.awaited)
	p.stale = true
	return p, nil
}

// awaitedNodes returns the nodes that have neither reported nor are skipped, sorted.
func awaitedNodes(nodes, reported, skipped []string) []string {
	var awaited []string
	for _, n := range nodes {
		if !slices.Contains(reported, n) && !slices.Contains(skipped, n) {
			awaited = append(awaited, n)
		}
	}
	slices.Sort(awaited)
	return awaited
}

// skippedNodes returns those of nodes that text, the value of the annotation danm.io/ipam-skip,
// names. The value has commas between names. Tenants may write it: nothing else of it is
// stored or reported, and the time that this takes grows with its length only.
func skippedNodes(nodes []string, text string) []string {
	if text == "" {
		return nil
	}
	names := map[string]bool{}
	for name := range strings.SplitSeq(text, ",") {
		names[strings.TrimSpace(name)] = true
	}
	var skipped []string
	for _, n := range nodes {
		if names[n] {
			skipped = append(skipped, n)
		}
	}
	return skipped
}

// reportRecovered reports that nodes allocate addresses of the network again.
func (b *bitmapRecovery) reportRecovered(ctx context.Context, r networkSnapshot, skipped []string) {
	text := "every node has reported the addresses that it uses: addresses are allocated again"
	if len(skipped) > 0 {
		text += "; left out on request: " + joinNames(skipped)
	}
	logr.FromContextOrDiscard(ctx).Info("Ended the recovery of the network", "skipped", skipped)
	b.events.Event(r.obj, corev1.EventTypeNormal, v1.ReasonRecovered, text)
}
