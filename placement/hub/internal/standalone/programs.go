// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"os/exec"
	"path/filepath"
	"strconv"
)

// Sockets of etcd in DataDir, the working folder of the programs, which keeps the path short. etcd requires
// the form host:port, and uses all of it as the file name.
const (
	etcdSocket     = "etcd.sock:0"
	etcdPeerSocket = "peer.sock:0"
)

// program is a program with its arguments.
type program struct {
	name string
	args []string
}

// programs returns all programs, in the order of their start.
func programs(c Config) []program {
	return []program{etcdProgram(etcdDir), apiServerProgram(c), controllerManagerProgram()}
}

// etcdProgram returns etcd with its data in a folder of DataDir.
func etcdProgram(folder string) program {
	const socket = "unix://" + etcdSocket
	return program{"etcd", []string{
		"--name=hub", "--data-dir=" + folder, "--logger=zap", "--log-level=warn",
		"--listen-client-urls=" + socket, "--advertise-client-urls=" + socket,
		"--listen-peer-urls=unix://" + etcdPeerSocket, "--initial-advertise-peer-urls=http://localhost:2380",
		"--initial-cluster=hub=http://localhost:2380",
	}}
}

// apiServerProgram returns kube-apiserver. It must start when etcd answers, because it gives up after 20
// seconds.
func apiServerProgram(c Config) program {
	return program{"kube-apiserver", []string{
		"--etcd-servers=unix://" + etcdSocket,
		"--bind-address=" + c.listenAddress().String(), "--advertise-address=" + c.Address.String(),
		"--secure-port=" + strconv.Itoa(c.Port),
		"--endpoint-reconciler-type=none", // no client uses the Service "kubernetes"
		"--tls-cert-file=server.crt", "--tls-private-key-file=server.key", "--client-ca-file=ca.crt",
		"--authorization-mode=RBAC", "--enable-bootstrap-token-auth=true",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=accounts.key", "--service-account-signing-key-file=accounts.key",
		"--service-cluster-ip-range=10.96.0.0/16", "--allow-privileged=true",
		"--requestheader-client-ca-file=front-proxy-ca.crt", "--requestheader-allowed-names=" + frontProxyName,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=front-proxy.crt", "--proxy-client-key-file=front-proxy.key",
		// Pods are for clusters, which have ServiceAccounts and nodes of their own.
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,DefaultTolerationSeconds",
	}}
}

// enabledControllers are the controllers that run no workloads.
const enabledControllers = "namespace-controller,garbage-collector-controller,serviceaccount-controller,serviceaccount-token-controller," +
	"ttl-after-finished-controller,bootstrap-signer-controller,token-cleaner-controller,root-ca-certificate-publisher-controller," +
	"certificatesigningrequest-cleaner-controller,certificatesigningrequest-signing-controller,clusterrole-aggregation-controller," +
	"persistentvolumeclaim-protection-controller"

// controllerManagerProgram returns kube-controller-manager. It must start when the API server answers.
func controllerManagerProgram() program {
	return program{"kube-controller-manager", []string{
		"--kubeconfig=admin.kubeconfig", "--controllers=" + enabledControllers, "--leader-elect=false", "--secure-port=0",
		"--service-account-private-key-file=accounts.key", "--root-ca-file=ca.crt",
		"--cluster-signing-cert-file=ca.crt", "--cluster-signing-key-file=ca.key",
		"--kube-api-qps=200", "--kube-api-burst=400",
	}}
}

// findBinary returns the path of a program in dir or in the PATH.
func findBinary(dir, name string) (string, error) {
	if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
		return filepath.Abs(path)
	}
	return exec.LookPath(name)
}
