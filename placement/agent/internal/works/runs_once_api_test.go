// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package works_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

const onceJob = "{apiVersion: batch/v1, kind: Job, metadata: {name: once, namespace: default}, spec: {template: {spec: " +
	"{automountServiceAccountToken: false, restartPolicy: Never, containers: [{name: c, image: i}]}}}}"

var errCut = errors.New("the connection is cut")

// cutAfterCreation returns a client configuration with which no record is written after a Job was created, as if the
// agent had stopped in between.
func cutAfterCreation(config *rest.Config) (cut *rest.Config, created *atomic.Bool) {
	cut, created = rest.CopyConfig(config), &atomic.Bool{}
	cut.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if created.Load() && r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/appliedworks/") {
				return nil, errCut
			}
			answer, err := next.RoundTrip(r)
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/jobs/once") && err == nil && answer.StatusCode < http.StatusBadRequest {
				created.Store(true)
			}
			return answer, err
		})
	})
	return cut, created
}

// job returns the Job in the cluster; nil when there is none.
func (b *testAgent) job(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	return b.object(t, "batch/v1", "Job", "default", "once")
}

// deleteJob deletes the Job in the cluster as another client would.
func (b *testAgent) deleteJob(t *testing.T) {
	t.Helper()
	if err := b.Delete(t.Context(), b.job(t), client.GracePeriodSeconds(0), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
}

// An agent that stops after it has created a Job, and before it has recorded that, does not create the Job again when
// it is gone. It takes over one that exists.
func TestCrashBeforeRecordRunsOnce(t *testing.T) {
	t.Parallel()
	for name, deleted := range map[string]bool{"deleted": true, "exists": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := prepare(t)
			local, created := cutAfterCreation(b.local())
			b.runBetween(t, b.env.Config, local)
			w := b.work(t, "jobs", nil, manifest(t, "jobs", onceJob))
			eventually(t, "the Job is created", func() error {
				if !created.Load() {
					return errors.New("it is not")
				}
				return nil
			})
			b.stop()
			ran := b.job(t)
			if deleted {
				b.deleteJob(t)
			}
			b.run(t)
			if !deleted {
				s := b.awaitWork(t, w, "the Job is taken over", applied(1))
				if uid := s.Manifests[0].UID; uid != ran.GetUID() {
					t.Errorf("UID: got %s, want %s: the Job must not be created again", uid, ran.GetUID())
				}
				record := b.object(t, v1alpha1.SchemeGroupVersion().String(), "AppliedWork", "", "jobs")
				if got := field(record, "status", "objects"); strings.Contains(got, "creating") {
					t.Errorf("record: got %s, want none that is being created", got)
				}
				return
			}
			b.awaitWork(t, w, "the Job may have run", failed(v1alpha1.ReasonDeletedInCluster, "it may have run"))
			if b.job(t) != nil {
				t.Error("the Job was created again")
			}
		})
	}
}

// A Job whose creation fails is created when that succeeds: neither an error of a webhook nor an API server that is away
// counts as a run.
func TestFailedCreationIsRepeated(t *testing.T) {
	t.Parallel()
	for name, isAway := range map[string]bool{"rejected": false, "away": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := prepare(t)
			local, creations, reads := rest.CopyConfig(b.local()), atomic.Int32{}, atomic.Int32{}
			local.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					isJob := strings.HasSuffix(r.URL.Path, "/jobs/once")
					switch {
					case isJob && r.Method == http.MethodPatch && creations.Add(1) <= 2:
						return nil, errCut
					case isJob && r.Method == http.MethodGet && isAway && creations.Load() > reads.Load() && reads.Load() < 2:
						reads.Add(1) // the read after each of these
						return nil, errCut
					}
					return next.RoundTrip(r)
				})
			})
			b.runBetween(t, b.env.Config, local)
			w := b.work(t, "jobs", nil, manifest(t, "jobs", onceJob))
			b.awaitWork(t, w, "the Job is created", applied(1))
			if creations.Load() < 3 || isAway && reads.Load() < 2 {
				t.Errorf("got %d creations and %d failed reads, want 2 creations that fail", creations.Load(), reads.Load())
			}
		})
	}
}

// A Job whose creation has no answer, and that the agent has read after it, is not created again when another client
// deletes it before the next attempt.
func TestCreationWithoutAnswerRunsOnce(t *testing.T) {
	t.Parallel()
	b := prepare(t)
	local, creations, deletions := rest.CopyConfig(b.local()), atomic.Int32{}, atomic.Int32{}
	local.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			isJob := strings.HasSuffix(r.URL.Path, "/jobs/once")
			answer, err := next.RoundTrip(r)
			switch {
			case isJob && r.Method == http.MethodPatch && err == nil && creations.Add(1) == 1:
				return nil, errors.Join(errCut, answer.Body.Close())
			case isJob && r.Method == http.MethodGet && creations.Load() == 1 && deletions.Add(1) == 1:
				b.deleteJob(t) // the agent reads that it was there
			}
			return answer, err
		})
	})
	b.runBetween(t, b.env.Config, local)
	w := b.work(t, "jobs", nil, manifest(t, "jobs", onceJob))
	b.awaitWork(t, w, "the Job may have run", failed(v1alpha1.ReasonDeletedInCluster, "does not run a second time"))
	if creations.Load() != 1 || deletions.Load() < 1 {
		t.Errorf("got %d creations and %d deletions, want 1 of each", creations.Load(), deletions.Load())
	}
}

// The message on a Job whose removal was ordered, and taken back too late, does not blame another client alone.
func TestLateWithdrawalIsExplained(t *testing.T) {
	t.Parallel()
	b := start(t)
	w := b.work(t, "jobs", nil, manifest(t, "jobs", onceJob))
	b.awaitWork(t, w, "applied", applied(1))
	b.patch(t, b.job(t), `{"metadata":{"finalizers":["example.com/held"]}}`)
	b.order(t, w)
	eventually(t, "the deletion has begun", func() error {
		if b.job(t).GetDeletionTimestamp() == nil {
			return errors.New("it has not")
		}
		return nil
	})
	b.change(t, w, func(s *v1alpha1.WorkSpec) { s.Removal = nil })
	b.awaitWork(t, w, "the withdrawal is read", failed(v1alpha1.ReasonProgressing, "it is being deleted"))
	b.patch(t, b.job(t), `{"metadata":{"finalizers":null}}`)
	b.awaitWork(t, w, "the Job is gone", failed(v1alpha1.ReasonDeletedInCluster, "an order of the hub that was taken back after the deletion had begun"))
	if b.job(t) != nil {
		t.Error("the Job was created again")
	}
}
