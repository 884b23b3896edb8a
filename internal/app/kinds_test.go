// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
)

// kindServer is an API server that answers with fixed texts by path; "" is an error 500, "403" that code, and
// a path without a text a plain 404.
func kindServer(t *testing.T, answers map[string]string) *KindChecker {
	t.Helper()
	return checkerOf(t, func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		switch {
		case !ok:
			http.NotFound(w, r)
		case answer == "":
			http.Error(w, "etcd is away", http.StatusInternalServerError)
		case answer == "403":
			http.Error(w, "no right", http.StatusForbidden)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(answer))
		}
	})
}

// checkerOf returns a KindChecker of an API server.
func checkerOf(t *testing.T, server http.HandlerFunc) *KindChecker {
	t.Helper()
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	k, err := NewKindChecker(&rest.Config{Host: s.URL}, schema.GroupVersion{Group: "danm.io", Version: "v1"}, "deployments/crds", "ClusterNetwork", "DanmEp")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// request makes a request due, sends it, and waits for its end.
func request(t *testing.T, k *KindChecker) {
	t.Helper()
	makeDue(k)
	<-k.refresh(t.Context())
}

// makeDue makes the next request due.
func makeDue(k *KindChecker) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dueAt = time.Time{}
}

const (
	kindsPath = "/apis/danm.io/v1"
	allKinds  = `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "danm.io/v1", "resources": [
		{"name": "clusternetworks", "kind": "ClusterNetwork", "verbs": ["create", "get"]},
		{"name": "clusternetworks/status", "kind": "ClusterNetwork", "verbs": ["get"]},
		{"name": "danmeps", "kind": "DanmEp", "verbs": ["create", "get"]}]}`
	noDanmEp = `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "danm.io/v1", "resources": [
		{"name": "danmeps/status", "kind": "DanmEp", "verbs": ["create"]},
		{"name": "clusternetworks", "kind": "ClusterNetwork", "verbs": ["create", "get"]}]}`
	onlyDanmEp = `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "danm.io/v1", "resources": [
		{"name": "danmeps", "kind": "DanmEp", "verbs": ["create"]}]}`
	terminating = `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "danm.io/v1", "resources": [
		{"name": "clusternetworks", "kind": "ClusterNetwork", "verbs": ["delete", "get"]},
		{"name": "danmeps", "kind": "DanmEp", "verbs": ["create", "get"]}]}`
	ownGroup   = `{"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": "danm.io", "versions": [{"groupVersion": "danm.io/v1", "version": "v1"}]}]}`
	otherGroup = `{"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}]}]}`
)

// The check names the kinds that are missing or in deletion. An answer that says nothing is not one.
func TestCheckKinds(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		answers map[string]string
		want    []string
		unknown bool
	}{
		"All":         {reason: "The program may be ready.", answers: map[string]string{kindsPath: allKinds}},
		"None":        {reason: "The API server lacks the group.", want: []string{"ClusterNetwork, DanmEp of danm.io/v1", "apply", "deployments/crds"}},
		"One":         {reason: "A subresource is no kind.", answers: map[string]string{kindsPath: noDanmEp}, want: []string{"kinds DanmEp of"}},
		"Terminating": {reason: "The API server takes no new objects.", answers: map[string]string{kindsPath: terminating}, want: []string{"ClusterNetwork", "deletion", "finalizers"}},
		"Away":        {reason: "The kinds may be there.", answers: map[string]string{kindsPath: ""}, want: []string{"etcd is away", "API server is reachable"}, unknown: true},
		"Forbidden":   {reason: "An administrator has removed the right.", answers: map[string]string{kindsPath: "403"}, want: []string{"no right", "ClusterRole system:discovery"}, unknown: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := kindServer(t, tc.answers)
			err := k.Check(t.Context())
			if (err == nil) != (tc.want == nil) || errors.Is(err, ErrKindsUnknown) != tc.unknown {
				t.Fatalf("%s: got error %v, want one with %q, unknown %t", tc.reason, err, tc.want, tc.unknown)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: got error %q, want one with %q", tc.reason, err, part)
				}
			}
			if known := k.CheckKnown(t.Context()); tc.unknown && known != nil {
				t.Errorf("%s: CheckKnown returned %v, want nothing", tc.reason, known)
			}
		})
	}
}

