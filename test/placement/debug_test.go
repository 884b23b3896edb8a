// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// debugFlags make a hub serve the debug API at an address, which its API server reaches at another one.
func debugFlags(address, host string) []string {
	return []string{"--debug-address=" + address, "--debug-host=" + host}
}

// serveDebugAPI restarts the hub with the debug API, until the test ends.
func (w *world) serveDebugAPI(t *testing.T) {
	t.Helper()
	if err := w.hub.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.hub.Kill(context.Background()); err != nil {
			t.Error(err)
		}
		w.restartHub(t)
		w.awaitNoDebugAPI(t)
	})
	var err error
	if w.hub, err = w.StartHub(t.Context(), debugFlags("127.0.0.1:0", "127.0.0.1")...); err != nil {
		t.Fatal(err)
	}
}

// awaitNoDebugAPI waits until a hub without the API has removed the registration: else no namespace is deleted.
func (w *world) awaitNoDebugAPI(t *testing.T) {
	t.Helper()
	eventually(t, "the debug API is not registered any more", func() error {
		api := object("apiregistration.k8s.io/v1", "APIService", "", v1alpha1.DebugVersion+"."+v1alpha1.DebugGroup)
		err := w.Hub.Client.Get(context.Background(), client.ObjectKeyFromObject(api), api)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is registered"))
	})
}

// allowDebug lets people at the hub exec into Pods of a namespace, on the side of a cluster.
func (w *world) allowDebug(t *testing.T, cluster, ns string) {
	t.Helper()
	b := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "debug"}, RoleRef: roleRef("ClusterRole", "edit"),
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: v1alpha1.DebugUsersGroup}},
	}
	if err := w.Clusters[cluster].Client.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// execStream is an exec in a Pod through the hub, whose kubelet returns each byte.
type execStream struct {
	io.ReadWriteCloser

	sent int
}

// check sends a line and reads it.
func (s *execStream) check() error {
	s.sent++
	text := fmt.Sprintf("line %d\n", s.sent)
	if _, err := io.WriteString(s, text); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(s, got); err != nil {
		return err
	}
	return errorUnless(string(got) == text, "got %q, want %q", got, text)
}

// awaitEnd waits until the stream has ended, which its client must notice without writing.
func (s *execStream) awaitEnd(t *testing.T) {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := s.Read(make([]byte, 1))
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the stream has data, want its end")
		}
	case <-time.After(waitTimeout):
		t.Error("the stream does not end")
	}
}

// openExec opens an exec in a Pod of the Deployment web, and waits until that is possible.
func (w *world) openExec(t *testing.T, server, cluster, ns string) *execStream {
	t.Helper()
	var stream *execStream
	eventually(t, "exec in "+cluster+" through "+server, func() error {
		var err error
		stream, err = w.tryExec(t, server, cluster, ns)
		return err
	})
	t.Cleanup(func() { _ = stream.Close() })
	return stream
}

func (w *world) tryExec(t *testing.T, server, cluster, ns string) (*execStream, error) {
	t.Helper()
	var pods corev1.PodList
	if err := w.Clusters[cluster].Client.List(t.Context(), &pods, client.InNamespace(ns)); err != nil {
		return nil, err
	}
	if len(pods.Items) == 0 {
		return nil, errors.New("there is no Pod")
	}
	config := rest.CopyConfig(w.Hub.Config)
	config.Host, config.NextProtos = server, []string{"http/1.1"}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	path := fmt.Sprintf("/apis/%s/%s/namespaces/%s/clusters/%s/proxy/api/v1/namespaces/%s/pods/%s/exec?command=sh&stdin=true&stdout=true",
		v1alpha1.DebugGroup, v1alpha1.DebugVersion, ns, cluster, ns, pods.Items[0].Name)
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, config.Host+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io"}}
	response, err := transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	conn, ok := response.Body.(io.ReadWriteCloser)
	if response.StatusCode != http.StatusSwitchingProtocols || !ok {
		text, _ := io.ReadAll(response.Body)
		return nil, errors.Join(fmt.Errorf("got %s: %s", response.Status, text), response.Body.Close())
	}
	s := &execStream{ReadWriteCloser: conn}
	return s, s.check()
}

// silence is longer than the API server's limit for a request (60 s) and the limit of a balancer.
const silence = 70 * time.Second

