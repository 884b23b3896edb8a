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
	// chaosTime is how long the chaos lasts; PATCHBAY_SOAK says another time, such as
	// 5m (make soak).
	chaosTime = 15 * time.Second
	// chaosRest is how long the daemon may take to make everything right after it.
	chaosRest = 4 * time.Minute
	// chaosNetworks are on four NICs.
	chaosNetworks = 200
)

// chaos is a host on which everything changes.
type chaos struct {
	*testing.T
	random *rand.Rand
	host   string
	k      *Kernel
	files  *files
	daemon *daemon
	wishes wishes
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

// Random networks come, change and go; links are removed and changed by hand, NICs'
// MTUs change, nodes come and go, the daemon is killed, the node boots anew. No Pod
// loses its link meanwhile; and at rest the kernel is what the pure function says, and
// what others made is as it was.
func TestLinkChaos(t *testing.T) {
	needs(t, "vlan")
	c := newChaos(t)
	foreign := c.others()
	if len(strings.Split(foreign, "\n")) < 3 {
		t.Fatalf("others' links:\n%s", foreign)
	}
	long := chaosTime
	if text := os.Getenv("PATCHBAY_SOAK"); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	c.daemon.start()
	rests := 0
	for end := time.Now().Add(long); time.Now().Before(end); rests++ {
		for pause := time.Now().Add(min(long/2, 30*time.Second)); time.Now().Before(pause); {
			for range 5 {
				c.act()
			}
			c.podsHaveLinks()
		}
		c.rest()
		if diff := cmp.Diff(foreign, c.others()); diff != "" {
			t.Fatalf("others' links (-before +after):\n%s", diff)
		}
	}
	t.Logf("%v of chaos, %d times at rest: %v", long, rests, c.did)
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
		eventually(t, "mine.77 up with its NIC, which Linux 7.2 does in a work queue", func() bool {
			return find(t, h, "mine.77").Attrs().Flags&net.FlagUp != 0
		})
		must(t, h.LinkAdd(&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "mine.vx", TxQLen: -1}, VxlanId: 77, Port: vxlanPort, VtepDevIndex: parent}))
		must(t, h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "mine.br", TxQLen: -1}}))
	})
	for range chaosNetworks {
		c.wishes.Networks = append(c.wishes.Networks, c.draw())
	}
	c.save()
	return c
}

// others are the links that others made, but for their MTU: the kernel lowers a
// VLAN's with its NIC's.
func (c *chaos) others() string {
	c.Helper()
	return regexp.MustCompile(` mtu \d+`).ReplaceAllString(links(dump(c.T, c.host), "mine."), "")
}

func (c *chaos) save() {
	c.Helper()
	if err := c.files.write(c.wishes); err != nil {
		c.Fatal(err)
	}
}

