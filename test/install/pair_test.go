// SPDX-License-Identifier: Apache-2.0

//go:build install

package install

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// overlay is a network on a VXLAN.
const overlay = `
apiVersion: danm.io/v1
kind: ClusterNetwork
metadata: {name: overlay}
spec:
  NetworkID: overlay
  NetworkType: macvlan
  Options: {host_device: ens4, vxlan: 700, container_prefix: overlay, cidr: 10.60.0.0/24, allocation_pool: {start: 10.60.0.100, end: 10.60.0.200}}
`

// overlayAddress is that of a Pod on the network overlay.
const overlayAddress = "10.60.0.10"

// pingScript pings an address every 10 ms (which an interval of 9 ms is in a kernel with 100 ticks a second), from the
// first answer on. For each 50 answers it prints their number so far and the sequence numbers that were left out and did
// not come since. Sequence numbers have 16 bits.
const pingScript = linkLibraries + `
until /usr/bin/ping -c 1 -W 1 %[1]s >/dev/null; do sleep 0.1; done
/usr/bin/ping -i 0.009 %[1]s | awk '
/seq=/ {
  sub(/.*seq=/, ""); n = $1 + 0
  if (answered == 0) next_ = n
  n += 65536 * int((next_ - n + 32768) / 65536)
  for (; next_ < n; next_++) missing[next_] = 1
  if (n == next_) next_++
  delete missing[n]
  if (++answered %% 50 == 0) {
    line = answered
    for (m in missing) line = line " " m
    print line; fflush()
  }
}'`

// pair are two Pods on two nodes that ping each other every 10 ms, one on a VLAN and the other on a VXLAN. One has a
// static address on each of the networks, the other a dynamic one.
type pair struct {
	// interfaces of the Pods at the begin.
	interfaces map[string]string
}

// startPair creates the networks, and starts the Pods.
func (b *bed) startPair() *pair {
	b.Helper()
	b.apply(networks)
	b.apply(overlay)
	const annotation = `[{"clusterNetwork":"pods"},{"clusterNetwork":"storage","ip":%q},{"clusterNetwork":"overlay","ip":%q}]`
	p := &pair{interfaces: map[string]string{}}
	for i, next := range []struct{ name, storage, overlay, pings string }{
		{"on-vlan", "dynamic", overlayAddress + "/24", listenerAddress},
		{"on-vxlan", listenerAddress + "/24", "dynamic", overlayAddress},
	} {
		b.startPod(pod{
			name: next.name, node: b.nodes[i], usr: true,
			interfaces: fmt.Sprintf(annotation, next.storage, next.overlay),
			command:    []string{"sh", "-c", fmt.Sprintf(pingScript, next.pings)},
		})
		p.interfaces[next.name] = b.interfaces(next.name)
	}
	b.checkPair(p)
	return p
}

// checkPair checks that the Pods have the interfaces that they had, and that all their pings were answered.
func (b *bed) checkPair(p *pair) {
	b.Helper()
	for name, before := range p.interfaces {
		if now := b.interfaces(name); now != before {
			b.Errorf("the interfaces of Pod %s have changed:\n%s\nbecame\n%s", name, before, now)
		}
		begin, _, err := b.answers(b.Context(), name)
		if err != nil {
			b.Fatal(err)
		}
		b.await("more answers to Pod "+name, func(ctx context.Context) (string, bool) {
			const more = 200 // of which the last ones are younger than this check
			answered, lost, err := b.answers(ctx, name)
			if err != nil {
				return err.Error(), false
			}
			if answered < begin+more {
				return strconv.Itoa(answered), false
			}
			b.Logf("%d pings of Pod %s were answered, %d were lost", answered, name, len(lost))
			if len(lost) > 0 {
				b.Errorf("the pings %v of Pod %s were lost, want none", lost, name)
			}
			return "", true
		})
	}
}

// answers returns how many pings of a Pod were answered, and the numbers of those that were not.
func (b *bed) answers(ctx context.Context, name string) (answered int, lost []string, err error) {
	out, err := b.lab.Kubectl(ctx, "logs", name, "--tail=1")
	if err != nil {
		return 0, nil, err
	}
	fields := strings.Fields(out)
	if len(fields) == 0 {
		return 0, nil, nil
	}
	if answered, err = strconv.Atoi(fields[0]); err != nil {
		return 0, nil, fmt.Errorf("read the log of Pod %s: %w", name, err)
	}
	return answered, fields[1:], nil
}
