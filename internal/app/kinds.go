// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
)

// Times of a KindChecker.
const (
	// servedInterval and missingInterval are the mean times between two requests, if the API server serves all
	// kinds and if it does not. Every node sends them: 1,000 nodes send 17 and 143 a second.
	servedInterval, missingInterval = time.Minute, 7 * time.Second
	// kindsTimeout bounds one request.
	kindsTimeout = 10 * time.Second
	// confirmedAge is how old an answer that ConfirmMissing uses may be. The start of one Pod may need it for
	// three kinds.
	confirmedAge = 2 * time.Second
)

// ErrKindsUnknown means that the API server has not answered yet which kinds it serves.
var ErrKindsUnknown = errors.New("it is not known yet which kinds the API server serves")

// KindChecker checks whether the API server serves the kinds of a group that a program needs. It needs the
// ClusterRole system:discovery, which Kubernetes grants to all accounts.
type KindChecker struct {
	// Log, which may be the zero value, gets a message when the answer changes: kubelet's Events have only the
	// status code of /readyz.
	Log logr.Logger

	client    rest.Interface
	group     schema.GroupVersion
	kinds     []string
	manifests string

	mu sync.Mutex // guards the fields below
	// err is nil if the last answer of the API server has all kinds, and otherwise names those that are missing.
	// Before the first answer it is ErrKindsUnknown.
	err error
	// requestErr is why the last request got no answer; nil if it got one.
	requestErr error
	// readAt is when the last request has ended, and dueAt when the next one is due.
	readAt, dueAt time.Time
	// reading is closed when the request in progress has ended; nil if there is none.
	reading chan struct{}
	// confirmed has the kinds that ConfirmMissing read last, at confirmedAt.
	confirmed   map[string]bool
	confirmedAt time.Time
}

// NewKindChecker returns a KindChecker. Manifests is the folder of the CustomResourceDefinitions, which
// errors name. It sends no request.
func NewKindChecker(cfg *rest.Config, group schema.GroupVersion, manifests string, kinds ...string) (*KindChecker, error) {
	c, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make discovery client: %w", err)
	}
	return &KindChecker{client: c.RESTClient(), group: group, kinds: kinds, manifests: manifests, err: ErrKindsUnknown}, nil
}

// Check returns nil if the API server serves the kinds, else an error that names those that are missing or
// being deleted. It sends a request if one is due, and waits for the answer until ctx ends, unless the last
// answer had all kinds. While the API server does not answer, the last answer counts; before the first one,
// Check returns ErrKindsUnknown with the cause.
func (k *KindChecker) Check(ctx context.Context) error {
	reading := k.refresh(ctx)
	last := k.lastAnswer()
	if last == nil || reading == nil {
		return last
	}
	select {
	case <-reading:
	case <-ctx.Done():
	}
	return k.lastAnswer()
}

// CheckKnown is Check for a program that has another reason not to be ready before the API server's first
// answer: it returns nil then. It waits for at most half of the time that ctx has left, so that the next
// check can still wait.
func (k *KindChecker) CheckKnown(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	if err := k.Check(ctx); !errors.Is(err, ErrKindsUnknown) {
		return err
	}
	return nil
}

// HandleWatchError is the DefaultWatchErrorHandler of a program's cache. A kind may be missing when the API
// server does not find what the cache watches: the next request is due at once then, but not sooner than
// while a kind is missing.
func (k *KindChecker) HandleWatchError(ctx context.Context, r *toolscache.Reflector, err error) {
	toolscache.DefaultWatchErrorHandler(ctx, r, err)
	if apierrors.IsNotFound(err) {
		k.expireEarly()
		k.refresh(ctx)
	}
}

// expireEarly makes the next request due missingInterval after the last one.
func (k *KindChecker) expireEarly() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if early := k.readAt.Add(missingInterval); early.Before(k.dueAt) {
		k.dueAt = early
	}
}

// refresh starts a request if one is due. It returns a channel that is closed when the request in progress
// has ended, and nil without one. The request goes on when ctx ends, for the next Check.
func (k *KindChecker) refresh(ctx context.Context) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reading == nil && !time.Now().Before(k.dueAt) {
		done := make(chan struct{})
		k.reading = done
		go k.read(context.WithoutCancel(ctx), done)
	}
	return k.reading
}

// read asks the API server, and closes done.
func (k *KindChecker) read(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, kindsTimeout)
	defer cancel()
	list, err := k.readKinds(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil || apierrors.IsNotFound(err) {
		before := k.err
		k.err, k.requestErr = checkKinds(k.group, k.kinds, k.manifests, list), nil
		k.logChange(before, k.err)
	} else {
		before := k.requestErr
		k.requestErr = explainRequestError(err)
		k.logFailure(before, k.requestErr)
	}
	interval := missingInterval
	if k.err == nil {
		interval = servedInterval
	}
	k.readAt, k.reading = time.Now(), nil
	k.dueAt = k.readAt.Add(interval*3/4 + rand.N(interval/2))
	close(done)
}

