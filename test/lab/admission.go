// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrNoAdmission says that the API server could not ask patchbay-controller.
var ErrNoAdmission = errors.New("admission does not answer")

// probe is a network that nobody gets: it is created as a dry run.
const probe = `{"apiVersion": "danm.io/v1", "kind": "ClusterNetwork", "metadata": {"name": "lab-probe"}, "spec": {"NetworkID": "probe", "NetworkType": "bridge"}}`

// awaitAdmission returns when a network could be created. The API server hears some
// time after the rollout whom to ask.
func (l *Lab) awaitAdmission(ctx context.Context) error {
	const patience, pause = 4 * time.Minute, 200 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, err := l.client()
	if err != nil {
		return err
	}
	for {
		err := client.CoreV1().RESTClient().Post().AbsPath("/apis/danm.io/v1/clusternetworks").Param("dryRun", "All").
			SetHeader("Content-Type", "application/json").Body([]byte(probe)).Do(ctx).Error()
		if err == nil || apierrors.IsAlreadyExists(err) {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("create a network as a dry run: %w: %w", ErrNoAdmission, err)
		}
	}
}
