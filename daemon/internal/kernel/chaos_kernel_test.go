// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package kernel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/netwatcher"
	"github.com/patchbay-cni/patchbay/test/random"
)

const (
	// chaosTime is the duration of the test; PATCHBAY_SOAK sets another one, such as 5m (make
	// soak).
	chaosTime = 15 * time.Second
	// convergeTimeout is how long the daemon may take to converge after the last change.
	convergeTimeout = 4 * time.Minute
	// chaosNetworks is the number of networks, on four NICs.
	chaosNetworks = 200
)

// chaos is a host with random changes.
type chaos struct {
	*testing.T
	random *rand.Rand
	host   string
	k      *Host
	files  *files
	daemon *daemon
	input  input
	pods   []*chaosPod
	age    int
	did    map[string]int
}

// chaosPod is a Pod with a slave on a link.
type chaosPod struct {
	id    network.Link
	netns string
	slave *Slave
}

// Random networks are created, changed and deleted; links are deleted and changed by hand; MTUs of
// NICs change; nodes join and leave; the daemon is killed; the node reboots. No Pod loses its
// link. Afterwards the links converge to the plan, and links that Patchbay does not manage are
// unchanged.
func TestLinkChaos(t *testing.T) {
	needs(t, "vlan")
	c := newChaos(t)
	unmanaged := c.unmanagedLinks()
	if len(strings.Split(unmanaged, "\n")) < 3 {
		t.Fatalf("unmanaged links:\n%s", unmanaged)
	}
	long := chaosTime
	if text := os.Getenv("PATCHBAY_SOAK"); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	c.daemon.start()
	converged := 0
	for end := time.Now().Add(long); time.Now().Before(end); converged++ {
		for pause := time.Now().Add(min(long/2, 30*time.Second)); time.Now().Before(pause); {
			for range 5 {
				c.act()
			}
			c.podsHaveLinks()
		}
		c.checkConverged()
		if diff := cmp.Diff(unmanaged, c.unmanagedLinks()); diff != "" {
			t.Fatalf("unmanaged links (-before +after):\n%s", diff)
		}
	}
	t.Logf("%v, converged %d times: %v", long, converged, c.did)
}

func newChaos(t *testing.T) *chaos {
	t.Helper()
	seed := random.Seed(t)
	c := &chaos{T: t, random: rand.New(rand.NewPCG(seed, 0)), host: newTrunk(t, 1, true)[0], files: &files{dir: t.TempDir()}, did: map[string]int{}}
	c.k = openKernel(t, c.host)
	c.daemon = &daemon{t: t, dir: c.files.dir, host: c.host}
	t.Cleanup(c.daemon.kill)
	within(t, c.host, func(h *netlink.Handle) {
		for i, name := range []string{"ens5", "ens6", "ens7"} {
			must(t, h.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: name, TxQLen: -1}}))
			quiet(t, name)
			a, err := netlink.ParseAddr(fmt.Sprintf("198.51.%d.1/24", i))
			must(t, err)
			must(t, h.AddrAdd(find(t, h, name), a))
		}
		parent := find(t, h, "ens5").Attrs().Index
		must(t, h.LinkAdd(&netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "mine.77", ParentIndex: parent, TxQLen: -1}, VlanId: 77}))
		quiet(t, "mine.77")
		must(t, h.LinkSetUp(find(t, h, "ens5")))
		eventually(t, "mine.77 set up with its NIC, which Linux 7.2 does in a work queue", func() bool {
			return find(t, h, "mine.77").Attrs().Flags&net.FlagUp != 0
		})
		must(t, h.LinkAdd(&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "mine.vx", TxQLen: -1}, VxlanId: 77, Port: vxlanPort, VtepDevIndex: parent}))
		must(t, h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "mine.br", TxQLen: -1}}))
	})
	for range chaosNetworks {
		c.input.Networks = append(c.input.Networks, c.draw())
	}
	c.save()
	return c
}

// unmanagedLinks returns the dump of the links that Patchbay does not manage, without their MTU: the
// kernel decreases a VLAN's MTU with its NIC's.
func (c *chaos) unmanagedLinks() string {
	c.Helper()
	return regexp.MustCompile(` mtu \d+`).ReplaceAllString(links(dump(c.T, c.host), "mine."), "")
}

