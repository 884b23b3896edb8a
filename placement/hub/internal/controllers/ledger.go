// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// usage is what is placed on one cluster, or asked for one object.
type usage struct {
	objects, replicas, milliCPU, memory int64
}

func (u *usage) add(o usage, times int64) {
	u.objects += o.objects * times
	u.replicas += o.replicas * times
	u.milliCPU += o.milliCPU * times
	u.memory += o.memory * times
}

// perReplica is what one replica with these requests uses.
func perReplica(requests corev1.ResourceList) usage {
	return usage{replicas: 1, milliCPU: requests.Cpu().MilliValue(), memory: requests.Memory().Value()}
}

// claim is what one object uses: that of a replica, and the replicas on each cluster.
type claim struct {
	each     usage
	replicas map[string]int64
}

// ledger counts what all objects use of each cluster, decisions included that no cache
// has seen yet: so two objects cannot be given the same room.
type ledger struct {
	mu     sync.Mutex
	claims map[Key]claim
	used   map[string]*usage
}

func newLedger() *ledger {
	return &ledger{claims: map[Key]claim{}, used: map[string]*usage{}}
}

// decide runs a decision that depends on room, and stores what it claims. Decisions
// are made one at a time; they are arithmetic.
func (l *ledger) decide(key Key, decision func(*ledger) (claim, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, err := decision(l)
	if err != nil {
		return err
	}
	l.set(key, c)
	return nil
}

// put stores what an object claims.
func (l *ledger) put(key Key, c claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(key, c)
}

// set stores a claim and says which clusters' usage changed.
func (l *ledger) set(key Key, c claim) {
	l.count(l.claims[key], -1)
	l.count(c, 1)
	if len(c.replicas) == 0 {
		delete(l.claims, key)
		return
	}
	l.claims[key] = c
}

func (l *ledger) count(c claim, sign int64) {
	for cluster, n := range c.replicas {
		u := l.used[cluster]
		if u == nil {
			u = &usage{}
			l.used[cluster] = u
		}
		u.add(c.each, sign*n)
		u.objects += sign
	}
}

// of returns what is used of a cluster.
func (l *ledger) of(cluster string) usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u := l.used[cluster]; u != nil {
		return *u
	}
	return usage{}
}

// room says how many replicas of an object a cluster has room for, those included
// that it has; nil is no limit.
func (l *ledger) room(key Key, each usage, cluster string, limits *v1alpha1.Limits) (*int64, string) {
	if limits == nil || each.replicas == 0 {
		return nil, ""
	}
	var others usage
	if u := l.used[cluster]; u != nil {
		others = *u
	}
	if own, ok := l.claims[key]; ok {
		others.add(own.each, -own.replicas[cluster])
	}
	var room *int64
	why := ""
	lower := func(limit, used, per int64, name string) {
		if per <= 0 {
			return
		}
		if n := max(0, limit-used) / per; room == nil || n < *room {
			room, why = &n, fmt.Sprintf("limits.%s %d, %d of it used by others", name, limit, used)
		}
	}
	if limits.Replicas != nil {
		lower(int64(*limits.Replicas), 0, 1, "replicas")
	}
	if limits.Pods != nil {
		lower(int64(*limits.Pods), others.replicas, 1, "pods")
	}
	if limits.CPU != nil {
		lower(limits.CPU.MilliValue(), others.milliCPU, each.milliCPU, "cpu (in thousandths)")
	}
	if limits.Memory != nil {
		lower(limits.Memory.Value(), others.memory, each.memory, "memory")
	}
	return room, why
}
