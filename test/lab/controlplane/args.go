// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"net"
	"strconv"
)

func (c Config) etcdArgs() []string {
	const unusedPeer = "http://localhost:2380" // a single member talks to nobody, but must advertise something
	args := []string{
		"--name=lab",
		"--data-dir=" + c.path(etcdData),
		"--listen-client-urls=unix://" + etcdSocket, // relative to the working folder
		"--advertise-client-urls=unix://" + etcdSocket,
		"--listen-peer-urls=unix://" + peerSocket,
		"--initial-advertise-peer-urls=" + unusedPeer,
		"--initial-cluster=lab=" + unusedPeer,
		"--logger=zap",
		"--log-level=warn",
	}
	if !c.Durable {
		args = append(args, "--unsafe-no-fsync")
	}
	return args
}

func (c Config) etcdURL() string {
	if c.Etcd != "" {
		return c.Etcd
	}
	return "unix://" + c.path(etcdSocket)
}

func (c Config) url() string {
	return "https://" + net.JoinHostPort(c.Address.String(), strconv.Itoa(int(c.Port)))
}

func (c Config) apiServerArgs() []string {
	args := []string{
		"--etcd-servers=" + c.etcdURL(),
		"--etcd-prefix=" + c.EtcdPrefix,
		"--bind-address=" + c.Address.String(),
		"--advertise-address=" + c.Address.String(),
		"--secure-port=" + strconv.Itoa(int(c.Port)),
		"--tls-cert-file=" + c.path(servingName+".crt"),
		"--tls-private-key-file=" + c.path(servingName+".key"),
		"--client-ca-file=" + c.path(caName+".crt"),
		"--token-auth-file=" + c.path(tokenFile),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.path(accountKey),
		"--service-account-signing-key-file=" + c.path(accountKey),
		"--service-cluster-ip-range=" + c.ServiceCIDR.String(),
		"--kubelet-client-certificate=" + c.path(kubeletName+".crt"),
		"--kubelet-client-key=" + c.path(kubeletName+".key"),
		"--kubelet-preferred-address-types=InternalIP",
		// Webhooks are called at their endpoints: nothing serves cluster IPs here.
		"--enable-aggregator-routing=true",
	}
	if c.Address.IsLoopback() {
		// Endpoints of the Service "kubernetes" may not be loopback addresses.
		args = append(args, "--endpoint-reconciler-type=none")
	}
	if !c.ControllerManager {
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	return args
}

func (c Config) controllerManagerArgs() []string {
	args := []string{
		"--kubeconfig=" + c.path(ControllerManager.kubeconfig()),
		"--secure-port=0",
		"--leader-elect=false",
		"--kube-api-qps=500", // throttled to the default of 20 it takes 8 s to be ready instead of 4
		"--kube-api-burst=1000",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.path(accountKey),
		"--root-ca-file=" + c.path(caName+".crt"),
		"--cluster-signing-cert-file=" + c.path(caName+".crt"),
		"--cluster-signing-key-file=" + c.path(caName+".key"),
	}
	if c.PodCIDR.IsValid() {
		args = append(args, "--allocate-node-cidrs=true", "--cluster-cidr="+c.PodCIDR.String())
	}
	return args
}

func (c Config) schedulerArgs() []string {
	return []string{
		"--kubeconfig=" + c.path(Scheduler.kubeconfig()),
		"--secure-port=0",
		"--leader-elect=false",
	}
}
