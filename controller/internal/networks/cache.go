// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"maps"
	"unique"

	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
)

// CacheByObject adds to others what this package needs of cached NodeNetworks, for cache.Options.
func CacheByObject(others map[client.Object]ctrlcache.ByObject) map[client.Object]ctrlcache.ByObject {
	all := map[client.Object]ctrlcache.ByObject{}
	maps.Copy(all, others)
	for obj := range all {
		if _, ok := obj.(*v1.NodeNetwork); ok {
			delete(all, obj)
		}
	}
	all[&v1.NodeNetwork{}] = ctrlcache.ByObject{Transform: slimNodeNetwork}
	return all
}

var _ cache.TransformFunc = slimNodeNetwork

// slimNodeNetwork keeps of a NodeNetwork, besides what kube.StripNodeNetwork keeps, which networks
// are up (as one link without a name), the errors of the others, and the delegates. All nodes report
// the same names and texts, which are therefore shared in memory.
func slimNodeNetwork(obj any) (any, error) {
	nn, ok := obj.(*v1.NodeNetwork)
	if !ok {
		return kube.StripUnusedFields(obj)
	}
	links, refused, delegates := nn.Status.Links, nn.Status.Refused, nn.Status.Delegates
	slimmed, err := kube.StripNodeNetwork(nn)
	if err != nil {
		return nil, err
	}
	nn.Status.Conditions, nn.Status.Version, nn.Status.KernelVersion = nil, "", ""
	up := v1.HostLink{State: v1.LinkUp}
	for i := range links {
		l := &links[i]
		for j := range l.Networks {
			l.Networks[j] = intern(l.Networks[j])
		}
		if l.State == v1.LinkUp {
			up.Networks = append(up.Networks, l.Networks...)
			continue
		}
		nn.Status.Links = append(nn.Status.Links, v1.HostLink{
			Name: intern(l.Name), State: intern(l.State), Error: intern(l.Error), Networks: l.Networks,
		})
	}
	nn.Status.Links = append(nn.Status.Links, up)
	for i := range refused {
		refused[i] = v1.RefusedNetwork{Network: intern(refused[i].Network), Error: intern(refused[i].Error)}
	}
	nn.Status.Refused = refused
	for i := range delegates {
		d := &delegates[i]
		d.NetworkType, d.NetworkID, d.Error = intern(d.NetworkType), intern(d.NetworkID), intern(d.Error)
	}
	nn.Status.Delegates = delegates
	return slimmed, nil
}

func intern(text string) string { return unique.Make(text).Value() }
