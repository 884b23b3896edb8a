// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// runAsLeader calls work while this process holds the agent's Lease in its own cluster: two agents at a time
// would each cache records that the other one changes.
func runAsLeader(ctx context.Context, o *options, local *rest.Config, work func(context.Context) error) error {
	leases, err := coordinationv1client.NewForConfig(local)
	if err != nil {
		return fmt.Errorf("make this cluster's client: %w", err)
	}
	// The process releases the Lease after work has returned, not when ctx ends.
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var started atomic.Bool // work, or its cancellation before the start
	result := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: o.namespace, Name: "patchbay-agent"},
			Client:     leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: o.identity},
		},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				if !started.CompareAndSwap(false, true) {
					return
				}
				err := runUntilEither(ctx, leading, work)
				if leading.Err() == nil { // else the process lost the Lease
					result <- err
					release()
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("elect a leader: %w", err)
	}
	defer context.AfterFunc(ctx, func() {
		if started.CompareAndSwap(false, true) {
			release()
		}
	})()
	elector.Run(holding)
	select {
	case err := <-result:
		return err
	default:
	}
	if ctx.Err() == nil {
		return errLeaseLost
	}
	return nil // stopped before it led, or while it lost the Lease
}

// Times of the election, as those of kube-controller-manager.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// errLeaseLost ends an agent that has lost the Lease: another agent may lead.
var errLeaseLost = errors.New("another agent may lead: the Lease patchbay-agent could not be renewed")

// runUntilEither calls work with a context that ends when either context ends.
func runUntilEither(ctx, leading context.Context, work func(context.Context) error) error {
	leading, cancel := context.WithCancel(leading)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	return work(leading)
}
