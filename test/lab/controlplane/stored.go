// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
)

// Limits of one request to etcd. Its default limit of operations in a transaction is 128.
const (
	pageKeys        = 200
	transactionKeys = 100
)

// errEtcd is the error of a request that etcd answers with an error.
var errEtcd = errors.New("etcd refused")

// Stored is what an API server has in etcd: the stored form of each object by its key, without the
// prefix of this API server: /secrets/<namespace>/<name>.
type Stored map[string][]byte

// Stored reads all that the API server has in etcd now.
func (c *ControlPlane) Stored(ctx context.Context) (Stored, error) {
	all := Stored{}
	err := c.WalkStored(ctx, func(key string, value []byte) { all[key] = value })
	return all, err
}

// WalkStored reads all that the API server has in etcd now, a page at a time, and calls visit with
// each key and its value: what a backup has.
func (c *ControlPlane) WalkStored(ctx context.Context, visit func(key string, value []byte)) error {
	etcd := c.etcdClient()
	defer etcd.CloseIdleConnections()
	prefix := c.EtcdPrefix() + "/"
	for from := []byte(prefix); from != nil; {
		page := &etcdPage{}
		end := []byte(c.EtcdPrefix() + "0") // 0 comes after the slash
		err := callEtcd(ctx, etcd, "range", map[string]any{"key": from, "range_end": end, "limit": pageKeys}, page)
		if err == nil && page.More && len(page.KVs) == 0 {
			err = fmt.Errorf("%w: a page without keys, and more after it", errEtcd)
		}
		if err != nil {
			return fmt.Errorf("read etcd at %s from %q on: %w", c.EtcdURL(), from, err)
		}
		for _, kv := range page.KVs {
			visit("/"+strings.TrimPrefix(string(kv.Key), prefix), kv.Value)
		}
		from = nil
		if page.More {
			from = slices.Concat(page.KVs[len(page.KVs)-1].Key, []byte{0})
		}
	}
	return nil
}

// Store writes values into etcd and removes keys there. The API server gets the changes by
// its watches of etcd, as it gets those of other API servers. Store returns the revision of etcd that has each change;
// a key that was removed before has none.
func (c *ControlPlane) Store(ctx context.Context, values Stored, remove []string) (revisions map[string]int64, err error) {
	etcd := c.etcdClient()
	defer etcd.CloseIdleConnections()
	revisions = map[string]int64{}
	keys := slices.Concat(slices.Collect(maps.Keys(values)), remove)
	for some := range slices.Chunk(keys, transactionKeys) {
		var operations []map[string]any
		for _, key := range some {
			operations = append(operations, operation(c.EtcdPrefix()+key, values[key]))
		}
		answer := &etcdAnswer{}
		if err := callEtcd(ctx, etcd, "txn", map[string]any{"success": operations}, answer); err != nil {
			return nil, fmt.Errorf("write to etcd at %s: %w", c.EtcdURL(), err)
		}
		if len(answer.Responses) != len(some) {
			return nil, fmt.Errorf("write to etcd at %s: %w: %d answers to %d operations", c.EtcdURL(), errEtcd, len(answer.Responses), len(some))
		}
		for i, key := range some {
			if removed := answer.Responses[i].DeleteRange; removed == nil || removed.Deleted > 0 {
				revisions[key] = answer.Header.Revision
			}
		}
	}
	return revisions, nil
}

// operation puts a value, or removes the key if there is none. Stored objects are never empty.
func operation(key string, value []byte) map[string]any {
	if len(value) == 0 {
		return map[string]any{"request_delete_range": map[string]any{"key": []byte(key)}}
	}
	return map[string]any{"request_put": map[string]any{"key": []byte(key), "value": value}}
}

func (c *ControlPlane) etcdClient() *http.Client {
	socket := strings.TrimPrefix(c.EtcdURL(), "unix://")
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
}

// callEtcd calls etcd's key-value service by the JSON that etcd serves besides gRPC.
func callEtcd(ctx context.Context, etcd *http.Client, method string, body, answer any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd/v3/kv/"+method, bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	response, err := etcd.Do(request)
	if err != nil {
		return fmt.Errorf("call: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: status %s", errEtcd, response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	return nil
}

// etcdPage is what we read of etcd's answer to a range.
type etcdPage struct {
	KVs []struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	} `json:"kvs"`
	More bool `json:"more"`
}

// etcdAnswer is what we read of etcd's answer to a transaction.
type etcdAnswer struct {
	Header struct {
		Revision int64 `json:"revision,string"`
	} `json:"header"`
	Responses []struct {
		DeleteRange *struct {
			Deleted int64 `json:"deleted,string"`
		} `json:"response_delete_range"`
	} `json:"responses"`
}
