// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// kindServer is an API server that answers with fixed texts by path; "" is an error 500, and a path without
// a text a plain 404.
func kindServer(t *testing.T, answers map[string]string) *KindChecker {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		switch {
		case !ok:
			http.NotFound(w, r)
		case answer == "":
			http.Error(w, "etcd is away", http.StatusInternalServerError)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(answer))
		}
	}))
	t.Cleanup(s.Close)
	k, err := NewKindChecker(&rest.Config{Host: s.URL}, schema.GroupVersion{Group: "danm.io", Version: "v1"}, "deployments/crds", "ClusterNetwork", "DanmEp")
	if err != nil {
		t.Fatal(err)
	}
	return k
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
		"Away":        {reason: "The kinds may be there.", answers: map[string]string{kindsPath: ""}, want: []string{"API server is reachable"}, unknown: true},
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
		k.mu.Lock()
		k.readAt = k.readAt.Add(-servedInterval) // the last answer is old
		k.mu.Unlock()
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
