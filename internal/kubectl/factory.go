// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/kube"
)

// fieldOwner is the plugin's field manager in managedFields.
const fieldOwner = "kubectl-patchbay"

// factory has what all verbs share: the streams that they print to, and kubectl's flags and
// kubeconfig files, from which it makes clients.
type factory struct {
	genericiooptions.IOStreams

	config *genericclioptions.ConfigFlags
	// username and password are not in config: with a password flag of its own it prompts for
	// credentials.
	username, password string
}

func newFactory(streams genericiooptions.IOStreams) *factory {
	f := &factory{IOStreams: streams}
	f.config = genericclioptions.NewConfigFlags(true).WithWarningPrinter(streams).WithWrapConfigFn(f.withBasicAuth)
	return f
}

func (f *factory) withBasicAuth(cfg *rest.Config) *rest.Config {
	if f.username != "" || f.password != "" {
		cfg.Username, cfg.Password = f.username, f.password
	}
	return cfg
}

// addFlags adds kubectl's flags to a command and those below it.
func (f *factory) addFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	f.config.AddFlags(flags)
	flags.StringVar(&f.username, "username", "", "Username for basic authentication to the API server")
	flags.StringVar(&f.password, "password", "", "Password for basic authentication to the API server")
}

// restConfig returns the address and the credentials of the API server.
func (f *factory) restConfig() (*rest.Config, error) {
	cfg, err := f.config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return cfg, nil
}

// namespace returns the namespace of the flag --namespace or of the kubeconfig's context.
func (f *factory) namespace() (string, error) {
	name, _, err := f.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("read namespace of the kubeconfig: %w", err)
	}
	return name, nil
}

// namespaceFlag returns the value of the flag --namespace, which may be empty.
func (f *factory) namespaceFlag() string { return *f.config.Namespace }

// forCluster returns a factory for the API server of a workload cluster, beside the hub's. The context is that
// of a kubeconfig file, or of the hub's if file is empty.
func (f *factory) forCluster(file, context string) *factory {
	c := newFactory(f.IOStreams)
	*c.config.KubeConfig = cmp.Or(file, *f.config.KubeConfig)
	*c.config.Context = context
	*c.config.CacheDir = *f.config.CacheDir
	return c
}

// networkClient returns a client of the network kinds, and the user's namespace.
func (f *factory) networkClient() (client.Client, string, error) {
	cfg, err := f.restConfig()
	if err != nil {
		return nil, "", err
	}
	namespace, err := f.namespace()
	if err != nil {
		return nil, "", err
	}
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, "", err
	}
	cfg.QPS = -1 // a client that throttles itself would exceed a verb's deadline
	c, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: kube.NewMapper()})
	if err != nil {
		return nil, "", fmt.Errorf("create client: %w", err)
	}
	return c, namespace, nil
}

// placementClient returns a client that knows the placement kinds and discovers all others, and
// the configuration by which it reaches the API server.
func (f *factory) placementClient() (client.WithWatch, *rest.Config, error) {
	cfg, err := f.restConfig()
	if err != nil {
		return nil, nil, err
	}
	c, err := newPlacementClient(cfg)
	return c, cfg, err
}

// unthrottledPlacementClient returns a placement client without a rate limit of its own.
func (f *factory) unthrottledPlacementClient() (client.Client, error) {
	cfg, err := f.restConfig()
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	return newPlacementClient(cfg)
}

func newPlacementClient(cfg *rest.Config) (client.WithWatch, error) {
	scheme, err := newPlacementScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	return c, nil
}

// operatorClient returns a client that knows Installations and the network kinds.
func (f *factory) operatorClient() (client.Client, error) {
	cfg, err := f.restConfig()
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(appsv1.AddToScheme(scheme), operatorv1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	return c, nil
}

// newPlacementScheme returns a scheme of the kinds that the placement verbs read and write by type.
func newPlacementScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	return scheme, nil
}
