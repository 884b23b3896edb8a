// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
)

// pageKeys is how many keys are read from etcd at a time.
const pageKeys = 200

// Stored reads all that this API server has in etcd now, as it is stored there: what a backup
// has. It calls visit with each key and its value. The key is without the server's prefix:
// /secrets/<namespace>/<name>.
func (p *Plane) Stored(ctx context.Context, visit func(key string, value []byte)) error {
	socket := strings.TrimPrefix(p.Control.EtcdURL(), "unix://")
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	etcd := &http.Client{Transport: transport}
	prefix := p.Control.EtcdPrefix() + "/"
	for from := []byte(prefix); from != nil; {
		page, err := readPage(ctx, etcd, from, []byte(p.Control.EtcdPrefix()+"0")) // 0 comes after the slash
		if err != nil {
			return fmt.Errorf("read etcd at %s from %q on: %w", socket, from, err)
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

// etcdPage is what we read of etcd's answer to a range.
type etcdPage struct {
	KVs []struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	} `json:"kvs"`
	More bool `json:"more"`
}

// readPage reads keys from one on, up to end, by the JSON that etcd serves besides gRPC.
func readPage(ctx context.Context, etcd *http.Client, from, end []byte) (*etcdPage, error) {
	body, err := json.Marshal(map[string]any{"key": from, "range_end": end, "limit": pageKeys})
	if err != nil {
		return nil, fmt.Errorf("encode range: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd/v3/kv/range", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	response, err := etcd.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask for range: %w", err)
	}
	defer response.Body.Close()
	page := &etcdPage{}
	if err := json.NewDecoder(response.Body).Decode(page); err != nil {
		return nil, fmt.Errorf("decode answer with status %s: %w", response.Status, err)
	}
	if response.StatusCode != http.StatusOK || page.More && len(page.KVs) == 0 {
		return nil, fmt.Errorf("answer has status %s and %d keys", response.Status, len(page.KVs))
	}
	return page, nil
}
