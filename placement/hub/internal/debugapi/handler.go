// SPDX-License-Identifier: Apache-2.0

package debugapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/tunnel"
)

// handler serves the API.
type handler struct {
	replica    string // identity of this process
	frontProxy *frontProxy
	access     *access
	limits     *limits
	sessions   sessions
	// reviewInterval is how often the rights behind an open connection or stream are reviewed again.
	reviewInterval time.Duration
}

// defaultReviewInterval is longer than an answer of a review counts.
const defaultReviewInterval = time.Minute

// acceptedInterval is how often an open connection's Cluster is checked: when it is not accepted any more, or another
// one, the connection ends.
const acceptedInterval = 2 * time.Second

// retryAfter is the number of seconds after which a client should try again. The API server mostly asks the same replica
// again, to which the agent may be attached by then.
const retryAfter = 2

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u, err := h.frontProxy.authenticate(r)
	if err != nil {
		tunnel.WriteStatus(w, apierrors.NewUnauthorized(err.Error()))
		return
	}
	path, _, _ := strings.Cut(r.RequestURI, "?")
	switch path {
	case "/apis/" + v1alpha1.DebugGroup:
		writeJSON(w, group())
		return
	case root:
		writeJSON(w, resources())
		return
	}
	t, ok := parseTarget(path)
	if !ok {
		tunnel.WriteStatus(w, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, resource("clusters"), "", "path must be "+root+"/clusters/NAME/proxy/…", 0, false))
		return
	}
	began, answer := time.Now(), &tunnel.Recorder{ResponseWriter: w}
	log := logr.FromContextOrDiscard(r.Context())
	defer func() {
		if answer.Code == http.StatusTooManyRequests || t.subresource == "attach" && answer.Code == http.StatusConflict {
			log = log.V(1) // a client may ask for ever
		}
		log.Info("Answered a debug request", "user", u.name, "cluster", t.cluster, "subresource", t.subresource,
			"namespace", t.namespace, "method", r.Method, "path", t.path, "code", answer.Code, "duration", time.Since(began).String())
	}()
	end, err := h.limits.begin(u.name, t.cluster)
	if err != nil {
		tunnel.WriteStatus(answer, statusOf(err))
		return
	}
	defer end()
	serve := h.proxy
	if t.subresource == "attach" {
		serve = h.attach
	}
	if err := serve(answer, r, u, t); err != nil && answer.Code == 0 {
		tunnel.WriteStatus(answer, statusOf(err))
	}
}

// group is the document /apis/GROUP.
func group() *metav1.APIGroup {
	v := metav1.GroupVersionForDiscovery{GroupVersion: v1alpha1.DebugGroup + "/" + v1alpha1.DebugVersion, Version: v1alpha1.DebugVersion}
	return &metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: v1alpha1.DebugGroup,
		Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v,
	}
}

// resources is the document /apis/GROUP/VERSION. It has subresources only, which the garbage collector, the namespace
// controller and `kubectl get` ignore: nothing can be listed or watched here.
func resources() *metav1.APIResourceList {
	return &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: v1alpha1.DebugGroup + "/" + v1alpha1.DebugVersion,
		APIResources: []metav1.APIResource{
			{Name: "clusters/attach", Kind: "ClusterAttachOptions", Verbs: metav1.Verbs{"create"}},
			{Name: "clusters/proxy", Kind: "ClusterProxyOptions", Verbs: metav1.Verbs{"create", "get"}},
		},
	}
}

func writeJSON(w http.ResponseWriter, o any) {
	data, err := json.Marshal(o)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data)
}

// statusOf returns the answer for an error.
func statusOf(err error) *apierrors.StatusError {
	if s, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return s
	}
	if errors.Is(err, tunnel.ErrTooManyStreams) {
		return apierrors.NewTooManyRequests(err.Error(), 1)
	}
	unavailable := apierrors.NewServiceUnavailable(err.Error())
	if errors.Is(err, errNotAttached) {
		unavailable.ErrStatus.Details = apierrors.NewTooManyRequests("", retryAfter).ErrStatus.Details
	}
	return unavailable
}

// errNotAttached is why a cluster cannot be reached.
var errNotAttached = errors.New("its agent is not connected to this replica of patchbay-hub: the agent must run with --debug-access " +
	"and reach the hub; it connects to a new replica within minutes")

