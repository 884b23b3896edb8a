// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/patchbay-cni/patchbay/internal/app"
)

// runKubectl runs the user's own kubectl in a namespace of a cluster, so that all its flags work. It returns when
// kubectl has ended, with kubectl's exit code.
func runKubectl(ctx context.Context, f *factory, cluster, namespace string, args ...string) error {
	bin, err := exec.LookPath("kubectl")
	if err != nil {
		return fmt.Errorf("find kubectl: it must be in a folder of PATH: %w", err)
	}
	config, err := clusterKubeconfig(f, cluster, namespace)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 4)
	// From here on no signal ends this program before it has removed the file, which has credentials.
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	dir, err := os.MkdirTemp("", "kubectl-patchbay-")
	if err != nil {
		return fmt.Errorf("make folder for the kubeconfig of kubectl: %w", err)
	}
	file := filepath.Join(dir, "config")
	err = clientcmd.WriteToFile(*config, file) // with mode 0600, in a folder with mode 0700
	if err == nil {
		err = awaitKubectl(ctx, f.IOStreams, signals, bin, append([]string{"--kubeconfig=" + file}, args...))
	}
	return errors.Join(err, os.RemoveAll(dir)) // Main finds kubectl's exit code in it
}

// awaitKubectl starts kubectl, passes signals on to it, and returns when it has ended.
func awaitKubectl(ctx context.Context, streams genericiooptions.IOStreams, signals <-chan os.Signal, bin string, args []string) error {
	cmd := exec.Command(bin, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = streams.In, streams.Out, streams.ErrOut
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", bin, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	done := ctx.Done()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s)
		case <-done: // also after a signal, which kubectl may get twice
			done = nil
			_ = cmd.Process.Signal(os.Interrupt)
		case err := <-ended:
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				return app.Exited(exitCode(exit)) // kubectl has said why
			}
			if err != nil {
				return fmt.Errorf("run kubectl: %w", err)
			}
			return nil
		}
	}
}

// exitCode returns the exit code of a program as a shell does: for a signal it is 128 and its number.
func exitCode(exit *exec.ExitError) int {
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}

// clusterKubeconfig returns a kubeconfig for a namespace of a cluster, with the address, the credentials and the flags by
// which this command reaches the hub.
func clusterKubeconfig(f *factory, cluster, namespace string) (*clientcmdapi.Config, error) {
	hub, err := f.restConfig()
	if err != nil {
		return nil, err
	}
	raw, err := f.config.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	if *f.config.Context != "" {
		raw.CurrentContext = *f.config.Context
	}
	server := clientcmdapi.NewCluster()
	if in, ok := raw.Contexts[raw.CurrentContext]; ok && raw.Clusters[in.Cluster] != nil {
		server = raw.Clusters[in.Cluster].DeepCopy() // it may have a proxy, and extensions for a credential plugin
	}
	address, _, err := rest.DefaultServerUrlFor(hub)
	if err != nil {
		return nil, fmt.Errorf("read the hub's address: %w", err)
	}
	server.Server = address.JoinPath(clusterPath(namespace, cluster)).String()
	server.TLSServerName, server.InsecureSkipTLSVerify, server.DisableCompression = hub.ServerName, hub.Insecure, hub.DisableCompression
	server.CertificateAuthority, server.CertificateAuthorityData = hub.CAFile, hub.CAData
	user := clientcmdapi.NewAuthInfo()
	user.ClientCertificate, user.ClientCertificateData = hub.CertFile, hub.CertData
	user.ClientKey, user.ClientKeyData = hub.KeyFile, hub.KeyData
	user.Token, user.TokenFile = hub.BearerToken, hub.BearerTokenFile
	if user.TokenFile != "" {
		user.Token = "" // the file is renewed
	}
	user.Username, user.Password = hub.Username, hub.Password
	user.Impersonate, user.ImpersonateUID = hub.Impersonate.UserName, hub.Impersonate.UID
	user.ImpersonateGroups, user.ImpersonateUserExtra = hub.Impersonate.Groups, hub.Impersonate.Extra
	user.Exec, user.AuthProvider = hub.ExecProvider, hub.AuthProvider
	config := clientcmdapi.NewConfig()
	name := "hub/" + cluster
	config.Clusters[name], config.AuthInfos[name] = server, user
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	config.CurrentContext = name
	return config, nil
}
