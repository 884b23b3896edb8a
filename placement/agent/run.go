// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/internal/logging"
	"github.com/patchbay-cni/patchbay/internal/version"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/debugproxy"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/join"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/works"
)

// Run runs the agent until ctx ends. It logs to stderr.
func Run(ctx context.Context, args []string, _, stderr io.Writer) error {
	o, err := parseOptions(args, stderr)
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if o.version {
		_, err := fmt.Fprintln(stderr, version.String())
		return err
	}
	ctx, flush := logging.NewContext(ctx, o.debug, stderr)
	defer flush()
	logr.FromContextOrDiscard(ctx).Info("Starting", "version", version.String(), "cluster", o.cluster)
	local, err := app.RESTConfig(o.kubeconfig)
	if err != nil {
		return fmt.Errorf("read this cluster's address and credentials: %w", err)
	}
	local.UserAgent = userAgent()
	if !o.leaderElect {
		return runAgent(ctx, o, local)
	}
	return runAsLeader(ctx, o, local, func(ctx context.Context) error { return runAgent(ctx, o, local) })
}

// runAgent runs the agent while this process is the leader.
func runAgent(ctx context.Context, o *options, local *rest.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hub, upgrade, err := hubConfigs(ctx, o, local)
	if ctx.Err() != nil {
		return nil // stopped on request: an interrupted request is no error
	}
	if err != nil {
		return err
	}
	a, err := works.New(works.Config{
		Cluster: o.cluster, Hub: hub, Local: local, Identity: o.identity, Account: o.serviceAccount, Version: version.String(),
		Guard:        works.Guard{Namespace: o.namespace, Resources: o.allowedResources, PodSecurity: o.podSecurity},
		RefusedAfter: o.refusedAfter, HideRoom: !o.reportRoom,
	})
	if err != nil {
		return err
	}
	kinds, err := kindsCheck(ctx, hub, local)
	if err != nil {
		return err
	}
	health, err := app.ListenHealth(o.healthAddress, app.AllReady(kinds, readyCheck(a.Ready)))
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	if o.debugAccess {
		d, err := debugproxy.New(debugproxy.Config{Cluster: o.cluster, Hub: upgrade, Local: local, CheckPlaced: a.CheckDebug})
		if err != nil {
			return err
		}
		g.Go(func() error { return d.Run(ctx) })
	}
	g.Go(func() error { return health.Start(ctx) })
	g.Go(func() error { return a.Run(ctx) })
	return g.Wait()
}

// kindsCheck returns the part of /readyz that checks the kinds that the agent needs of both API servers.
func kindsCheck(ctx context.Context, hub, local *rest.Config) (func(context.Context) error, error) {
	const manifests = "deployments/placement/crds"
	own, err := app.NewKindChecker(local, v1alpha1.SchemeGroupVersion(), manifests, "AppliedWork")
	if err != nil {
		return nil, fmt.Errorf("check this cluster's kinds: %w", err)
	}
	theirs, err := app.NewKindChecker(hub, v1alpha1.SchemeGroupVersion(), manifests, "Cluster", "Work")
	if err != nil {
		return nil, fmt.Errorf("check the hub's kinds: %w", err)
	}
	own.Log, theirs.Log = logr.FromContextOrDiscard(ctx).WithValues("server", "cluster"), logr.FromContextOrDiscard(ctx).WithValues("server", "hub")
	return app.AllReady(
		func(ctx context.Context) error { return describe("this cluster", own.CheckKnown(ctx)) },
		func(ctx context.Context) error { return describe("the hub", theirs.CheckKnown(ctx)) },
	), nil
}

// describe adds the API server that an error is about.
func describe(where string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", where, err)
}

// readyCheck is the check behind /readyz: the agent has read the hub's Works.
func readyCheck(ready func() bool) func(context.Context) error {
	return func(context.Context) error {
		if !ready() {
			return errHubNotReached
		}
		return nil
	}
}

// errHubNotReached is why an agent is not ready.
var errHubNotReached = errors.New("the agent has not reached the hub since its start; it still repairs the objects of this cluster")

// hubConfigs returns the client configurations for the hub, with a certificate or a token that renews itself,
// or with the credential of the kubeconfig. The second one is for requests that upgrade their connection.
func hubConfigs(ctx context.Context, o *options, local *rest.Config) (hub, upgrade *rest.Config, err error) {
	hub, err = app.RESTConfig(o.hubKubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("flag --hub-kubeconfig: %w", err)
	}
	hub.UserAgent = userAgent()
	if err := join.AddAddresses(hub, o.hubAddresses); err != nil {
		return nil, nil, fmt.Errorf("flag --hub-address: %w", err)
	}
	if !o.join {
		return hub, join.UpgradeConfig(hub), nil
	}
	core, err := corev1client.NewForConfig(local)
	if err != nil {
		return nil, nil, fmt.Errorf("make this cluster's client: %w", err)
	}
	c := join.Config{Cluster: o.cluster, Hub: hub, Secrets: core.Secrets(o.namespace), Secret: o.certificateSecret}
	if o.tokenAuth {
		c.Secret = tokenSecretName
		tokens, err := join.NewTokenCredentials(ctx, c)
		if err != nil {
			return nil, nil, err
		}
		go tokens.Run(ctx)
		return tokens.RESTConfig(), tokens.UpgradeConfig(), nil
	}
	credentials, err := join.NewCertificateCredentials(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	credentials.Start()
	return credentials.RESTConfig(), credentials.UpgradeConfig(), nil
}

// tokenSecretName is the name of the Secret that stores the token (with --token-auth).
const tokenSecretName = "patchbay-agent-token"

func userAgent() string { return "patchbay-agent/" + version.String() }
