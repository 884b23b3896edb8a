// SPDX-License-Identifier: Apache-2.0

package debugproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/debugpath"
	"github.com/patchbay-cni/patchbay/placement/internal/tunnel"
)

// Intervals of attempts to attach. The hub's API server chooses a replica of the hub for each attempt, and the agent
// does not know how many there are. So it tries again for ever: soon after a connection began or ended, then at
// maxInterval, and at settledInterval after settledAfter answers in a row of replicas that it is attached to. With three
// replicas, one of 3,000 agents has not found all of them by then.
const (
	minInterval, maxInterval = time.Second, 30 * time.Second
	settledInterval          = 2 * time.Minute
	settledAfter             = 20
	// attachTimeout bounds one attempt.
	attachTimeout = 30 * time.Second
)

// Config configures the agent's end.
type Config struct {
	// Cluster is the name of the Cluster at the hub.
	Cluster string
	// Hub is the client configuration for requests that upgrade their connection.
	Hub *rest.Config
	// Local is the cluster's own API server. The agent must have the right to impersonate users.
	Local *rest.Config
	// CheckPlaced returns why hub users may not reach something; nil when they may.
	CheckPlaced func(context.Context, debugpath.Placed) error
}

// Attachments are the agent's connections to the replicas of the hub.
type Attachments struct {
	attach  *url.URL
	hub     http.RoundTripper
	handler http.Handler

	mu       sync.Mutex
	replicas []string      // to which a connection is open
	ended    chan struct{} // after a connection has ended
}

// New makes the attachments without any connection.
func New(c Config) (*Attachments, error) {
	a := &Attachments{ended: make(chan struct{}, 1)}
	server, _, err := rest.DefaultServerURL(c.Hub.Host, c.Hub.APIPath, schema.GroupVersion{}, true)
	if err != nil {
		return nil, fmt.Errorf("read the hub's address: %w", err)
	}
	a.attach = server.JoinPath("apis", v1alpha1.DebugGroup, v1alpha1.DebugVersion, "clusters", c.Cluster, "attach")
	if a.hub, err = rest.TransportFor(c.Hub); err != nil {
		return nil, fmt.Errorf("make the hub's client: %w", err)
	}
	a.handler, err = newProxy(c.Local, c.CheckPlaced)
	return a, err
}

// Run keeps a connection to each replica of the hub until ctx ends.
func (a *Attachments) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx).WithName("debug")
	ctx = logr.NewContext(ctx, log)
	var open sync.WaitGroup
	defer open.Wait()
	last := ""
	for retry := newPace(); ctx.Err() == nil; {
		conn, replica, err := a.dial(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			if err.Error() != last {
				log.Info("Failed to attach to the hub; retrying", "cause", err.Error())
			}
			last = err.Error()
		case conn != nil:
			retry, last = newPace(), ""
			a.add(replica)
			log.Info("Attached to a replica of the hub", "replica", replica)
			open.Go(func() {
				err := tunnel.Serve(ctx, conn, a.handler)
				a.remove(replica)
				log.Info("The connection to a replica of the hub ended", "replica", replica, "cause", fmt.Sprint(err))
			})
		case err == nil:
			last = ""
			log.V(1).Info("Attached to this replica of the hub already", "replica", replica)
		}
		timer := time.NewTimer(retry.next(conn == nil && err == nil))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-a.ended:
			retry = newPace()
			timer.Reset(retry.next(false)) // not at once: the hub may be restarting
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
		}
		timer.Stop()
	}
	return nil
}

// pace has the intervals of attempts.
type pace struct {
	backoff wait.Backoff
	known   int // answers in a row of replicas that the agent is attached to
}

func newPace() *pace {
	return &pace{backoff: wait.Backoff{Duration: minInterval, Factor: 2, Jitter: 0.5, Steps: 100, Cap: maxInterval}}
}

// next returns the time until the next attempt. known is true when the agent is attached to the replica that answered.
func (p *pace) next(known bool) time.Duration {
	if p.known++; !known {
		p.known = 0
	}
	if p.known >= settledAfter {
		return wait.Jitter(settledInterval, p.backoff.Jitter)
	}
	return p.backoff.Step()
}

// dial asks the hub for a connection. It returns none when the replica that answers has one already, which is a
// conflict: an API server does not pass on an answer below 400 to a request for an upgrade.
func (a *Attachments) dial(ctx context.Context) (conn io.ReadWriteCloser, replica string, err error) {
	// The context must live as long as the connection, so a timer ends it only before the answer.
	dialing, cancel := context.WithCancel(ctx)
	timeout := time.AfterFunc(attachTimeout, cancel)
	defer timeout.Stop()
	r, err := http.NewRequestWithContext(dialing, http.MethodPost, a.attach.String(), http.NoBody)
	if err != nil {
		cancel()
		return nil, "", fmt.Errorf("make the request: %w", err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", tunnel.Protocol)
	r.Header.Set(tunnel.AttachedHeader, strings.Join(a.attached(), ","))
	response, err := a.hub.RoundTrip(r)
	if err != nil {
		cancel()
		return nil, "", fmt.Errorf("attach: %w", err)
	}
	replica = response.Header.Get(tunnel.ReplicaHeader)
	stream, ok := response.Body.(io.ReadWriteCloser)
	if response.StatusCode == http.StatusSwitchingProtocols && ok && replica != "" && response.Header.Get("Upgrade") == tunnel.Protocol {
		return &cancelingConn{stream, cancel}, replica, nil
	}
	defer cancel()
	defer response.Body.Close()
	if response.StatusCode == http.StatusConflict && slices.Contains(a.attached(), replica) {
		return nil, replica, nil
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	return nil, "", fmt.Errorf("attach: %w", errors.New(response.Status+": "+strings.TrimSpace(string(text))))
}

// cancelingConn ends the context of the request when the connection is closed.
type cancelingConn struct {
	io.ReadWriteCloser

	cancel context.CancelFunc
}

// Close implements io.Closer.
func (c *cancelingConn) Close() error {
	defer c.cancel()
	return c.ReadWriteCloser.Close()
}

func (a *Attachments) attached() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.replicas)
}

func (a *Attachments) add(replica string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.replicas = append(a.replicas, replica)
}

func (a *Attachments) remove(replica string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.replicas, replica); i >= 0 {
		a.replicas = slices.Delete(a.replicas, i, i+1)
	}
	select {
	case a.ended <- struct{}{}:
	default:
	}
}
