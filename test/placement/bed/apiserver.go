// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/lab/process"
)

// APIServer is one more API server of the hub, on the same etcd.
type APIServer struct {
	process.ID

	// URL is its address.
	URL string
}

// StartAPIServer starts it as the first was started, but for port and audit log.
func (p *Plane) StartAPIServer(ctx context.Context) (*APIServer, error) {
	args, err := p.apiServerArgs()
	if err != nil {
		return nil, err
	}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	free, err := controlplane.FreePort(loopback)
	if err != nil {
		return nil, err
	}
	at := netip.AddrPortFrom(loopback, free)
	name := fmt.Sprintf("kube-apiserver-%d", free)
	s := &APIServer{URL: "https://" + at.String()}
	audit := "--audit-log-path=" + filepath.Join(p.dir, name+"."+auditFile)
	if s.ID, err = p.run(name, append(args, fmt.Sprintf("--secure-port=%d", free), audit)...); err != nil {
		return nil, err
	}
	return s, s.await(ctx, p.Config)
}

// apiServerArgs is the command line of the API server that runs.
func (p *Plane) apiServerArgs() ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(p.dir, string(controlplane.APIServer)+".pid"))
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	var id process.ID
	if err := json.Unmarshal(raw, &id); err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", id.PID))
	if err != nil {
		return nil, fmt.Errorf("read the API server's command line: %w", err)
	}
	return strings.Split(string(bytes.TrimRight(line, "\x00")), "\x00"), nil
}

// await waits until it is ready, or has ended.
func (s *APIServer) await(ctx context.Context, admin *rest.Config) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	config := rest.CopyConfig(admin)
	config.Host = s.URL
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	for {
		err := d.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		if err == nil {
			return nil
		}
		if !s.Alive() {
			return fmt.Errorf("await %s: %w (last: %w)", s.URL, process.ErrGone, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("await %s: %w (last: %w)", s.URL, ctx.Err(), err)
		case <-time.After(pollInterval):
		}
	}
}