func (c *chaos) save() {
	c.Helper()
	if err := c.files.write(c.input); err != nil {
		c.Fatal(err)
	}
}

// act makes one random change.
func (c *chaos) act() {
	c.Helper()
	type action struct {
		name   string
		weight int
		do     func()
	}
	actions := []action{
		{"create", 20, c.create}, {"update", 20, c.update}, {"delete", 15, c.delete},
		{"delete a link", 8, c.damage(func(h *netlink.Handle, l netlink.Link) error { return h.LinkDel(l) })},
		{"link down", 4, c.damage(func(h *netlink.Handle, l netlink.Link) error { return h.LinkSetDown(l) })},
		{"link MTU", 4, c.damage(func(h *netlink.Handle, l netlink.Link) error { return h.LinkSetMTU(l, 1280) })},
		{"NIC MTU", 4, c.nicMTU}, {"attach", 10, c.attach}, {"detach", 6, c.detach}, {"nodes", 4, c.nodes},
		{"kill", 3, func() { c.daemon.kill(); c.daemon.start() }}, {"reboot", 1, c.reboot},
	}
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	n := c.random.IntN(total)
	for _, a := range actions {
		if n -= a.weight; n < 0 {
			a.do()
			c.did[a.name]++
			return
		}
	}
}

func (c *chaos) draw() *network.Network {
	c.age++
	nic, id := fmt.Sprint("ens", 4+c.random.IntN(4)), 1+c.random.IntN(80)
	if c.random.IntN(3) == 0 {
		id = -id
	}
	n := netOn(c.age, fmt.Sprint("net-", c.age), nic, id)
	n.ID = fmt.Sprint("n", c.random.IntN(chaosNetworks)) // sometimes another network's
	n.Type = []string{"macvlan", "macvlan", "macvlan", "ipvlan", "bridge"}[c.random.IntN(5)]
	n.MTU = []int{0, 0, 1300, 1450, 9000}[c.random.IntN(5)]
	return n
}

func (c *chaos) create() {
	if len(c.input.Networks) < chaosNetworks {
		c.input.Networks = append(c.input.Networks, c.draw())
		c.save()
	}
}

func (c *chaos) update() {
	if n := len(c.input.Networks); n > 0 {
		i := c.random.IntN(n)
		old, changed := c.input.Networks[i], c.draw()
		changed.Ref, changed.UID, changed.Created, changed.Generation = old.Ref, old.UID, old.Created, old.Generation+1
		c.input.Networks[i] = changed
		c.save()
	}
}

func (c *chaos) delete() {
	if n := len(c.input.Networks); n > 0 {
		i := c.random.IntN(n)
		c.input.Networks = slices.Delete(slices.Clone(c.input.Networks), i, i+1)
		c.save()
	}
}

// damage calls do with a random managed link without Pods.
func (c *chaos) damage(do func(*netlink.Handle, netlink.Link) error) func() {
	return func() {
		state := c.state()
		if len(state.Links) == 0 {
			return
		}
		f := state.Links[c.random.IntN(len(state.Links))]
		if !f.Managed || slices.Contains(c.input.Used, f.Identity) {
			return
		}
		within(c.T, c.host, func(h *netlink.Handle) {
			if l, err := h.LinkByName(f.Name); err == nil {
				_ = do(h, l) // the daemon may have deleted the link
			}
		})
	}
}

func (c *chaos) nicMTU() {
	within(c.T, c.host, func(h *netlink.Handle) {
		mtu := []int{1400, 1500, 1500, 9000}[c.random.IntN(4)]
		must(c.T, h.LinkSetMTU(find(c.T, h, fmt.Sprint("ens", 4+c.random.IntN(4))), mtu))
	})
}

func (c *chaos) nodes() {
	c.input.Nodes = nil
	for i := range 1 + c.random.IntN(5) {
		c.input.Nodes = append(c.input.Nodes, vtep(i+1).String())
	}
	c.save()
}

