// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
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
)

// Times of a KindChecker.
const (
	// servedInterval and missingInterval are how old the last answer of the API server may be, if it serves
	// all kinds and if it does not. Every node asks.
	servedInterval, missingInterval = 15 * time.Second, 2 * time.Second
	// kindsTimeout bounds one request.
	kindsTimeout = 10 * time.Second
)

// ErrKindsUnknown means that the API server has not answered yet which kinds it serves.
var ErrKindsUnknown = errors.New("it is not known yet which kinds the API server serves: check that the API server is reachable")

// KindChecker checks whether the API server serves the kinds of a group that a program needs. It needs no
// right, because every account may read which kinds there are.
type KindChecker struct {
	// Log, which may be the zero value, gets a message when the answer changes: kubelet's Events have only the
	// status code of /readyz.
	Log logr.Logger

	client    rest.Interface
	group     schema.GroupVersion
	kinds     []string
	manifests string

	mu sync.Mutex // guards the fields below
	// err is what Check returns.
	err error
	// readAt is when the last request has ended.
	readAt time.Time
	// reading is closed when the request in progress has ended; nil if there is none.
	reading chan struct{}
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
// being deleted. It asks again if the last answer is old, and waits for the new one until ctx ends. While
// the API server does not answer, the last answer counts; before the first one, Check returns
// ErrKindsUnknown.
func (k *KindChecker) Check(ctx context.Context) error {
	if reading := k.refresh(ctx); reading != nil {
		select {
		case <-reading:
		case <-ctx.Done():
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// CheckKnown is Check for a program that has another reason not to be ready before the API server's first
// answer: it returns nil then.
func (k *KindChecker) CheckKnown(ctx context.Context) error {
	if err := k.Check(ctx); !errors.Is(err, ErrKindsUnknown) {
		return err
	}
	return nil
}

// refresh starts a request if the last answer is old. It returns a channel that is closed when the request
// in progress has ended, and nil without one. The request goes on when ctx ends, for the next Check.
func (k *KindChecker) refresh(ctx context.Context) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	interval := missingInterval
	if k.err == nil {
		interval = servedInterval
	}
	if k.reading == nil && time.Since(k.readAt) >= interval {
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
		k.err = checkKinds(k.group, k.kinds, k.manifests, list)
		k.logChange(before, k.err)
	}
	k.readAt, k.reading = time.Now(), nil
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
// no proof: the API server lists its groups.
func (k *KindChecker) ConfirmMissing(ctx context.Context, kind string) (bool, error) {
	groups := &metav1.APIGroupList{}
	if err := k.client.Get().AbsPath("/apis").Do(ctx).Into(groups); err != nil {
		return false, fmt.Errorf("list API groups: %w", err)
	}
	if len(groups.Groups) == 0 {
		return false, errors.New("list API groups: the API server lists none")
	}
	if !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == k.group.Group }) {
		return true, nil
	}
	list, err := k.readKinds(ctx)
	if err != nil {
		return false, fmt.Errorf("list kinds of %s: %w", k.group, err)
	}
	return !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind }), nil
}
