// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"flag"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// idle is how long the balancer bears silence: more than the agent's 10 s between pings,
// and the 30 s of client-go with which it asks for its certificate, by as much as a busy
// machine needs.
var idle = flag.Duration("idle", 45*time.Second, "idle limit of the balancer of layer 4; the contract says 60s")

// shore is where an agent runs that can reach two addresses and nothing else, and that
// nothing can reach: its network has no link.
type shore struct {
	way   bed.Way
	local *bed.Balancer
}

// landing makes the place for a cluster's agent. Only root can take the network away;
// without, the agent uses what it is given all the same.
func landing(t *testing.T, w *world, cluster string) (*shore, net.Listener) {
	t.Helper()
	s, listen := &shore{}, func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }
	if os.Geteuid() == 0 {
		island, err := bed.NewIsland()
		if err != nil {
			t.Fatal(err)
		}
		closing(t, island)
		s.way.Island, listen = island, island.Listen
	}
	api, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	s.local = bed.NewBalancer(api, strings.TrimPrefix(w.Clusters[cluster].Control.URL(), "https://"), 0)
	closing(t, s.local)
	s.way.Local = "https://" + s.local.Address()
	front, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	return s, front
}

func closing(t *testing.T, c interface{ Close() error }) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// through has one cluster's agent behind a balancer that forgets, one behind a proxy that
// wants a password, one behind a balancer that ends TLS, and does all with each at once.
func through(t *testing.T) {
	w := shared
	parts := map[string]func(*testing.T, string){
		"L4Balancer": w.behindL4(t), "Proxy": w.behindProxy(t), "TLSBalancer": w.behindTLS(t),
	}
	for name, part := range parts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := w.namespace(t)
			watch(t, w, ns)
			part(t, ns)
		})
	}
}

// behindL4 has east's agent behind a balancer of layer 4. What it returns is done in a
// namespace: no connection in use is forgotten; one that is forgotten all the same is
// made anew before the hub takes the cluster for unreachable.
func (w *world) behindL4(t *testing.T) func(*testing.T, string) {
	t.Helper()
	east, front := landing(t, w, "east")
	balancer := bed.NewBalancer(front, strings.TrimPrefix(w.Hub.Config.Host, "https://"), *idle)
	closing(t, balancer)
	east.way.Hub = "https://" + balancer.Address()
	w.agentBy(t, "east", east.way)
	return func(t *testing.T, ns string) {
		t.Helper()
		w.suite(t, ns, "east", "south")
		w.quiet(t, balancer)
		w.scale(t, ns, 5)
		w.awaitReplicas(t, ns, map[string]int32{"east": 5})
		w.available(t, ns, "web", 5)
		balancer.Forget()
		w.scale(t, ns, 3)
		eventually(t, "the agent finds out that its connection is dead", func() error {
			w.reachable(t, "east")
			found, err := w.replicas(t.Context(), ns, "web")
			if err == nil {
				err = unless(found["east"] == 3, "is in %v", found)
			}
			return err
		})
		w.available(t, ns, "web", 3)
		w.nothingDials(t, "east", east, balancer.Address())
	}
}

// behindProxy has west's agent behind a proxy, which knows the second of two names for
// the hub that no name server does, and wants a password.
func (w *world) behindProxy(t *testing.T) func(*testing.T, string) {
	t.Helper()
	const unknown, known = "kubernetes.default:6443", "kubernetes.default.svc:6443"
	west, front := landing(t, w, "west")
	proxy := bed.NewProxy(front, "agent", "it's a secret", map[string]string{known: strings.TrimPrefix(w.Hub.Config.Host, "https://")})
	closing(t, proxy)
	west.way.Hub, west.way.Further = "https://"+unknown, []string{"https://" + known}
	west.way.Proxy = proxy.URL("a guess")
	w.agentBy(t, "west", west.way)
	eventually(t, "the proxy refuses a wrong password", func() error {
		return unless(proxy.Refused() > 0 && proxy.Tunnels() == 0, "%d refused", proxy.Refused())
	})
	west.way.Proxy = proxy.URL("it's a secret")
	w.rejoin(t, "west", west.way)
	return func(t *testing.T, ns string) {
		t.Helper()
		w.suite(t, ns, "west", "east")
		if proxy.Tunnels() == 0 {
			t.Error("nothing went through the proxy")
		}
		w.nothingDials(t, "west", west, proxy.Address())
	}
}

// behindTLS has south's agent behind a balancer that ends TLS: it is a ServiceAccount.
func (w *world) behindTLS(t *testing.T) func(*testing.T, string) {
	t.Helper()
	south, front := landing(t, w, "south")
	balancer, err := bed.NewTerminator(front, w.Hub.Config)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, balancer)
	south.way.Hub, south.way.CA, south.way.TokenAuth = balancer.URL(), balancer.CA, true
	w.agentBy(t, "south", south.way)
	log, err := w.Hub.AuditLog() // the agent before it has ended
	if err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T, ns string) {
		t.Helper()
		w.suite(t, ns, "south", "west")
		w.nothingDials(t, "south", south, strings.TrimPrefix(balancer.URL(), "https://"))
		users := map[string]bool{}
		writes, err := log.Writes(`"namespace":"cluster-south"`)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range writes {
			users[one.User] = true
		}
		if !users["system:serviceaccount:cluster-south:agent"] || users[v1alpha1.ClusterUserPrefix+"south"] {
			t.Errorf("who wrote as south's agent: got %v, want the ServiceAccount only", users)
		}
	}
}

// quiet lets more than the balancer's limit pass: it must forget no connection in use.
func (w *world) quiet(t *testing.T, balancer *bed.Balancer) {
	t.Helper()
	connections, silent := balancer.Connections(), balancer.Silent()
	for end := time.Now().Add(*idle * 3 / 2); time.Now().Before(end); <-time.After(time.Second) {
		w.reachable(t, "east")
	}
	// A busy machine may be late with the answer to a ping: that alone proves nothing.
	connections, silent = balancer.Connections()-connections, balancer.Silent()-silent
	if connections > 0 && silent > 0 {
		t.Errorf("the agent connected %d times anew: %d of its connections were idle", connections, silent)
	}
}

// nothingDials: the agent's connections are its own to the two addresses that it has;
// its one open port is for health checks, and of its own host only.
func (w *world) nothingDials(t *testing.T, cluster string, s *shore, front string) {
	t.Helper()
	sockets, err := bed.Sockets(w.agents[cluster])
	if err != nil {
		t.Fatal(err)
	}
	open := 0
	for _, one := range sockets {
		switch {
		case one.Listening && one.Local.Addr().IsLoopback():
			open++
		case one.Listening, !slices.Contains([]string{s.local.Address(), front}, one.Remote.String()):
			t.Errorf("agent of %s: got a socket %v to %v (listening: %t), want connections to %s and %s only",
				cluster, one.Local, one.Remote, one.Listening, s.local.Address(), front)
		}
	}
	if open != 1 || len(sockets) < 3 {
		t.Errorf("agent of %s: got %d open ports of %d sockets, want 1 for health checks, and connections", cluster, open, len(sockets))
	}
}