// While the API server does not answer, its last answer counts.
func TestCheckKindsKeepsTheLastAnswer(t *testing.T) {
	t.Parallel()
	answers := map[string]string{kindsPath: allKinds}
	k := kindServer(t, answers)
	step := func(reason, answer string, ok bool) {
		t.Helper()
		answers[kindsPath] = answer
		request(t, k)
		if err := k.Check(t.Context()); (err == nil) != ok {
			t.Errorf("%s: got %v, want success %t", reason, err, ok)
		}
	}
	step("all kinds", allKinds, true)
	step("no answer after all kinds", "", true)
	step("a kind was deleted", noDanmEp, false)
	step("no answer after a deletion", "", false)
	step("the kind is back", allKinds, true)
}

// A slow answer leaves time for the checks after it.
func TestCheckKindsLeavesTime(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		// answered is whether there was an answer with all kinds before.
		answered bool
		check    func(*KindChecker, context.Context) error
		// timeout is the time for all checks.
		timeout time.Duration
	}{
		"Served":  {reason: "The last answer counts while the next one is on its way.", answered: true, check: (*KindChecker).Check, timeout: 20 * time.Second},
		"Unknown": {reason: "The first answer may take all the time.", check: (*KindChecker).CheckKnown, timeout: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slow := make(chan struct{})
			var requests atomic.Int64
			k := checkerOf(t, func(w http.ResponseWriter, _ *http.Request) {
				if requests.Add(1) > 1 || !tc.answered {
					<-slow
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(allKinds))
			})
			t.Cleanup(func() { close(slow) })
			if tc.answered {
				request(t, k)
				makeDue(k)
			}
			ctx, cancel := context.WithTimeout(t.Context(), tc.timeout)
			defer cancel()
			check := func(ctx context.Context) error { return tc.check(k, ctx) }
			if err := AllReady(check, func(ctx context.Context) error { return ctx.Err() })(ctx); err != nil {
				t.Errorf("%s: got %v, want nil", tc.reason, err)
			}
			if k.refresh(ctx) == nil {
				t.Errorf("%s: got no request in progress", tc.reason)
			}
		})
	}
}

// Each change is logged once, of answers and of errors.
func TestKindCheckerLogsChanges(t *testing.T) {
	t.Parallel()
	answers := map[string]string{}
	k := kindServer(t, answers)
	var logged []string
	k.Log = funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
	for _, tc := range []struct {
		reason, answer string
		// want is in the new message; "" for none.
		want string
	}{
		{reason: "the first error", answer: "", want: "etcd is away"},
		{reason: "the same error", answer: ""},
		{reason: "another error", answer: "403", want: "system:discovery"},
		{reason: "the first answer has all kinds", answer: allKinds},
		{reason: "an error after an answer", answer: "403", want: "system:discovery"},
		{reason: "a kind is missing", answer: noDanmEp, want: "DanmEp"},
		{reason: "the same kind is missing", answer: noDanmEp},
		{reason: "the kind is back", answer: allKinds, want: "Found all kinds"},
	} {
		logged, answers[kindsPath] = nil, tc.answer
		request(t, k)
		if got := strings.Join(logged, "\n"); (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got messages %q, want one with %q", tc.reason, got, tc.want)
		}
	}
}

// The checkers of many nodes do not ask at the same time, and more often while a kind is missing. When a
// kind is back, a program continues within about 10 seconds.
func TestKindCheckerIntervals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, answer string
		min, max       time.Duration
	}{
		"Served":  {reason: "Kinds are rarely deleted.", answer: allKinds, min: 40 * time.Second, max: 80 * time.Second},
		"Missing": {reason: "The program waits for the kind.", answer: noDanmEp, min: 5 * time.Second, max: 10 * time.Second},
		"Unknown": {reason: "The program waits for an answer.", answer: "", min: 5 * time.Second, max: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := kindServer(t, map[string]string{kindsPath: tc.answer})
			seen := map[time.Duration]bool{}
			for range 10 {
				request(t, k)
				pause := k.dueAt.Sub(k.readAt)
				if seen[pause] = true; pause < tc.min || pause > tc.max {
					t.Errorf("%s: got the next request after %s, want %s to %s", tc.reason, pause, tc.min, tc.max)
				}
			}
			if len(seen) == 1 {
				t.Errorf("%s: got the same pause each time, want random ones", tc.reason)
			}
		})
	}
}

