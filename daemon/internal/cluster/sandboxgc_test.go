// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// onePod is an API server with the Pods of one UID, or one that fails.
type onePod struct {
	client.Reader
	uid string
	err error
}

func (p onePod) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if p.err == nil && p.uid == "" {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
	}
	obj.SetUID(types.UID(p.uid))
	return p.err
}

func TestSandboxGCDeletesAtTheSecondSweep(t *testing.T) {
	t.Parallel()
	away := errors.New("connection refused")
	cases := map[string]struct {
		reason string
		alive  bool
		pods   onePod
		change func(*attach.Record)
		ended  bool
		err    error
	}{
		"Gone":      {reason: "neither namespace nor Pod", ended: true},
		"Replaced":  {reason: "another Pod has the name", pods: onePod{uid: "other"}, ended: true},
		"HalfMade":  {reason: "an ADD that was cut off", change: func(r *attach.Record) { r.State = attach.Attaching }, ended: true},
		"Alive":     {reason: "a force-deleted Pod's sandbox still runs", alive: true},
		"PodThere":  {reason: "kubelet will send DEL", pods: onePod{uid: "pod-uid"}},
		"Released":  {reason: "being given back already", change: func(r *attach.Record) { r.State = attach.Released }},
		"NoAnswer":  {reason: "nobody says that the Pod is gone", pods: onePod{err: away}, err: attach.ErrTryAgain},
		"NotJudged": {reason: "no path to look at", change: func(r *attach.Record) { r.Netns = "" }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := sandbox("ns")
			if tc.change != nil {
				tc.change(rec)
			}
			var ended []string
			a := &SandboxGC{
				Records:     func() ([]*attach.Record, error) { return []*attach.Record{rec}, nil },
				NetnsExists: func(string) (bool, error) { return tc.alive, nil },
				Pods:        &Pods{Fresh: tc.pods, Synced: func() bool { return false }},
				DeleteSandbox: func(_ context.Context, r *attach.Record) error {
					ended = append(ended, r.ContainerID)
					return nil
				},
			}
			if err := a.Sweep(t.Context()); err != nil || len(ended) > 0 {
				t.Errorf("%s: the first look: %v, ended %v: a namespace may be about to appear", tc.reason, err, ended)
			}
			if err := a.Sweep(t.Context()); !errors.Is(err, tc.err) {
				t.Errorf("%s: got error %v, want %v", tc.reason, err, tc.err)
			}
			var want []string
			if tc.ended {
				want = []string{rec.ContainerID}
			}
			if diff := cmp.Diff(want, ended); diff != "" {
				t.Errorf("%s: ended (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// What the journal cannot read is reported and does not stop the rest.
func TestSandboxGCContinuesPastCorruptRecords(t *testing.T) {
	t.Parallel()
	damaged := errors.New("damaged")
	ends, rec := 0, sandbox("ns")
	a := &SandboxGC{
		Records:       func() ([]*attach.Record, error) { return []*attach.Record{rec}, damaged },
		NetnsExists:   func(string) (bool, error) { return false, nil },
		Pods:          &Pods{Fresh: onePod{}, Synced: func() bool { return false }},
		DeleteSandbox: func(context.Context, *attach.Record) error { ends++; return nil },
	}
	for range 2 {
		if err := a.Sweep(t.Context()); !errors.Is(err, damaged) {
			t.Errorf("got error %v, want the journal's", err)
		}
	}
	if ends != 1 {
		t.Errorf("%d sandboxes ended, want the one that can be read", ends)
	}
}