// logChange logs an answer that differs from the one before.
func (k *KindChecker) logChange(before, now error) {
	switch {
	case now == nil && before != nil && !errors.Is(before, ErrKindsUnknown):
		k.Log.Info("Found all kinds that this program needs", "group", k.group.String())
	case now != nil && (before == nil || before.Error() != now.Error()):
		k.Log.Info("Not ready, because kinds are missing", "group", k.group.String(), "reason", now.Error())
	}
}

// explainRequestError adds to the error of a request what to do.
func explainRequestError(err error) error {
	if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: the API server must accept the program's credentials, and the ClusterRole system:discovery "+
			"must be bound to the group system:authenticated, as it is by default", err)
	}
	return fmt.Errorf("%w: check that the API server is reachable", err)
}

// logFailure logs the error of a request if it differs from that of the one before.
func (k *KindChecker) logFailure(before, now error) {
	if before == nil || before.Error() != now.Error() {
		k.Log.Info("Failed to read which kinds the API server serves", "group", k.group.String(), "error", now.Error())
	}
}

// lastAnswer returns what the last answer of the API server means. Before the first one, it returns
// ErrKindsUnknown with the error of the last request.
func (k *KindChecker) lastAnswer() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if errors.Is(k.err, ErrKindsUnknown) && k.requestErr != nil {
		return fmt.Errorf("%w: %w", k.err, k.requestErr)
	}
	return k.err
}

// readKinds reads the kinds of the group.
func (k *KindChecker) readKinds(ctx context.Context) (*metav1.APIResourceList, error) {
	list := &metav1.APIResourceList{}
	err := k.client.Get().AbsPath("/apis", k.group.Group, k.group.Version).Do(ctx).Into(list)
	return list, err
}

// checkKinds returns an error that names the kinds that are not in the list, or are being deleted: then the
// API server accepts no new object of the kind.
func checkKinds(group schema.GroupVersion, kinds []string, manifests string, list *metav1.APIResourceList) error {
	var missing, deleted []string
	for _, kind := range kinds {
		i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool {
			return r.Kind == kind && !strings.Contains(r.Name, "/")
		})
		switch {
		case i < 0:
			missing = append(missing, kind)
		case !slices.Contains(list.APIResources[i].Verbs, "create"):
			deleted = append(deleted, kind)
		}
	}
	var errs []error
	if len(missing) > 0 {
		errs = append(errs, fmt.Errorf("the API server must serve the kinds %s of %s: apply the CustomResourceDefinitions in %s",
			strings.Join(missing, ", "), group, manifests))
	}
	if len(deleted) > 0 {
		errs = append(errs, fmt.Errorf("the CustomResourceDefinitions of %s of %s must not be in deletion, which ends when no object of the kinds is left: "+
			"look for finalizers of these objects, and then apply %s again", strings.Join(deleted, ", "), group, manifests))
	}
	return errors.Join(errs...)
}

// ConfirmMissing asks the API server whether it serves a kind of the group, and returns true if it answers
// that it does not. On error it is unknown. One missing answer of another server, such as a proxy's 404, is
// no proof: the API server lists its groups. An answer may be confirmedAge old.
func (k *KindChecker) ConfirmMissing(ctx context.Context, kind string) (bool, error) {
	if served := k.recentlyConfirmed(); served != nil {
		return !served[kind], nil
	}
	served, err := k.listKinds(ctx)
	if err != nil {
		return false, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.confirmed, k.confirmedAt = served, time.Now()
	return !served[kind], nil
}

// recentlyConfirmed returns the kinds that ConfirmMissing read last, and nil if that is too long ago.
func (k *KindChecker) recentlyConfirmed() map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.confirmedAt) >= confirmedAge {
		return nil
	}
	return k.confirmed
}

// listKinds returns the kinds of the group that the API server serves.
func (k *KindChecker) listKinds(ctx context.Context) (map[string]bool, error) {
	groups := &metav1.APIGroupList{}
	if err := k.client.Get().AbsPath("/apis").Do(ctx).Into(groups); err != nil {
		return nil, fmt.Errorf("list API groups: %w", err)
	}
	if len(groups.Groups) == 0 {
		return nil, errors.New("list API groups: the API server lists none")
	}
	served := map[string]bool{}
	if !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == k.group.Group }) {
		return served, nil
	}
	list, err := k.readKinds(ctx)
	if err != nil {
		return nil, fmt.Errorf("list kinds of %s: %w", k.group, err)
	}
	for _, r := range list.APIResources {
		served[r.Kind] = true
	}
	return served, nil
}