// checkSilentExec opens an exec, does something else for as long as the exec is silent, and goes on with it.
func (w *world) checkSilentExec(t *testing.T, cluster, ns string, meanwhile func()) {
	t.Helper()
	w.allowDebug(t, cluster, ns)
	s, began := w.openExec(t, w.Hub.Config.Host, cluster, ns), time.Now()
	meanwhile()
	select {
	case <-time.After(time.Until(began.Add(silence))):
	case <-t.Context().Done():
	}
	if err := s.check(); err != nil {
		t.Errorf("exec in %s after %v of silence: %v", cluster, time.Since(began).Round(time.Second), err)
	}
}

// debugReplicas: two API servers of one hub, and two replicas of patchbay-hub that serve the debug API. The agent is
// attached to both. One replica and one API server are killed, and the others go on.
func debugReplicas(t *testing.T) {
	w := shared
	kubelet, err := w.Clusters["east"].StartKubelet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, kubelet)
	second, err := w.Hub.StartAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.hub.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.restartHub(t)
		w.awaitNoDebugAPI(t)
	})
	front := newAlternator(t)
	replicas := map[string]func(context.Context) error{}
	for _, name := range []string{"patchbay-hub-1", "patchbay-hub-2"} {
		id := w.startHubReplica(t, name, debugFlags(front.newBackend(t), front.listener.Addr().String())...)
		replicas[name] = id.Kill
	}
	w.joinAgent(t, "east", bed.HubRoute{Debug: true})
	ns := w.namespace(t)
	checkInvariants(t, w, ns)
	w.apply(t, w.Hub.Client, ns, deployment("web", 2, "east", ""))
	w.awaitHubAvailable(t, ns, "web", 2)
	w.allowDebug(t, "east", ns)

	streams := map[*execStream]string{}
	for _, server := range []string{w.Hub.Config.Host, second.URL} {
		for range 2 { // the API server alternates between the replicas
			streams[w.openExec(t, server, "east", ns)] = server
		}
	}
	if err := replicas["patchbay-hub-1"](t.Context()); err != nil {
		t.Fatal(err)
	}
	alive := 0
	for s, server := range streams {
		if err := s.check(); err == nil {
			alive++
		} else {
			t.Logf("a stream through %s ended with the replica: %v", server, err)
		}
	}
	if alive == 0 || alive == len(streams) {
		t.Errorf("%d of %d streams live on after one of two replicas was killed, want some", alive, len(streams))
	}
	for _, server := range []string{w.Hub.Config.Host, second.URL} {
		w.openExec(t, server, "east", ns)
	}
	if err := second.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := w.openExec(t, w.Hub.Config.Host, "east", ns)
	w.rejoin(t, "east", bed.HubRoute{Debug: true}) // kills the agent
	s.awaitEnd(t)
	w.openExec(t, w.Hub.Config.Host, "east", ns)
}

// alternator is a balancer of layer 4 before backends, of which it takes the next one for each connection.
type alternator struct {
	listener net.Listener
	next     atomic.Int64
	all      sync.WaitGroup

	mu       sync.Mutex
	backends []string
}

func newAlternator(t *testing.T) *alternator {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &alternator{listener: l}
	a.all.Go(a.serve)
	t.Cleanup(func() {
		_ = l.Close()
		a.all.Wait()
	})
	return a
}

// newBackend returns an address for one more backend.
func (a *alternator) newBackend(t *testing.T) string {
	t.Helper()
	at, err := controlplane.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.backends = append(a.backends, at.String())
	return at.String()
}

func (a *alternator) serve() {
	for {
		in, err := a.listener.Accept()
		if err != nil {
			return // closed
		}
		a.all.Go(func() { a.forward(in) })
	}
}

// forward connects to the next backend that answers, until either side ends.
func (a *alternator) forward(in net.Conn) {
	defer in.Close()
	a.mu.Lock()
	backends := slices.Clone(a.backends)
	a.mu.Unlock()
	for range backends {
		out, err := net.Dial("tcp", backends[int(a.next.Add(1))%len(backends)])
		if err != nil {
			continue
		}
		var both sync.WaitGroup
		for to, from := range map[net.Conn]net.Conn{in: out, out: in} {
			both.Go(func() {
				_, _ = io.Copy(to, from)
				_ = errors.Join(to.Close(), from.Close())
			})
		}
		both.Wait()
		return
	}
}