// A watch that fails because its kind is gone makes the next request due.
func TestHandleWatchError(t *testing.T) {
	t.Parallel()
	gone := apierrors.NewNotFound(schema.GroupResource{Group: "danm.io", Resource: "danmeps"}, "")
	for name, tc := range map[string]struct {
		reason string
		err    error
		// age is how old the last answer is.
		age  time.Duration
		want bool
	}{
		"Gone":        {reason: "The kind may be gone.", err: fmt.Errorf("list: %w", gone), age: missingInterval, want: true},
		"JustChecked": {reason: "Each watch of each node may fail.", err: gone},
		"Unreachable": {reason: "No request would get an answer.", err: errors.New("connection refused"), age: missingInterval},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := map[string]string{kindsPath: allKinds}
			k := kindServer(t, answers)
			request(t, k)
			k.readAt = k.readAt.Add(-tc.age)
			answers[kindsPath] = noDanmEp
			k.HandleWatchError(t.Context(), &toolscache.Reflector{}, tc.err)
			reading := k.refresh(t.Context())
			if reading != nil {
				<-reading
			}
			if err := k.Check(t.Context()); (reading != nil || err != nil) != tc.want {
				t.Errorf("%s: got %v, want a request %t", tc.reason, err, tc.want)
			}
		})
	}
}

// A kind is missing only if the API server says so.
func TestConfirmMissing(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		answers   map[string]string
		want, err bool
	}{
		"NoGroup":  {reason: "No kind of the group is installed.", answers: map[string]string{"/apis": otherGroup}, want: true},
		"NoKind":   {reason: "Only another kind of the group is installed.", answers: map[string]string{"/apis": ownGroup, kindsPath: onlyDanmEp}, want: true},
		"Served":   {reason: "The kind is served.", answers: map[string]string{"/apis": ownGroup, kindsPath: allKinds}},
		"Away":     {reason: "The API server does not answer.", answers: map[string]string{"/apis": ""}, err: true},
		"Proxy":    {reason: "Another server answers with 404.", err: true},
		"Empty":    {reason: "An API server has groups.", answers: map[string]string{"/apis": `{"kind": "APIGroupList", "apiVersion": "v1", "groups": []}`}, err: true},
		"Unlisted": {reason: "The group is listed, and its kinds are not.", answers: map[string]string{"/apis": ownGroup}, err: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := kindServer(t, tc.answers).ConfirmMissing(t.Context(), "ClusterNetwork")
			if got != tc.want || (err != nil) != tc.err {
				t.Errorf("%s: got %t and error %v, want %t and error %t", tc.reason, got, err, tc.want, tc.err)
			}
		})
	}
}

// A Pod that needs several kinds costs two requests.
func TestConfirmMissingSharesAnswers(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	k := checkerOf(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(map[string]string{"/apis": ownGroup, kindsPath: onlyDanmEp}[r.URL.Path]))
	})
	for kind, want := range map[string]bool{"ClusterNetwork": true, "TenantNetwork": true, "DanmEp": false} {
		if got, err := k.ConfirmMissing(t.Context(), kind); got != want || err != nil {
			t.Errorf("kind %s: got %t and error %v, want %t", kind, got, err, want)
		}
	}
	if got := requests.Load(); got != 2 {
		t.Errorf("got %d requests for three kinds, want 2", got)
	}
	k.confirmedAt = k.confirmedAt.Add(-confirmedAge)
	if _, err := k.ConfirmMissing(t.Context(), "DanmEp"); err != nil || requests.Load() != 4 {
		t.Errorf("after a while: got %d requests and error %v, want 4", requests.Load(), err)
	}
}

// The first check that fails is the answer.
func TestAllReady(t *testing.T) {
	t.Parallel()
	ok := func(context.Context) error { return nil }
	first, second := errors.New("first"), errors.New("second")
	fail := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	if err := AllReady(ok, fail(first), fail(second))(t.Context()); !errors.Is(err, first) {
		t.Errorf("got %v, want %v", err, first)
	}
	if err := AllReady(ok, ok)(t.Context()); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}
