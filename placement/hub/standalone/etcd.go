// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Sockets of etcd in DataDir, where programs run: the path is short so. etcd insists on the
// form host:port, and then takes all of it for the name.
const (
	etcdSocket = "etcd.sock:0"
	peerSocket = "peer.sock:0"
)

// etcdFolder has etcd's data. It is made under the other name.
const (
	etcdFolder = "etcd"
	firstEtcd  = "etcd.first"
)

// bootstrap makes etcd's folder at a hub's first start. An etcd that ends between its first
// files and its first entry has no member when it starts again, and never elects a leader:
// the hub could not start in that folder any more. So the folder gets its name when an etcd
// has answered with it, and what an earlier start has left under the other name goes. No API
// server has written there.
func (r *runner) bootstrap(ctx context.Context) error {
	if _, err := os.Stat(r.path(etcdFolder)); err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.RemoveAll(r.path(firstEtcd)); err != nil {
		return fmt.Errorf("remove an unfinished folder of etcd: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	stop, err := r.start(ctx, group, etcd(firstEtcd))
	if err != nil {
		return err
	}
	group.Go(func() error {
		defer stop()
		return r.awaitEtcd(ctx)
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if err := os.Rename(r.path(firstEtcd), r.path(etcdFolder)); err != nil {
		return fmt.Errorf("name etcd's folder: %w", err)
	}
	return errors.Join(r.sweep(), r.sync())
}

// sync keeps the names in DataDir over a loss of power.
func (r *runner) sync() error {
	dir, err := os.Open(r.DataDir)
	if err != nil {
		return fmt.Errorf("sync the folder: %w", err)
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// awaitEtcd waits until etcd has a leader and answers reads.
func (r *runner) awaitEtcd(ctx context.Context) error {
	dir, err := os.Open(r.DataDir)
	if err != nil {
		return fmt.Errorf("open the folder of etcd's socket: %w", err)
	}
	defer dir.Close()
	// DataDir may be longer than the path of a socket may be (unix(7)).
	socket := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), etcdSocket)
	dialer := &net.Dialer{}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
	}}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := healthy(ctx, client)
		if err == nil {
			return nil
		}
		if pause(ctx); ctx.Err() != nil {
			return fmt.Errorf("wait for etcd (see %s): %w", r.path("etcd.log"), err)
		}
	}
}

// healthy asks etcd, which reads from a quorum before it answers.
func healthy(ctx context.Context, client *http.Client) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://etcd/health", http.NoBody)
	if err != nil {
		return fmt.Errorf("ask etcd for its health: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask etcd for its health: %w", err)
	}
	defer response.Body.Close()
	const most = 1 << 10
	text, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("etcd is not healthy: %s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	return err
}
