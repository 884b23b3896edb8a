// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// arrivals are what watches of one object in all clusters see.
type arrivals struct {
	watches []watch.Interface
	seen    chan arrival
}

type arrival struct {
	cluster int
	value   string // empty when the watch has ended
	at      time.Time
}

// errEnded says that an API server has ended a watch in the midst of a run.
var errEnded = errors.New("a cluster's watch has ended: run it again")

// follow begins to watch the object.
func (l *lab) follow(ctx context.Context, name string) (*arrivals, error) {
	a := &arrivals{seen: make(chan arrival, 64*len(l.names))}
	for i, cluster := range l.names {
		w, err := l.bed.Clusters[cluster].Client.Watch(ctx, &corev1.ConfigMapList{},
			client.InNamespace(metav1.NamespaceDefault), client.MatchingFields{"metadata.name": name})
		if err != nil {
			a.stop()
			return nil, fmt.Errorf("watch cluster %s: %w", cluster, err)
		}
		a.watches = append(a.watches, w)
		go a.pass(i, w)
	}
	return a, nil
}

// pass notes when each event came.
func (a *arrivals) pass(cluster int, w watch.Interface) {
	for e := range w.ResultChan() {
		if o, ok := e.Object.(*corev1.ConfigMap); ok {
			a.seen <- arrival{cluster: cluster, value: o.Data["value"], at: time.Now()}
		}
	}
	a.seen <- arrival{cluster: cluster}
}

func (a *arrivals) stop() {
	for _, w := range a.watches {
		w.Stop()
	}
}

// await returns when each cluster had the value.
func (a *arrivals) await(ctx context.Context, value string) ([]time.Time, error) {
	at := make([]time.Time, len(a.watches))
	for missing := len(at); missing > 0; {
		select {
		case s := <-a.seen:
			if s.value == "" {
				return nil, errEnded
			}
			if s.value == value && at[s.cluster].IsZero() {
				at[s.cluster] = s.at
				missing--
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("await %d clusters: %w", missing, ctx.Err())
		}
	}
	return at, nil
}
