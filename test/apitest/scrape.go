// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Scraper reads the metrics of programs as Prometheus does: over TLS, with the token of a
// ServiceAccount.
type Scraper struct {
	token  string
	client *http.Client
}

// Anonymous returns a scraper without a token.
func (s *Scraper) Anonymous() *Scraper { return &Scraper{client: s.client} }

// Get reads a path at the address of a program.
func (s *Scraper) Get(ctx context.Context, address, path string) (text string, status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+path, nil)
	if err != nil {
		return "", 0, fmt.Errorf("ask for %s: %w", path, err)
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return "", 0, fmt.Errorf("ask for %s: %w", path, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), res.StatusCode, err
}

// Metrics reads the metrics of the program at address.
func (s *Scraper) Metrics(ctx context.Context, address string) (string, error) {
	text, status, err := s.Get(ctx, address, "/metrics")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("read metrics: status %d: %s", status, text)
	}
	return text, err
}
