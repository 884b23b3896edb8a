// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/deployments/placement"
	"github.com/patchbay-cni/patchbay/internal/invite"
	"github.com/patchbay-cni/patchbay/internal/version"
)

// Names in the agent's manifests.
const (
	agentNamespace        = "patchbay-system"
	hubSecretName         = "patchbay-agent-hub"
	certificateSecretName = "patchbay-agent-certificate"
	tokenSecretName       = "patchbay-agent-token"
)

// joinOptions are the argument and the flags of `cluster join`.
type joinOptions struct {
	cluster, hub, token string // hub has one or several comma-separated addresses
	ca                  string // base64 of PEM
	proxy, image        string
	tokenAuth, force    bool
	debugAccess         bool
}

// newJoin is the verb `cluster join`.
func newJoin(f *factory) *cobra.Command {
	j := &joinOptions{}
	cmd := &cobra.Command{
		Use:   "join NAME",
		Short: "Install the agent in this cluster, which then joins a hub",
		Long: "Installs patchbay-agent in the cluster of the kubeconfig. `kubectl patchbay hub token` at the hub prints\n" +
			"the values of the flags. The agent connects to the hub; the hub never connects to the agent. It is safe to\n" +
			"repeat this command.",
		Example: "  kubectl --context=east patchbay cluster join east --hub=https://hub.example.com:6443 --join-token=... --ca=...",
		Args:    exactlyOneArgument(clusterArgument),
		RunE: func(cmd *cobra.Command, args []string) error {
			j.cluster = args[0]
			if err := j.validate(); err != nil {
				return err
			}
			c, _, err := f.placementClient()
			if err != nil {
				return err
			}
			if err := j.install(cmd.Context(), c); err != nil {
				return err
			}
			_, err = fmt.Fprintf(f.Out, "the agent is installed and asks to join as %s\n", j.cluster)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&j.hub, "hub", "", "the hub's address, such as https://hub.example.com:6443, or several comma-separated addresses")
	flags.StringVar(&j.token, "join-token", "", "the join token")
	flags.StringVar(&j.ca, "ca", "", "the hub's certificate authority, base64 of PEM; default: the certificate authorities in the agent's image")
	flags.StringVar(&j.proxy, "proxy", "", "the proxy by which the agent reaches the hub, such as http://user:password@proxy.example:3128")
	flags.BoolVar(&j.tokenAuth, "token-auth", false, "the agent uses short-lived tokens, not a certificate, because a load balancer in front of the hub terminates TLS")
	flags.BoolVar(&j.debugAccess, "debug-access", false, "let people at the hub read, and exec into, what the hub has placed here, as far as the cluster's RBAC\n"+
		"allows it to the users patchbay:NAME; the agent gets the right to impersonate users")
	flags.StringVar(&j.image, "image", version.Image("patchbay-agent"), "the agent's image")
	flags.BoolVar(&j.force, "force", false, "replace an installed agent of another cluster name or hub")
	return cmd
}

// validate returns all errors of the argument and the flags.
func (j *joinOptions) validate() error {
	errs := []error{invite.ValidateClusterName(j.cluster)}
	for _, address := range j.hubAddresses() {
		if u, err := url.Parse(address); err != nil || u.Scheme != "https" || u.Host == "" {
			errs = append(errs, fmt.Errorf("flag --hub: must be an address such as https://hub.example.com:6443: got %q", address))
		}
	}
	if !tokenForm.MatchString(j.token) {
		errs = append(errs, errors.New("flag --join-token: must be a token that `kubectl patchbay hub token` prints, such as abcdef.0123456789abcdef"))
	}
	if _, err := j.caPEM(); err != nil {
		errs = append(errs, err)
	}
	if u, err := url.Parse(j.proxy); err != nil || j.proxy != "" && u.Host == "" {
		errs = append(errs, errors.New("flag --proxy: must be an address such as http://proxy.example:3128"))
	}
	if j.image == "" {
		errs = append(errs, errors.New("flag --image: must be the agent's image"))
	}
	return errors.Join(errs...)
}

// tokenForm is the form of a bootstrap token.
var tokenForm = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

// hubAddresses returns the hub's addresses, in the order in which the agent tries them.
func (j *joinOptions) hubAddresses() []string { return strings.Split(j.hub, ",") }

// caPEM returns the certificate authority as PEM.
func (j *joinOptions) caPEM() ([]byte, error) {
	ca, err := base64.StdEncoding.DecodeString(j.ca)
	if err != nil {
		return nil, fmt.Errorf("flag --ca: must be base64: %w", err)
	}
	return ca, nil
}

// install applies the agent's manifests and the Secret with the hub's kubeconfig.
func (j *joinOptions) install(ctx context.Context, c client.Client) error {
	if err := j.checkExistingAgent(ctx, c); err != nil {
		return err
	}
	objects, err := j.manifests()
	if err != nil {
		return err
	}
	if !j.debugAccess {
		if err := removeDebugAccess(ctx, c); err != nil {
			return err
		}
	}
	for _, o := range objects {
		apply := client.ApplyConfigurationFromUnstructured(o)
		if err := c.Apply(ctx, apply, client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// removeDebugAccess deletes the rights that an earlier join with --debug-access gave the agent.
func removeDebugAccess(ctx context.Context, c client.Client) error {
	objects, err := debugManifests()
	if err != nil {
		return err
	}
	for _, o := range slices.Backward(objects) {
		if err := c.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// checkExistingAgent returns an error if an agent of another hub or cluster name is installed. With
// force it deletes that agent's credentials instead.
func (j *joinOptions) checkExistingAgent(ctx context.Context, c client.Client) error {
	if j.force {
		return deleteCredentials(ctx, c)
	}
	secret := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: agentNamespace, Name: hubSecretName}, secret); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		return fmt.Errorf("get Secret %s/%s: %w", agentNamespace, hubSecretName, err)
	}
	was, err := clientcmd.Load(secret.Data["kubeconfig"])
	if err != nil {
		return fmt.Errorf("read the kubeconfig in Secret %s/%s (use --force to replace it): %w", agentNamespace, hubSecretName, err)
	}
	for name, cluster := range was.Clusters {
		if name != j.cluster || !slices.Contains(j.hubAddresses(), cluster.Server) {
			return fmt.Errorf("this cluster is %s of the hub %s already: use --force to move its agent to the new name and hub", name, cluster.Server)
		}
	}
	return nil
}

// deleteCredentials deletes the Secrets with which the agent authenticates itself at its hub.
func deleteCredentials(ctx context.Context, c client.Client) error {
	for _, name := range []string{certificateSecretName, tokenSecretName} {
		old := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace, Name: name}}
		if err := c.Delete(ctx, old); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Secret %s/%s: %w", agentNamespace, name, err)
		}
	}
	return nil
}

