// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/journaltest"
)

// sandbox is a Pod's sandbox with an interface on the network that was asked for.
type sandbox struct {
	node    string
	record  *journaltest.Record
	address netip.Addr
}

// sandboxes are the journal's records of a node that have an interface on the
// network, with that interface.
func (c *cluster) sandboxes(ctx context.Context, node, network string) ([]sandbox, error) {
	records, err := c.records(ctx, node)
	if err != nil {
		return nil, err
	}
	var found []sandbox
	for _, r := range records {
		for _, i := range r.Interfaces {
			if i.Network.Ref.Name == network {
				found = append(found, sandbox{node: node, record: r, address: i.V4.Addr()})
			}
		}
	}
	return found, nil
}

// records are the sandboxes in the journal of a node's daemon. It is read from a
// copy, since the daemon has it locked; a copy made amid a write is no journal,
// which the caller tries again.
func (c *cluster) records(ctx context.Context, node string) ([]*journaltest.Record, error) {
	content, err := c.lab.Exec(ctx, node, "cat", journaltest.Path)
	if err != nil {
		return nil, fmt.Errorf("copy journal of %s: %w", node, err)
	}
	dir, err := os.MkdirTemp("", "journal-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "journal.db")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return nil, err
	}
	return journaltest.Read(ctx, path)
}

// sandboxAddresses are the addresses on a node that lie in a subnet and are in
// any sandbox's namespace: what the kernel says, whatever the API says.
func (c *cluster) sandboxAddresses(ctx context.Context, node string, subnet netip.Prefix) ([]netip.Addr, error) {
	const script = `for n in /run/netns/cni-*; do
		[ -e "$n" ] && ip -n "${n##*/}" -o address show 2>/dev/null || true
	done`
	out, err := c.lab.Exec(ctx, node, "sh", "-c", script)
	if err != nil {
		return nil, fmt.Errorf("list addresses on %s: %w", node, err)
	}
	var found []netip.Addr
	for lines := bufio.NewScanner(strings.NewReader(out)); lines.Scan(); {
		for word := range strings.FieldsSeq(lines.Text()) {
			if p, err := netip.ParsePrefix(word); err == nil && subnet.Contains(p.Addr()) {
				found = append(found, p.Addr())
			}
		}
	}
	return found, nil
}

// nodesWithAddress are the nodes whose sandboxes have an address, once for each.
func (c *cluster) nodesWithAddress(t *testing.T, addr netip.Addr) []string {
	t.Helper()
	var nodes []string
	for _, node := range c.nodes {
		found, err := c.sandboxAddresses(t.Context(), node, netip.PrefixFrom(addr, addr.BitLen()))
		if err != nil {
			t.Fatal(err)
		}
		for range found {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// killDaemon ends the node's patchbayd with SIGKILL, wherever it is, and whatever
// it is about to execute. It waits for a daemon that is still coming up.
func (c *cluster) killDaemon(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	c.await(ctx, t, "patchbayd on "+node+" can be killed", func(ctx context.Context) string {
		if _, err := c.lab.Exec(ctx, node, "sh", "-c", "kill -KILL $(pidof patchbayd)"); err != nil {
			return err.Error()
		}
		return ""
	})
}

// startNode switches a node on and waits until it is ready.
func (c *cluster) startNode(t *testing.T, node string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), waitTimeout)
	defer cancel()
	if err := c.lab.StartNode(ctx, node); err != nil {
		t.Fatalf("start %s: %v", node, err)
	}
}

// runOnNode runs a script on a node and returns what it prints.
func (c *cluster) runOnNode(t *testing.T, node, script string) string {
	t.Helper()
	out, err := c.lab.Exec(t.Context(), node, "sh", "-c", script)
	if err != nil {
		t.Fatalf("on %s: %s: %v\n%s", node, script, err, out)
	}
	return out
}

// background runs a command on a node until the test ends. What it starts ends with it.
func (c *cluster) background(t *testing.T, node, command string) {
	t.Helper()
	pid := fmt.Sprintf("/run/background-%d.pid", time.Now().UnixNano())
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = c.lab.Exec(ctx, node, "sh", "-c", "echo $$ >"+pid+"; exec "+command) // until it is killed
	}()
	t.Cleanup(func() {
		defer cancel()
		ending, stop := context.WithTimeout(ctx, waitTimeout)
		defer stop()
		if _, err := c.lab.Exec(ending, node, "sh", "-c", "kill $(cat "+pid+"); rm -f "+pid); err != nil {
			t.Errorf("end %s: %v", command, err)
			cancel()
		}
		<-ended
	})
}

// vtepAddress is a node's first address on the trunk.
func (c *cluster) vtepAddress(t *testing.T, node string) string {
	t.Helper()
	return c.addressOf(t, node, trunk)
}

// addressOf is a node's first address on a NIC, as its NodeNetwork says.
func (c *cluster) addressOf(t *testing.T, node, nicName string) string {
	t.Helper()
	var nn v1.NodeNetwork
	if err := c.Get(t.Context(), client.ObjectKey{Name: node}, &nn); err != nil {
		t.Fatal(err)
	}
	for _, nic := range nn.Status.NICs {
		if nic.Name == nicName && len(nic.Addresses) > 0 {
			address, _, _ := strings.Cut(nic.Addresses[0], "/")
			return address
		}
	}
	t.Fatalf("NodeNetwork %s has no address of %s: %+v", node, nicName, nn.Status.NICs)
	return ""
}

// leftOnNode says what a node still has of a Pod that is deleted.
func (c *cluster) leftOnNode(ctx context.Context, node string, p client.Object) string {
	records, err := c.records(ctx, node)
	if err != nil {
		return err.Error()
	}
	for _, r := range records {
		if r.PodNamespace == p.GetNamespace() && r.PodName == p.GetName() {
			return fmt.Sprintf("the journal of %s has sandbox %s of it (%s)", node, r.ContainerID, r.State)
		}
	}
	slaves, err := c.lab.Exec(ctx, node, "sh", "-c", "ip -o link show type ipvlan; ip -o link show type macvlan")
	if err != nil {
		return err.Error()
	}
	if slaves != "" {
		return fmt.Sprintf("%s has slaves outside of any Pod:\n%s", node, slaves)
	}
	return ""
}
