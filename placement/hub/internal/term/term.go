// SPDX-License-Identifier: Apache-2.0

// Package term gives each leader of the hub its term, and signs Works with it. Agents tell by
// epoch and term that a hub was restored from a backup, or made again.
package term

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// Keys of the ConfigMap that stores the term.
const (
	// EpochKey is the key of the hub's epoch.
	EpochKey = "epoch"
	// NumberKey is the key of the last term's number.
	NumberKey = "term"
)

// Term distinguishes the writes of one leader from those of all others.
type Term struct {
	// HubUID is the UID of the hub's namespace kube-system.
	HubUID types.UID
	// Epoch is random, and stays as long as the hub's state.
	Epoch string
	// Number grows with each leader.
	Number int64
}

// Next raises the stored term, by compare-and-swap, and returns it without HubUID. Its number is
// the time in milliseconds, or the last number plus one if that is greater: after a restore a
// leader so exceeds also the leaders that the backup does not contain. The ConfigMap decides the
// epoch. When it was deleted, the hub keeps worksEpoch, which its Works carry. Previous is this
// process's last term, if it had one.
func Next(ctx context.Context, c client.Client, previous Term, worksEpoch string, now time.Time) (Term, error) {
	stored := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.TermConfigMap}
	err := c.Get(ctx, key, stored)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return Term{}, fmt.Errorf("read the hub's term: %w", err)
	}
	last, err := storedNumber(stored)
	if err != nil {
		return Term{}, err
	}
	next := Term{Epoch: stored.Data[EpochKey], Number: max(last+1, previous.Number+1, now.UnixMilli())}
	if next.Epoch == "" {
		next.Epoch = worksEpoch
	}
	if next.Epoch == "" {
		next.Epoch = string(uuid.NewUUID())
	}
	stored.Data = map[string]string{EpochKey: next.Epoch, NumberKey: strconv.FormatInt(next.Number, 10)}
	if missing {
		stored.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
		err = c.Create(ctx, stored)
	} else {
		err = c.Update(ctx, stored)
	}
	if err != nil {
		return Term{}, fmt.Errorf("raise the hub's term in ConfigMap %s: %w", key, err)
	}
	return next, nil
}

// storedNumber reads the last term's number; it is 0 when none is stored.
func storedNumber(stored *corev1.ConfigMap) (int64, error) {
	text, ok := stored.Data[NumberKey]
	if !ok {
		return 0, nil
	}
	last, err := strconv.ParseInt(text, 10, 64)
	if err != nil || last < 0 || last >= maxNumber {
		return 0, fmt.Errorf("ConfigMap %s/%s: data.%s must be a number from 0 to %d, and is %q: delete the key",
			stored.Namespace, stored.Name, NumberKey, maxNumber, text)
	}
	return last, nil
}

// maxNumber is a time in the year 10889: it leaves room for all future leaders.
const maxNumber = 1 << 48

// Sign sets hub, epoch and term of a Work's spec. Before is the Work's position so far: another
// leader's position goes into the history. Reported is the term that the agent last reported: the
// agent is past earlier terms, and the history drops them.
func (t Term) Sign(s *v1alpha1.WorkSpec, before v1alpha1.WorkPosition, reported int64) {
	s.HubUID, s.Epoch, s.Term = t.HubUID, t.Epoch, t.Number
	if before.Term != t.Number {
		s.History = append(s.History, before)
	}
	kept := slices.DeleteFunc(slices.Clone(s.History), func(p v1alpha1.WorkPosition) bool { return p.Term < reported })
	s.History = kept[max(0, len(kept)-maxHistory):]
}

// maxHistory is how many terms a Work's history holds.
const maxHistory = 64

// Signer holds the present term, and the revisions of the Works that were written in it. A hub
// that reads an older revision than it has written was restored while it ran. The zero value has
// no term yet.
type Signer struct {
	mu        sync.Mutex
	term      Term
	revisions map[client.ObjectKey]int64
}

// Begin begins a term, without any written revision.
func (s *Signer) Begin(t Term) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term, s.revisions = t, map[client.ObjectKey]int64{}
}

// Current returns the present term.
func (s *Signer) Current() Term {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.term
}

// RecordWrite stores the revision that a Work was written with.
func (s *Signer) RecordWrite(work client.ObjectKey, revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revisions[work] = revision
}

// RecordDelete drops a Work that was deleted.
func (s *Signer) RecordDelete(work client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.revisions, work)
}

// WrittenRevision returns the revision that a Work was last written with in this term; it is 0
// when it was not written.
func (s *Signer) WrittenRevision(work client.ObjectKey) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revisions[work]
}
