// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"errors"
	"testing"
	"time"
)

var errAccepted = errors.New("accepted")

// eventually polls until try succeeds; after 30 s the test fails with the last error.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s: %v", what, err)
		}
	}
}
