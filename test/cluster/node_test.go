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

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/daemon/journal"
)

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

// records are the sandboxes in the journal of a node's daemon. It is read from a
// copy, since the daemon has it locked; a copy made amid a write is no journal,
// which the caller tries again.
func (c *cluster) records(ctx context.Context, node string) ([]*attach.Record, error) {
	content, err := c.lab.Exec(ctx, node, "cat", journal.DefaultPath)
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
	j, err := journal.OpenContext(ctx, path, journal.Options{Holder: "test"})
	if err != nil {
		return nil, err
	}
	defer j.Close()
	return j.List()
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
