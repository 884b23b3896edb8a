// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// terms is an API server that has one ConfigMap.
type terms struct {
	client.Client
	stored *corev1.ConfigMap // nil: there is none
}

func (s *terms) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if s.stored == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, v1alpha1.TermConfigMap)
	}
	if c, ok := o.(*corev1.ConfigMap); ok {
		s.stored.DeepCopyInto(c)
	}
	return nil
}

func (s *terms) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	s.stored, _ = o.(*corev1.ConfigMap)
	return nil
}

func (s *terms) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	s.stored, _ = o.(*corev1.ConfigMap)
	return nil
}

func TestNextTerm(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(5000)
	for name, tc := range map[string]struct {
		reason, epoch, term, known string
		before                     int64
		want                       int64
		wantEpoch                  string // "": a random one
		err                        string
	}{
		"first":            {reason: "A hub makes its epoch when it first runs.", want: 5000},
		"next":             {reason: "A term is the time.", epoch: "e", term: "4000", want: 5000, wantEpoch: "e"},
		"clock went back":  {reason: "It grows whatever the clock says.", epoch: "e", term: "9000", want: 9001, wantEpoch: "e"},
		"restored":         {reason: "A leader that lived through a restore has had terms.", epoch: "e", term: "4000", before: 7000, want: 7001, wantEpoch: "e"},
		"deleted":          {reason: "The Works know the epoch still.", known: "k", want: 5000, wantEpoch: "k"},
		"stored is better": {reason: "The ConfigMap decides.", epoch: "e", term: "1", known: "k", want: 5000, wantEpoch: "e"},
		"no number":        {reason: "Nothing is guessed.", epoch: "e", term: "many", err: `data.term must be a number from 0 to`},
		"too large":        {reason: "A term that is used up would stop all hubs to come.", epoch: "e", term: "9223372036854775807", err: "delete the key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &terms{}
			if tc.term != "" {
				s.stored = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TermConfigMap}, Data: map[string]string{epochKey: tc.epoch, termKey: tc.term}}
			}
			got, err := nextTerm(t.Context(), s, term{number: tc.before}, tc.known, now)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("%s\nnextTerm: got error %v, want %q", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil || got.number != tc.want || got.epoch == "" || tc.wantEpoch != "" && got.epoch != tc.wantEpoch {
				t.Errorf("%s\nnextTerm: got %+v, %v, want %d of %q", tc.reason, got, err, tc.want, tc.wantEpoch)
			}
			if last, err := lastTerm(s.stored); err != nil || last != tc.want || s.stored.Data[epochKey] != got.epoch {
				t.Errorf("%s\nstored: got %v, %v", tc.reason, s.stored.Data, err)
			}
		})
	}
}

func TestSign(t *testing.T) {
	t.Parallel()
	at := func(term, revision int64) v1alpha1.WorkPosition {
		return v1alpha1.WorkPosition{Term: term, Revision: revision}
	}
	type history = []v1alpha1.WorkPosition
	for name, tc := range map[string]struct {
		reason   string
		before   v1alpha1.WorkPosition
		history  history
		reported int64
		want     history
	}{
		"same leader":  {"A leader goes on.", at(7, 3), history{at(5, 2)}, 5, history{at(5, 2)}},
		"next leader":  {"The next one says what it knew of.", at(6, 3), history{at(5, 2)}, 5, history{at(5, 2), at(6, 3)}},
		"acknowledged": {"Terms are dropped that the agent is past.", at(6, 3), history{at(5, 2)}, 6, history{at(6, 3)}},
		"first":        {"A Work of a hub without terms has term 0.", at(0, 9), nil, 0, history{at(0, 9)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &v1alpha1.WorkSpec{History: tc.history}
			term{epoch: "e", number: 7}.sign(s, tc.before, tc.reported)
			if diff := cmp.Diff(tc.want, s.History); diff != "" || s.Term != 7 || s.Epoch != "e" {
				t.Errorf("%s\nsign: got term %d, -want +got\n%s", tc.reason, s.Term, diff)
			}
		})
	}
	s := &v1alpha1.WorkSpec{}
	for n := range int64(2 * maxHistory) {
		term{number: n + 1}.sign(s, at(n, n), 0)
	}
	if len(s.History) != maxHistory || s.History[maxHistory-1] != at(2*maxHistory-1, 2*maxHistory-1) {
		t.Errorf("history: got %d entries up to %v, want the last %d", len(s.History), s.History[len(s.History)-1], maxHistory)
	}
}

// A cache that stays behind, as after a restore, is not asked again fifty times a second.
func TestStaleAgain(t *testing.T) {
	t.Parallel()
	p := &pass{hub: &hub{}, key: Key{Namespace: "ns", Name: "web"}}
	var all time.Duration
	for range 20 {
		all += p.staleAgain()
	}
	if all < time.Minute {
		t.Errorf("20 passes over a cache that stays behind: got %s, want more than a minute", all)
	}
	p.fresh()
	if got := p.staleAgain(); got != staleWait {
		t.Errorf("after a pass that found it fresh: got %s, want %s again", got, staleWait)
	}
}
