// SPDX-License-Identifier: Apache-2.0

package debugproxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/debugpath"
	"github.com/patchbay-cni/patchbay/placement/internal/tunnel"
)

// proxy answers requests of the hub's users with those of the cluster's API server.
type proxy struct {
	server      *url.URL
	transport   http.RoundTripper
	checkPlaced func(context.Context, debugpath.Placed) error
	slots       chan struct{} // one per open request, over all connections
}

func newProxy(local *rest.Config, checkPlaced func(context.Context, debugpath.Placed) error) (*proxy, error) {
	p := &proxy{checkPlaced: checkPlaced, slots: make(chan struct{}, tunnel.MaxStreams)}
	var err error
	if p.server, _, err = rest.DefaultServerURL(local.Host, "", schema.GroupVersion{}, true); err != nil {
		return nil, fmt.Errorf("read the cluster's address: %w", err)
	}
	if p.transport, err = newTransport(local); err != nil {
		return nil, err
	}
	return p, nil
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began, path := time.Now(), requestPath(r)
	answer := &tunnel.Recorder{ResponseWriter: w}
	log := logr.FromContextOrDiscard(r.Context())
	defer func() {
		log.Info("Answered a request of a hub user", "user", r.Header.Get(tunnel.UserHeader),
			"method", r.Method, "path", path, "code", answer.Code, "duration", time.Since(began).String())
	}()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	default:
		tunnel.WriteStatus(answer, apierrors.NewTooManyRequests(tunnel.ErrTooManyStreams.Error(), 1))
		return
	}
	if err := p.check(r.Context(), r, path); err != nil {
		tunnel.WriteStatus(answer, apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.DebugGroup, Resource: "clusters/proxy"}, "", err))
		return
	}
	if r.Header.Get(tunnel.UpgradeHeader) != "" || r.URL.Query().Has("watch") || r.URL.Query().Has("follow") {
		log.Info("Began a request of a hub user", "user", r.Header.Get(tunnel.UserHeader), "method", r.Method, "path", path)
	}
	if err := p.forward(answer, r, path); err != nil && answer.Code == 0 {
		tunnel.WriteStatus(answer, apierrors.NewInternalError(err))
	}
}

// requestPath returns the path as it was sent.
func requestPath(r *http.Request) string {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	return path
}

// errNoUser is why a request without a user is rejected.
var errNoUser = errors.New("the request must name a user")

// check returns why a request may not pass.
func (p *proxy) check(ctx context.Context, r *http.Request, path string) error {
	if r.Header.Get(tunnel.UserHeader) == "" || len(r.Header.Values(tunnel.UserHeader)) > 1 || len(r.Header.Values(tunnel.NamespaceHeader)) > 1 {
		return errNoUser
	}
	method := r.Method
	if r.Header.Get(tunnel.UpgradeHeader) != "" {
		method = http.MethodPost // exec over a WebSocket is a GET
	}
	request, err := debugpath.Parse(method, path)
	if err != nil {
		return err
	}
	return request.Check(r.Header.Get(tunnel.NamespaceHeader), func(placed debugpath.Placed) error { return p.checkPlaced(ctx, placed) })
}

// forward sends the request to the API server as its user.
func (p *proxy) forward(w http.ResponseWriter, r *http.Request, path string) error {
	target := *p.server
	target.Path = strings.TrimSuffix(target.Path, "/") + path
	target.RawQuery = r.URL.RawQuery
	header := tunnel.RequestHeader(r.Header)
	header.Set(authenticationv1.ImpersonateUserHeader, v1alpha1.DebugUserPrefix+r.Header.Get(tunnel.UserHeader))
	header.Set(authenticationv1.ImpersonateGroupHeader, v1alpha1.DebugUsersGroup)
	if r.Header.Get(tunnel.UpgradeHeader) != "" {
		out, err := http.NewRequestWithContext(r.Context(), r.Method, target.String(), http.NoBody)
		if err != nil {
			return fmt.Errorf("make the request for the cluster's API server: %w", err)
		}
		out.Header = header
		return tunnel.ForwardUpgrade(w, r, out, p.transport)
	}
	out := &http.Request{URL: &target, Header: header}
	return tunnel.Relay(w, r, out, p.transport)
}
