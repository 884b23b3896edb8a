// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/services/scene"
)

// profiler reads profiles of the controller.
type profiler struct {
	controller *scene.Controller
	scraper    *apitest.Scraper
}

// newProfiler creates an account that may read profiles, and waits until the controller accepts it.
func newProfiler(ctx context.Context, env *apitest.Env, c *scene.Controller) (*profiler, error) {
	meta := metav1.ObjectMeta{Namespace: scene.Namespace, Name: "profiler"}
	account := &corev1.ServiceAccount{ObjectMeta: meta}
	for _, o := range []client.Object{
		account,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: meta.Name}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/debug/pprof/*"}, Verbs: []string{"get"}}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: meta.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: meta.Namespace, Name: meta.Name}},
		},
	} {
		if err := env.Client.Create(ctx, o); err != nil {
			return nil, fmt.Errorf("create account for profiles: %w", err)
		}
	}
	scraper, err := env.ScraperOf(ctx, account)
	if err != nil {
		return nil, err
	}
	p := &profiler{controller: c, scraper: scraper}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for began := time.Now(); ; {
		_, err := p.read(ctx, "/debug/pprof/cmdline")
		if err == nil {
			return p, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("await the right to read profiles: %w", err)
		case <-time.After(apitest.Pause(began)):
		}
	}
}

var errNoProfile = errors.New("the controller does not serve the profile")

// read reads a path of the controller.
func (p *profiler) read(ctx context.Context, path string) (string, error) {
	text, status, err := p.controller.Scrape(ctx, p.scraper, path)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%w: status %d: %s", errNoProfile, status, text)
	}
	return text, err
}

// write writes a processor profile of some seconds to a file.
func (p *profiler) write(ctx context.Context, seconds int, file string) error {
	profile, err := p.read(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", seconds))
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(profile), 0o600); err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	return nil
}
