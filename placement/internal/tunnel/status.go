// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bufio"
	"encoding/json"
	"net"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WriteStatus answers with an error as API servers do, so that kubectl prints its message.
func WriteStatus(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.ErrStatus
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	data, encodeErr := json.Marshal(status)
	if encodeErr != nil {
		http.Error(w, encodeErr.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(data)
}

// Recorder remembers the code of an answer, for the log.
type Recorder struct {
	http.ResponseWriter

	// Code is the answer's code; 101 for an upgraded connection, 0 when there was no answer.
	Code int
}

// WriteHeader implements http.ResponseWriter. It ignores interim answers: after one the request may still fail, and 101
// is only for Hijack.
func (r *Recorder) WriteHeader(code int) {
	if code < http.StatusOK {
		return
	}
	r.Code = code
	r.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (r *Recorder) Write(p []byte) (int, error) {
	if r.Code == 0 {
		r.Code = http.StatusOK
	}
	return r.ResponseWriter.Write(p)
}

// Hijack implements http.Hijacker.
func (r *Recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil {
		r.Code = http.StatusSwitchingProtocols
	}
	return conn, buffered, err
}

// Unwrap returns the writer below, for http.ResponseController.
func (r *Recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