// act does one thing.
func (c *chaos) act() {
	c.Helper()
	type action struct {
		name   string
		weight int
		do     func()
	}
	actions := []action{
		{"create", 20, c.create}, {"update", 20, c.update}, {"delete", 15, c.delete},
		{"remove a link", 8, c.damage(func(h *netlink.Handle, l netlink.Link) error { return h.LinkDel(l) })},
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
	n.ID = fmt.Sprint("n", c.random.IntN(chaosNetworks)) // now and then somebody else's
	n.Type = []string{"macvlan", "macvlan", "macvlan", "ipvlan", "bridge"}[c.random.IntN(5)]
	n.MTU = []int{0, 0, 1300, 1450, 9000}[c.random.IntN(5)]
	return n
}

func (c *chaos) create() {
	if len(c.wishes.Networks) < chaosNetworks {
		c.wishes.Networks = append(c.wishes.Networks, c.draw())
		c.save()
	}
}

func (c *chaos) update() {
	if n := len(c.wishes.Networks); n > 0 {
		i := c.random.IntN(n)
		old, now := c.wishes.Networks[i], c.draw()
		now.Ref, now.UID, now.Created, now.Generation = old.Ref, old.UID, old.Created, old.Generation+1
		c.wishes.Networks[i] = now
		c.save()
	}
}

func (c *chaos) delete() {
	if n := len(c.wishes.Networks); n > 0 {
		i := c.random.IntN(n)
		c.wishes.Networks = slices.Delete(slices.Clone(c.wishes.Networks), i, i+1)
		c.save()
	}
}

// damage does something to a link of ours, of those without Pods.
func (c *chaos) damage(do func(*netlink.Handle, netlink.Link) error) func() {
	return func() {
		state := c.state()
		if len(state.Links) == 0 {
			return
		}
		f := state.Links[c.random.IntN(len(state.Links))]
		if !f.Managed || slices.Contains(c.wishes.Used, f.Identity) {
			return
		}
		within(c.T, c.host, func(h *netlink.Handle) {
			if l, err := h.LinkByName(f.Name); err == nil {
				_ = do(h, l) // the daemon may be faster
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
	c.wishes.Nodes = nil
	for i := range 1 + c.random.IntN(5) {
		c.wishes.Nodes = append(c.wishes.Nodes, vtep(i+1).String())
	}
	c.save()
}

// attach is an ADD: the record comes first, then the link is there or it fails.
func (c *chaos) attach() {
	if len(c.pods) > 20 || len(c.wishes.Networks) == 0 {
		return
	}
	n := c.wishes.Networks[c.random.IntN(len(c.wishes.Networks))]
	id, _ := n.Link()
	c.wishes.Used = append(c.wishes.Used, id)
	c.save()
	p := &chaosPod{id: id, netns: newNamespace(c.T)}
	// As in the daemon, a link may go for which it decided before the record was there.
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		state := c.state()
		i := slices.IndexFunc(state.Links, func(f netwatcher.ObservedLink) bool { return f.Managed && !f.Unfinished && f.Up && f.Identity == id })
		if i < 0 {
			continue
		}
		p.slave = withDefaults(Slave{Parent: state.Links[i].Name}, p.netns)
		if _, err := c.k.Attach(c.Context(), p.slave); err == nil {
			c.pods = append(c.pods, p)
			return
		} else if errors.Is(err, ErrParentBusy) {
			break
		}
	}
	c.forget(id)
}

// forget takes one record away.
func (c *chaos) forget(id network.Link) {
	if i := slices.Index(c.wishes.Used, id); i >= 0 {
		c.wishes.Used = slices.Delete(slices.Clone(c.wishes.Used), i, i+1)
	}
	c.save()
}

func (c *chaos) detach() {
	if len(c.pods) == 0 {
		return
	}
	i := c.random.IntN(len(c.pods))
	p := c.pods[i]
	if err := c.k.Detach(c.Context(), p.slave); err != nil {
		c.Fatal(err)
	}
	c.pods = slices.Delete(c.pods, i, i+1)
	c.forget(p.id)
}

// podsHaveLinks looks for each Pod's slave.
func (c *chaos) podsHaveLinks() {
	c.Helper()
	for _, p := range c.pods {
		if !hasLink(c.T, p.netns, p.slave.Name) {
			c.Fatalf("a Pod on %s lost its link; what was done: %v", p.id, c.did)
		}
	}
}

// reboot is what a node has after it: neither daemon, Pods nor links of ours.
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
	state, err := c.k.State(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	return state
}

// rest waits until the kernel is what the pure function says, first with Pods on
// links, then without.
func (c *chaos) rest() {
	c.Helper()
	c.settles("with Pods")
	c.podsHaveLinks()
	for len(c.pods) > 0 {
		c.detach()
	}
	plan, state := c.settles("without Pods")
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
		c.Fatalf("at rest: -pure function +kernel\n%s", diff)
	}
}

// settles waits until there is nothing to do.
func (c *chaos) settles(when string) (*netwatcher.Plan, *netwatcher.State) {
	c.Helper()
	var changes []netwatcher.Change
	for end := time.Now().Add(chaosRest); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		state := c.state()
		plan := netwatcher.Desired(c.wishes.Networks, state, netwatcher.PeerVTEPs(nodesAt(c.wishes.Nodes), "self"))
		changes = netwatcher.Diff(plan, state, func(f *netwatcher.ObservedLink) bool { return slices.Contains(c.wishes.Used, f.Identity) })
		// A link may wait for a name that Pods keep from it.
		changes = slices.DeleteFunc(changes, func(ch netwatcher.Change) bool {
			return ch.Op == netwatcher.OpCreate && slices.ContainsFunc(state.Links, func(f netwatcher.ObservedLink) bool {
				return f.Name == ch.Link.Name && slices.Contains(c.wishes.Used, f.Identity)
			})
		})
		if len(changes) == 0 {
			return plan, state
		}
	}
	c.Fatalf("%s: not at rest after %v: %+v", when, chaosRest, changes)
	return nil, nil
}