// manifests returns the objects in the order in which they are applied. The Deployment is last.
func (j *joinOptions) manifests() ([]*unstructured.Unstructured, error) {
	secret, err := j.hubSecret()
	if err != nil {
		return nil, err
	}
	objects, err := agentManifests()
	if err != nil {
		return nil, err
	}
	last := objects[len(objects)-1]
	if err := j.configureDeployment(last); err != nil {
		return nil, err
	}
	objects = objects[:len(objects)-1]
	if j.debugAccess {
		debug, err := debugManifests()
		if err != nil {
			return nil, err
		}
		objects = append(objects, debug...)
	}
	return append(objects, secret, last), nil
}

// hubSecret returns the Secret with the kubeconfig of the hub.
func (j *joinOptions) hubSecret() (*unstructured.Unstructured, error) {
	ca, err := j.caPEM()
	if err != nil {
		return nil, err
	}
	raw, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{j.cluster: {Server: j.hubAddresses()[0], CertificateAuthorityData: ca, ProxyURL: j.proxy}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"join": {Token: j.token}},
		Contexts:       map[string]*clientcmdapi.Context{"hub": {Cluster: j.cluster, AuthInfo: "join"}},
		CurrentContext: "hub",
	})
	if err != nil {
		return nil, fmt.Errorf("write kubeconfig: %w", err)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"namespace": agentNamespace, "name": hubSecretName},
		"data":     map[string]any{"kubeconfig": base64.StdEncoding.EncodeToString(raw)},
	}}, nil
}

// configureDeployment sets the image, the cluster's name and the flags in the agent's Deployment.
func (j *joinOptions) configureDeployment(o *unstructured.Unstructured) error {
	containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 || o.GetKind() != "Deployment" {
		return fmt.Errorf("the last of the agent's manifests must be a Deployment with one container: got a %s with %d", o.GetKind(), len(containers))
	}
	agent, _ := containers[0].(map[string]any)
	env, _ := agent["env"].([]any)
	for _, e := range env {
		if e, ok := e.(map[string]any); ok && e["name"] == "CLUSTER" {
			e["value"] = j.cluster
		}
	}
	agent["image"] = j.image
	args, _ := agent["args"].([]any)
	for _, further := range j.hubAddresses()[1:] {
		args = append(args, "--hub-address="+further)
	}
	if j.tokenAuth {
		args = append(args, "--token-auth")
	}
	if j.debugAccess {
		args = append(args, "--debug-access")
	}
	agent["args"] = args
	if err := unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		return fmt.Errorf("set the agent's container: %w", err)
	}
	sum := sha256.Sum256([]byte(j.cluster + "\n" + j.hub + "\n" + j.ca + "\n" + j.proxy + "\n" + j.token))
	err = unstructured.SetNestedField(o.Object, hex.EncodeToString(sum[:8]), "spec", "template", "metadata", "annotations", joinHashAnnotation)
	if err != nil {
		return fmt.Errorf("annotate the agent's Pods: %w", err)
	}
	return nil
}

// joinHashAnnotation on the agent's Pods changes with the cluster's name, the hub and the join
// token, so that the Pods restart: an agent reads these only when it starts.
const joinHashAnnotation = "placement.patchbay.io/join-hash"

// agentManifests returns the objects of the agent's manifests.
func agentManifests() ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, name := range []string{
		"crds/placement.patchbay.io_appliedworks.yaml", "agent/namespace.yaml", "agent/serviceaccount.yaml", "agent/admission.yaml",
		"agent/rbac.yaml", "agent/deployment.yaml",
	} {
		found, err := readManifests(placement.Agent(), name)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

// debugManifests returns the rights of an agent with --debug-access.
func debugManifests() ([]*unstructured.Unstructured, error) {
	return readManifests(placement.Agent(), "agent-debug/rbac.yaml")
}

// readManifests reads the objects of a file.
func readManifests(files fs.FS, name string) ([]*unstructured.Unstructured, error) {
	raw, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	var objects []*unstructured.Unstructured
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), len(raw)); ; {
		o := &unstructured.Unstructured{}
		if err := d.Decode(o); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("read manifest %s: %w", name, err)
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}
