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

// runAsLeader calls work while this process holds the agent's Lease in its own cluster: two
// agents at once would each keep records that the other does not know.
func runAsLeader(ctx context.Context, o *options, local *rest.Config, work func(context.Context) error) error {
	leases, err := coordinationv1client.NewForConfig(local)
	if err != nil {
		return fmt.Errorf("make this cluster's client: %w", err)
	}
	// The Lease is given back when the work has ended, not when that is asked for.
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var begun atomic.Bool // or never to be
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
				if !begun.CompareAndSwap(false, true) {
					return
				}
				err := runUntilEither(ctx, leading, work)
				if leading.Err() == nil { // else the Lease is lost
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
		if begun.CompareAndSwap(false, true) {
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
	return nil // it never led, or lost the Lease meanwhile
}

// Times of the election; see the flags of kube-controller-manager.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// errLeaseLost ends an agent that another one may have taken over from.
var errLeaseLost = errors.New("another agent may lead: the Lease patchbay-agent could not be renewed")

// runUntilEither calls work with a context that ends with the one or the other.
func runUntilEither(ctx, leading context.Context, work func(context.Context) error) error {
	leading, cancel := context.WithCancel(leading)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	return work(leading)
}