// attach is an ADD: it writes the record, then waits for the link.
func (c *chaos) attach() {
	if len(c.pods) > 20 || len(c.input.Networks) == 0 {
		return
	}
	n := c.input.Networks[c.random.IntN(len(c.input.Networks))]
	id, _ := n.Link()
	c.input.Used = append(c.input.Used, id)
	c.save()
	p := &chaosPod{id: id, netns: newNamespace(c.T)}
	// As in the daemon, a link may be deleted if that was decided before the record was written.
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		state := c.state()
		i := slices.IndexFunc(state.Links, func(f netwatcher.ObservedLink) bool { return f.Managed && !f.Unfinished && f.Up && f.Identity == id })
		if i < 0 {
			continue
		}
		p.slave = withDefaults(Slave{Parent: state.Links[i].Name}, p.netns)
		if _, err := c.k.Slaves().Attach(c.Context(), p.slave); err == nil {
			c.pods = append(c.pods, p)
			return
		} else if errors.Is(err, ErrParentBusy) {
			break
		}
	}
	c.deleteRecord(id)
}

// deleteRecord deletes one record.
func (c *chaos) deleteRecord(id network.Link) {
	if i := slices.Index(c.input.Used, id); i >= 0 {
		c.input.Used = slices.Delete(slices.Clone(c.input.Used), i, i+1)
	}
	c.save()
}

func (c *chaos) detach() {
	if len(c.pods) == 0 {
		return
	}
	i := c.random.IntN(len(c.pods))
	p := c.pods[i]
	if err := c.k.Slaves().Detach(c.Context(), p.slave); err != nil {
		c.Fatal(err)
	}
	c.pods = slices.Delete(c.pods, i, i+1)
	c.deleteRecord(p.id)
}

// podsHaveLinks checks that each Pod has its slave.
func (c *chaos) podsHaveLinks() {
	c.Helper()
	for _, p := range c.pods {
		if !hasLink(c.T, p.netns, p.slave.Name) {
			c.Fatalf("a Pod on %s lost its link; changes: %v", p.id, c.did)
		}
	}
}

// reboot restarts the daemon without Pods and managed links.
func (c *chaos) reboot() {
	c.daemon.kill()
	for len(c.pods) > 0 {
		c.detach()
	}
	for _, f := range c.state().Links {
		if f.Managed {
			within(c.T, c.host, func(h *netlink.Handle) { must(c.T, h.LinkDel(find(c.T, h, f.Name))) })
		}
	}
	c.daemon.start()
}

func (c *chaos) state() *netwatcher.State {
	c.Helper()
	state, err := c.k.Links().State(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	return state
}

// checkConverged waits until the links are as planned, first with Pods on links, then without.
func (c *chaos) checkConverged() {
	c.Helper()
	c.converge("with Pods")
	c.podsHaveLinks()
	for len(c.pods) > 0 {
		c.detach()
	}
	plan, state := c.converge("without Pods")
	got, want := map[string]netwatcher.Spec{}, map[string]netwatcher.Spec{}
	for _, f := range state.Links {
		if f.Managed {
			got[f.Name] = f.Spec
		}
	}
	for _, w := range plan.Links {
		if w.Err != nil {
			c.Errorf("link %s: %v", w.Name, w.Err)
		}
		if len(w.Peers) == 0 {
			w.Peers = nil
		}
		want[w.Name] = w.Spec
	}
	if diff := cmp.Diff(want, got, ips); diff != "" {
		c.Fatalf("links: -plan +kernel\n%s", diff)
	}
}

// converge waits until there is nothing to change.
func (c *chaos) converge(when string) (*netwatcher.Plan, *netwatcher.State) {
	c.Helper()
	var changes []netwatcher.Change
	for end := time.Now().Add(convergeTimeout); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		state := c.state()
		plan := netwatcher.Desired(c.input.Networks, state, netwatcher.PeerVTEPs(nodesAt(c.input.Nodes), "self"))
		changes = netwatcher.Diff(plan, state, func(f *netwatcher.ObservedLink) bool { return slices.Contains(c.input.Used, f.Identity) })
		// The name of a new link may be in use by another link with Pods. Then the new one is not created,
		// and its tags are not filtered.
		changes = slices.DeleteFunc(changes, func(ch netwatcher.Change) bool {
			return (ch.Op == netwatcher.OpCreate || ch.Op == netwatcher.OpFilterTags) && slices.ContainsFunc(state.Links, func(f netwatcher.ObservedLink) bool {
				return f.Name == ch.Link.Name && f.Identity != ch.Link.Identity && slices.Contains(c.input.Used, f.Identity)
			})
		})
		if len(changes) == 0 {
			return plan, state
		}
	}
	c.Fatalf("%s: not converged after %v: %+v", when, convergeTimeout, changes)
	return nil, nil
}