// proxy sends a user's request to the cluster.
func (h *handler) proxy(w http.ResponseWriter, r *http.Request, u user, t target) error {
	check := func(ctx context.Context) error {
		return h.access.checkProxy(ctx, u, t, r.Method, tunnel.UpgradeOf(r.Header) != "")
	}
	if err := check(r.Context()); err != nil {
		return err
	}
	c, err := h.access.cluster(r.Context(), t.cluster)
	if err != nil {
		return err
	}
	session, ok := h.sessions.get(t.cluster, c.UID)
	if !ok {
		return fmt.Errorf("reach Cluster %s: %w", t.cluster, errNotAttached)
	}
	header := tunnel.RequestHeader(r.Header)
	header.Set(tunnel.UserHeader, u.name)
	if t.namespace != "" {
		header.Set(tunnel.NamespaceHeader, t.namespace)
	}
	if isStream(r) {
		logr.FromContextOrDiscard(r.Context()).Info("Began a debug request", "user", u.name, "cluster", t.cluster, "namespace", t.namespace,
			"method", r.Method, "path", t.path)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		defer cancel()
		h.waitRevoked(ctx, check)
	}()
	return session.Forward(w, r.WithContext(ctx), t.path, header)
}

// isStream tells whether a request may stay open for days, so that its log line at the end is too late.
func isStream(r *http.Request) bool {
	query := r.URL.Query()
	return tunnel.UpgradeOf(r.Header) != "" || query.Has("watch") || query.Has("follow")
}

// waitRevoked returns when the check finds that the rights are gone, or ctx ends. An API server that does not answer
// takes no rights away.
func (h *handler) waitRevoked(ctx context.Context, check func(context.Context) error) {
	tick := time.NewTicker(h.reviewInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if apierrors.IsForbidden(check(ctx)) {
				return
			}
		}
	}
}

// attach keeps an agent's connection until it ends.
func (h *handler) attach(w http.ResponseWriter, r *http.Request, u user, t target) error {
	if r.Method != http.MethodPost || tunnel.UpgradeOf(r.Header) != tunnel.Protocol {
		return apierrors.NewBadRequest("the request must be a POST with the headers Connection: Upgrade and Upgrade: " + tunnel.Protocol)
	}
	if err := h.access.checkAttach(r.Context(), u, t); err != nil {
		return err
	}
	c, err := h.access.cluster(r.Context(), t.cluster)
	if err != nil {
		return err
	}
	w.Header().Set(tunnel.ReplicaHeader, h.replica)
	known := strings.Split(r.Header.Get(tunnel.AttachedHeader), ",")
	if _, open := h.sessions.get(t.cluster, c.UID); open && slices.Contains(known, h.replica) {
		// An API server takes an answer below 400 to a request for an upgrade for an error of this server.
		return apierrors.NewConflict(resource("clusters/attach"), t.cluster, errAttached)
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return fmt.Errorf("take over the agent's connection: %w", err)
	}
	session, err := h.begin(r.Context(), conn, buffered)
	if err != nil {
		return err
	}
	defer session.Close()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		defer cancel()
		h.waitRevoked(ctx, func(ctx context.Context) error { return h.access.checkAttach(ctx, u, t) })
	}()
	h.keep(ctx, t.cluster, attached{session, c.UID})
	return nil
}

// errAttached is why an agent gets no second connection.
var errAttached = errors.New("its agent is connected to this replica of patchbay-hub already")

// begin answers 101, and reverses the roles.
func (h *handler) begin(ctx context.Context, conn net.Conn, buffered *bufio.ReadWriter) (*tunnel.Session, error) {
	_ = conn.SetDeadline(time.Time{})
	_, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: %s\r\n\r\n",
		tunnel.Protocol, tunnel.ReplicaHeader, h.replica)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("answer the agent: %w", err), conn.Close())
	}
	return tunnel.NewSession(ctx, &bufferedConn{conn, buffered.Reader})
}

// bufferedConn reads first what the server has read ahead.
type bufferedConn struct {
	net.Conn

	reader *bufio.Reader
}

// Read implements net.Conn.
func (c *bufferedConn) Read(p []byte) (int, error) { return c.reader.Read(p) }

// keep stores a connection until it is closed, its Cluster is not accepted any more, or ctx ends.
func (h *handler) keep(ctx context.Context, cluster string, a attached) {
	if h.sessions.add(cluster, a) {
		// Often, if two agents have the credential of one cluster.
		logr.FromContextOrDiscard(ctx).Info("Replaced the open connection of an agent by a newer one", "cluster", cluster)
	}
	defer h.sessions.remove(cluster, a)
	tick := time.NewTicker(acceptedInterval)
	defer tick.Stop()
	for {
		select {
		case <-a.Closed():
			return
		case <-ctx.Done():
			return
		case <-tick.C:
			if !h.stillAccepted(ctx, cluster, a.uid) {
				return
			}
		}
	}
}

func (h *handler) stillAccepted(ctx context.Context, cluster string, uid types.UID) bool {
	c, err := h.access.cluster(ctx, cluster)
	return err == nil && c.UID == uid
}
