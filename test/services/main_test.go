// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package services

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/svcwatcher"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/services/scene"
)

// waitTimeout is how long anything may take on a machine with everything on two cores.
const waitTimeout = time.Minute

// program is the controller, built once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "services")
	if err != nil {
		return "", err
	}
	return scene.Build(context.Background(), dir)
})

// leader is the replica that the tests share.
var leader = sync.OnceValues(func() (*scene.Controller, error) {
	path, err := program()
	if err != nil {
		return nil, err
	}
	return scene.Run(context.Background(), sharedEnv, path)
})

var sharedEnv *apitest.Env // what leader works for; Go hands TestMain nothing

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard()) // that v1 Endpoints are deprecated is known
	apitest.Main(m)                   // the leader's kubeconfig is useless without its API server
	if sharedEnv != nil {
		if c, err := leader(); err == nil {
			_ = c.Kill(context.Background())
		}
	}
	if path, err := program(); err == nil {
		_ = os.RemoveAll(strings.TrimSuffix(path, "/patchbay-controller"))
	}
}

// fixture is a namespace with a network of its own.
type fixture struct {
	*testing.T

	env *apitest.Env
	c   client.WithWatch
	ns  string
	net *v1.ClusterNetwork
}

var startingMu sync.Mutex

// startFixture returns a stage that the shared controller looks after.
func startFixture(t *testing.T) *fixture {
	t.Helper()
	startingMu.Lock()
	defer startingMu.Unlock()
	sharedEnv = apitest.Start(t)
	if _, err := leader(); err != nil {
		t.Fatal(err)
	}
	return newFixture(t, sharedEnv)
}

func newFixture(t *testing.T, env *apitest.Env) *fixture {
	t.Helper()
	s := &fixture{T: t, env: env, c: env.Client, ns: env.Namespace(t), net: scene.Network(apitest.Name("net"))}
	s.create(s.net)
	return s
}

func (s *fixture) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *fixture) create(obj client.Object) {
	s.Helper()
	s.must(s.c.Create(s.Context(), obj))
}

// addPod makes a Pod behind app with one address of each family.
func (s *fixture) addPod(name, app, address, address6 string, ready bool) *corev1.Pod {
	s.Helper()
	pod := scene.Pod(s.ns, name, app)
	s.must(scene.Add(s.Context(), s.c, pod, s.net, address, address6, ready))
	return pod
}

// service makes a Service for app.
func (s *fixture) service(app string, edit ...func(*corev1.Service)) *corev1.Service {
	s.Helper()
	svc := scene.Service(s.ns, app, app, s.net.Name)
	for _, e := range edit {
		e(svc)
	}
	s.create(svc)
	return svc
}

// edit changes an object as a user does.
func edit[T client.Object](s *fixture, obj T, change func(T)) {
	s.Helper()
	s.eventually("the change is accepted", func(ctx context.Context) string {
		if err := s.c.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err.Error()
		}
		change(obj)
		if err := s.c.Update(ctx, obj); err != nil {
			return err.Error()
		}
		return ""
	})
}

// eventually polls until check returns "".
func (s *fixture) eventually(what string, check func(context.Context) string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), waitTimeout)
	defer cancel()
	for {
		said := check(ctx)
		if said == "" {
			return
		}
		select {
		case <-ctx.Done():
			s.Fatalf("waited %s until %s: %s", waitTimeout, what, said)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// slices returns the slices of a Service, of whoever.
func (s *fixture) slices(ctx context.Context, service string) ([]discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	err := s.c.List(ctx, &list, client.InNamespace(s.ns), client.MatchingLabels{discoveryv1.LabelServiceName: service})
	return list.Items, err
}

// awaitEndpoints waits until a Service's slices have exactly these endpoints.
func (s *fixture) awaitEndpoints(why, service string, lines ...string) {
	s.Helper()
	slices.Sort(lines)
	s.eventually(why, func(ctx context.Context) string {
		there, err := s.slices(ctx, service)
		if err != nil {
			return err.Error()
		}
		if diff := cmp.Diff(lines, scene.EndpointLines(there, service)); diff != "" {
			return "endpoints (-want +got):\n" + diff
		}
		return ""
	})
}

// awaitNoEndpoints waits until nothing of ours is left of a Service.
func (s *fixture) awaitNoEndpoints(why, service string) {
	s.Helper()
	s.eventually(why, func(ctx context.Context) string {
		there, err := s.slices(ctx, service)
		if err != nil {
			return err.Error()
		}
		for i := range there {
			if there[i].Labels[discoveryv1.LabelManagedBy] == svcwatcher.ManagedBy {
				return "there is " + there[i].Name
			}
		}
		return ""
	})
}

// awaitEvent waits for an Event on a Service.
func (s *fixture) awaitEvent(svc *corev1.Service, reason string, parts ...string) {
	s.Helper()
	s.eventually("Event "+reason+" on Service "+svc.Name, func(ctx context.Context) string {
		var list corev1.EventList
		if err := s.c.List(ctx, &list, client.InNamespace(s.ns)); err != nil {
			return err.Error()
		}
		var said []string
		for _, e := range list.Items {
			if e.InvolvedObject.UID != svc.UID {
				continue
			}
			said = append(said, e.Reason+": "+e.Message)
			if e.Reason == reason && containsAll(e.Message, parts) {
				return ""
			}
		}
		return fmt.Sprintf("want one that says %q, there are %q", parts, said)
	})
}

func containsAll(text string, parts []string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}
