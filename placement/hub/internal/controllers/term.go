// SPDX-License-Identifier: Apache-2.0

package controllers

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

// term tells the writes of this leader from those of all others, also of a hub that was
// restored from a backup, or made again.
type term struct {
	hub    types.UID
	epoch  string // of the hub
	number int64
}

// signer signs Works with the leader's term, and remembers what it has signed: a hub that finds
// less than that was restored while it ran.
type signer struct {
	mu      sync.Mutex
	term    term
	written map[client.ObjectKey]int64 // revisions of Works
}

// begin begins a term.
func (s *signer) begin(t term) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term, s.written = t, map[client.ObjectKey]int64{}
}

// current is the present term.
func (s *signer) current() term {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.term
}

// wrote notes the revision of a Work that was written; 0 when it was deleted.
func (s *signer) wrote(key client.ObjectKey, revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision == 0 {
		delete(s.written, key)
		return
	}
	s.written[key] = revision
}

// last is the revision of a Work that was written in this term; 0 when none was.
func (s *signer) last(key client.ObjectKey) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written[key]
}

// Keys of the ConfigMap that has the term.
const (
	epochKey = "epoch"
	termKey  = "term"
)

// nextTerm raises the stored term, by compare-and-swap. A term is the time in milliseconds, or
// the last term plus one if that is greater: so a leader after a restore has a greater one than
// all leaders that the backup does not know of. known is an epoch that Works have: it stays the
// hub's when the ConfigMap was deleted. before is this leader's last term, if it had one.
func nextTerm(ctx context.Context, c client.Client, before term, known string, now time.Time) (term, error) {
	stored := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.TermConfigMap}
	err := c.Get(ctx, key, stored)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return term{}, fmt.Errorf("read the hub's term: %w", err)
	}
	last, err := lastTerm(stored)
	if err != nil {
		return term{}, err
	}
	next := term{epoch: stored.Data[epochKey], number: max(last+1, before.number+1, now.UnixMilli())}
	if next.epoch == "" {
		next.epoch = known
	}
	if next.epoch == "" {
		next.epoch = string(uuid.NewUUID())
	}
	stored.Data = map[string]string{epochKey: next.epoch, termKey: strconv.FormatInt(next.number, 10)}
	if missing {
		stored.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
		err = c.Create(ctx, stored)
	} else {
		err = c.Update(ctx, stored)
	}
	if err != nil {
		return term{}, fmt.Errorf("raise the hub's term in ConfigMap %s: %w", key, err)
	}
	return next, nil
}

// lastTerm reads the stored term; 0 when there is none.
func lastTerm(stored *corev1.ConfigMap) (int64, error) {
	text, ok := stored.Data[termKey]
	if !ok {
		return 0, nil
	}
	last, err := strconv.ParseInt(text, 10, 64)
	if err != nil || last < 0 || last >= maxTerm {
		return 0, fmt.Errorf("ConfigMap %s/%s: data.%s must be a number from 0 to %d, and is %q: delete the key",
			stored.Namespace, stored.Name, termKey, maxTerm, text)
	}
	return last, nil
}

// maxTerm leaves room for all leaders to come: it is a time in the year 10889.
const maxTerm = 1 << 48

// maxHistory is how many terms a Work remembers: those that its agent may still be at.
const maxHistory = 64

// sign gives a spec the hub's epoch and this leader's term. What the Work was before, if it was
// another leader's, goes into its history. Terms before the one that the agent has reported
// last are dropped from it.
func (t term) sign(s *v1alpha1.WorkSpec, before v1alpha1.WorkPosition, reported int64) {
	s.HubUID, s.Epoch, s.Term = t.hub, t.epoch, t.number
	if before.Term != t.number {
		s.History = append(s.History, before)
	}
	kept := slices.DeleteFunc(slices.Clone(s.History), func(p v1alpha1.WorkPosition) bool { return p.Term < reported })
	s.History = kept[max(0, len(kept)-maxHistory):]
}
