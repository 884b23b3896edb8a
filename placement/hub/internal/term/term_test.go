// SPDX-License-Identifier: Apache-2.0

package term

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

// configMaps is an API server with one ConfigMap.
type configMaps struct {
	client.Client
	stored *corev1.ConfigMap // nil: there is none
}

func (s *configMaps) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if s.stored == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, v1alpha1.TermConfigMap)
	}
	if c, ok := o.(*corev1.ConfigMap); ok {
		s.stored.DeepCopyInto(c)
	}
	return nil
}

func (s *configMaps) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	s.stored, _ = o.(*corev1.ConfigMap)
	return nil
}

func (s *configMaps) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	s.stored, _ = o.(*corev1.ConfigMap)
	return nil
}

// A term grows with each leader, also after a restore, and the epoch stays.
func TestNext(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(5000)
	for name, tc := range map[string]struct {
		reason, epoch, term, known string
		before                     int64
		want                       int64
		wantEpoch                  string // "": a random one
		err                        string
	}{
		"first":            {reason: "A hub makes its epoch at its first start.", want: 5000},
		"next":             {reason: "The number is the time.", epoch: "e", term: "4000", want: 5000, wantEpoch: "e"},
		"clock went back":  {reason: "The number grows although the clock went back.", epoch: "e", term: "9000", want: 9001, wantEpoch: "e"},
		"restored":         {reason: "The process has led a later term than the restored state has.", epoch: "e", term: "4000", before: 7000, want: 7001, wantEpoch: "e"},
		"deleted":          {reason: "The Works still carry the epoch.", known: "k", want: 5000, wantEpoch: "k"},
		"stored is better": {reason: "The ConfigMap decides when it exists.", epoch: "e", term: "1", known: "k", want: 5000, wantEpoch: "e"},
		"no number":        {reason: "A value that is no number is an error.", epoch: "e", term: "many", err: `data.term must be a number from 0 to`},
		"too large":        {reason: "A number near the maximum would leave no room for later leaders.", epoch: "e", term: "9223372036854775807", err: "delete the key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &configMaps{}
			if tc.term != "" {
				s.stored = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TermConfigMap}, Data: map[string]string{EpochKey: tc.epoch, NumberKey: tc.term}}
			}
			got, err := Next(t.Context(), s, Term{Number: tc.before}, tc.known, now)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("%s\nNext: got error %v, want %q", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil || got.Number != tc.want || got.Epoch == "" || tc.wantEpoch != "" && got.Epoch != tc.wantEpoch {
				t.Errorf("%s\nNext: got %+v, %v, want %d of %q", tc.reason, got, err, tc.want, tc.wantEpoch)
			}
			if last, err := storedNumber(s.stored); err != nil || last != tc.want || s.stored.Data[EpochKey] != got.Epoch {
				t.Errorf("%s\nstored: got %v, %v", tc.reason, s.stored.Data, err)
			}
		})
	}
}

// A change of another leader's Work goes into its history, until the agent has passed it.
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
		"same leader":  {"The same leader adds nothing.", at(7, 3), history{at(5, 2)}, 5, history{at(5, 2)}},
		"next leader":  {"The next leader adds the position that it continues.", at(6, 3), history{at(5, 2)}, 5, history{at(5, 2), at(6, 3)}},
		"acknowledged": {"Terms before the reported one are dropped.", at(6, 3), history{at(5, 2)}, 6, history{at(6, 3)}},
		"first":        {"A Work of a hub without terms has the term 0.", at(0, 9), nil, 0, history{at(0, 9)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &v1alpha1.WorkSpec{History: tc.history}
			Term{Epoch: "e", Number: 7}.Sign(s, tc.before, tc.reported)
			if diff := cmp.Diff(tc.want, s.History); diff != "" || s.Term != 7 || s.Epoch != "e" {
				t.Errorf("%s\nSign: got term %d, -want +got\n%s", tc.reason, s.Term, diff)
			}
		})
	}
	s := &v1alpha1.WorkSpec{}
	for n := range int64(2 * maxHistory) {
		Term{Number: n + 1}.Sign(s, at(n, n), 0)
	}
	if len(s.History) != maxHistory || s.History[maxHistory-1] != at(2*maxHistory-1, 2*maxHistory-1) {
		t.Errorf("history: got %d entries up to %v, want the last %d", len(s.History), s.History[len(s.History)-1], maxHistory)
	}
}
