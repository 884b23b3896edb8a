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

// idleLimit is how long the balancer bears silence: more than the agent's 10 s between pings,
// and the 30 s of client-go with which it asks for its certificate, by as much as a busy
// machine needs.
var idleLimit = flag.Duration("idle", 45*time.Second, "idle limit of the balancer of layer 4; the contract says 60s")

// agentSite is where an agent runs that can reach two addresses and nothing else, and that
// nothing can reach: its network has no link.
type agentSite struct {
	route bed.HubRoute
	local *bed.Balancer
}

// newAgentSite makes the place for a cluster's agent. Only root can take the network away;
// without, the agent uses what it is given all the same.
func newAgentSite(t *testing.T, w *world, cluster string) (*agentSite, net.Listener) {
	t.Helper()
	s, listen := &agentSite{route: bed.HubRoute{Debug: true}}, func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }
	if os.Geteuid() == 0 {
		island, err := bed.NewIsolatedNetns()
		if err != nil {
			t.Fatal(err)
		}
		closeAtEnd(t, island)
		s.route.Netns, listen = island, island.Listen
	}
	api, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	kubelet, err := w.Clusters[cluster].StartKubelet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, kubelet)
	s.local = bed.NewBalancer(api, strings.TrimPrefix(w.Clusters[cluster].ControlPlane.URL(), "https://"), 0)
	closeAtEnd(t, s.local)
	s.route.Local = "https://" + s.local.Address()
	front, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	return s, front
}

func closeAtEnd(t *testing.T, c interface{ Close() error }) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// testProxiesAndBalancers has one cluster's agent behind a balancer that forgets, one behind a proxy that
// wants a password, one behind a balancer that ends TLS, and does all with each at once.
func testProxiesAndBalancers(t *testing.T) {
	w := shared
	w.serveDebugAPI(t)
	parts := map[string]func(*testing.T, string){
		"L4Balancer": w.behindL4(t), "Proxy": w.behindProxy(t), "TLSBalancer": w.behindTLS(t),
	}
	for name, part := range parts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := w.namespace(t)
			checkInvariants(t, w, ns)
			part(t, ns)
		})
	}
}

// behindL4 has east's agent behind a balancer of layer 4. What it returns is done in a
// namespace: no connection in use is forgotten; one that is forgotten all the same is
// made anew before the hub takes the cluster for unreachable.
func (w *world) behindL4(t *testing.T) func(*testing.T, string) {
	t.Helper()
	east, front := newAgentSite(t, w, "east")
	balancer := bed.NewBalancer(front, strings.TrimPrefix(w.Hub.Config.Host, "https://"), *idleLimit)
	closeAtEnd(t, balancer)
	east.route.Hub = "https://" + balancer.Address()
	w.joinAgent(t, "east", east.route)
	return func(t *testing.T, ns string) {
		t.Helper()
		w.userWorkflow(t, ns, "east", "south")
		w.checkSilentExec(t, "east", ns, func() { w.exceedIdleLimit(t, balancer) })
		w.scale(t, ns, 5)
		w.awaitReplicas(t, ns, map[string]int32{"east": 5})
		w.awaitHubAvailable(t, ns, "web", 5)
		lost := w.openExec(t, w.Hub.Config.Host, "east", ns)
		balancer.DropFlows()
		w.scale(t, ns, 3)
		eventually(t, "the agent finds out that its connection is dead", func() error {
			w.checkReachable(t, "east")
			found, err := w.replicas(t.Context(), ns, "web")
			if err == nil {
				err = errorUnless(found["east"] == 3, "is in %v", found)
			}
			return err
		})
		w.awaitHubAvailable(t, ns, "web", 3)
		lost.awaitEnd(t)
		w.openExec(t, w.Hub.Config.Host, "east", ns)
		w.checkNoInboundConnections(t, "east", east, balancer.Address())
	}
}

// behindProxy has west's agent behind a proxy, which knows the second of two names for
// the hub that no name server does, and wants a password.
func (w *world) behindProxy(t *testing.T) func(*testing.T, string) {
	t.Helper()
	const unknown, known = "kubernetes.default:6443", "kubernetes.default.svc:6443"
	west, front := newAgentSite(t, w, "west")
	proxy := bed.NewProxy(front, "agent", "it's a secret", map[string]string{known: strings.TrimPrefix(w.Hub.Config.Host, "https://")})
	closeAtEnd(t, proxy)
	west.route.Hub, west.route.FallbackHubs = "https://"+unknown, []string{"https://" + known}
	west.route.Proxy = proxy.URL("a guess")
	w.joinAgent(t, "west", west.route)
	eventually(t, "the proxy refuses a wrong password", func() error {
		return errorUnless(proxy.Refused() > 0 && proxy.Tunnels() == 0, "%d refused", proxy.Refused())
	})
	west.route.Proxy = proxy.URL("it's a secret")
	w.rejoin(t, "west", west.route)
	return func(t *testing.T, ns string) {
		t.Helper()
		w.userWorkflow(t, ns, "west", "east")
		if proxy.Tunnels() == 0 {
			t.Error("nothing went through the proxy")
		}
		w.checkSilentExec(t, "west", ns, func() {})
		w.checkNoInboundConnections(t, "west", west, proxy.Address())
	}
}

// behindTLS has south's agent behind a balancer that ends TLS: it is a ServiceAccount.
func (w *world) behindTLS(t *testing.T) func(*testing.T, string) {
	t.Helper()
	south, front := newAgentSite(t, w, "south")
	balancer, err := bed.NewTLSTerminator(front, w.Hub.Config)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, balancer)
	south.route.Hub, south.route.CA, south.route.TokenAuth = balancer.URL(), balancer.CA, true
	w.joinAgent(t, "south", south.route)
	log, err := w.Hub.AuditLog() // the agent before it has ended
	if err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T, ns string) {
		t.Helper()
		w.userWorkflow(t, ns, "south", "west")
		w.checkSilentExec(t, "south", ns, func() {})
		w.checkNoInboundConnections(t, "south", south, strings.TrimPrefix(balancer.URL(), "https://"))
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

// exceedIdleLimit lets more than the balancer's limit pass: it must forget no connection in use.
func (w *world) exceedIdleLimit(t *testing.T, balancer *bed.Balancer) {
	t.Helper()
	connections, silent := balancer.Connections(), balancer.IdleDrops()
	for end := time.Now().Add(*idleLimit * 3 / 2); time.Now().Before(end); <-time.After(time.Second) {
		w.checkReachable(t, "east")
	}
	// A busy machine may be late with the answer to a ping: that alone proves nothing.
	connections, silent = balancer.Connections()-connections, balancer.IdleDrops()-silent
	if connections > 0 && silent > 0 {
		t.Errorf("the agent connected %d times anew: %d of its connections were idle", connections, silent)
	}
}

// checkNoInboundConnections: the agent's connections are its own to the two addresses that it has;
// its one open port is for health checks, and of its own host only.
func (w *world) checkNoInboundConnections(t *testing.T, cluster string, s *agentSite, front string) {
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
