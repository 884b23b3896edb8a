// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package aggregate

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

// podTemplate is the Pod template of all workloads; its argument is the restart policy.
const podTemplate = `{metadata: {labels: {app: x}}, spec: {restartPolicy: %s, containers: [{name: x, image: x}]}}`

// makeObject creates an object from YAML and returns it as the API server stored it.
func makeObject(t *testing.T, env *apitest.Env, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	object.SetName(apitest.Name("x"))
	object.SetNamespace(env.Namespace(t))
	if err := env.Client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// report writes the status for the reports: the exact one of one cluster, the summary of several.
func report(t *testing.T, env *apitest.Env, object *unstructured.Unstructured, rows []Report, what string) {
	t.Helper()
	var status map[string]any
	var err error
	if len(rows) == 1 {
		status = TranslateStatus(object, rows[0])
	} else if status, err = SumStatuses(object, rows, time.Now()); err != nil {
		t.Fatal(err)
	}
	if status == nil {
		return
	}
	before, _ := yaml.Marshal(object.Object["status"])
	object.Object["status"] = status
	if err := env.Client.Status().Update(t.Context(), object); err != nil {
		after, _ := yaml.Marshal(status)
		t.Fatalf("%s: rejected: %v\nbefore\n%s\nafter\n%s", what, err, before, after)
	}
}

// simulatedJob is a Job in one cluster, with the statuses that the Job controller writes.
type simulatedJob struct {
	rnd               *rand.Rand
	start             time.Time
	completions, step int
	succeeded, failed int
	fails, finished   bool
}

// next returns the status at the next step: Pods start and end, then the Job announces its outcome, and
// finishes when no Pod is left.
func (j *simulatedJob) next() map[string]any {
	j.step++
	status := map[string]any{
		"startTime": stamp(j.start), "succeeded": int64(j.succeeded), "failed": int64(j.failed),
		"ready": int64(0), "terminating": int64(0),
	}
	if j.step == 1 {
		return map[string]any{} // created, and not reconciled yet
	}
	if j.succeeded < j.completions && (!j.fails || j.failed < 2) {
		active := 1 + j.rnd.IntN(2)
		status["active"], status["ready"] = int64(active), int64(j.rnd.IntN(active+1))
		status["uncountedTerminatedPods"] = map[string]any{"succeeded": []any{fmt.Sprint("pod-", j.step)}}
		j.succeeded += j.rnd.IntN(2)
		if j.fails {
			j.failed += j.rnd.IntN(2)
		}
		return status
	}
	ends, ended := jobSuccessCriteriaMet, jobComplete
	if j.fails && j.succeeded < j.completions {
		ends, ended = jobFailureTarget, jobFailed
	}
	now := stamp(j.start.Add(time.Duration(j.step) * time.Minute))
	condition := func(kind string) map[string]any {
		return map[string]any{"type": kind, "status": statusTrue, "reason": "Because", "lastProbeTime": now, "lastTransitionTime": now}
	}
	status["conditions"] = []any{condition(ends)}
	if !j.finished && j.rnd.IntN(2) == 0 {
		status["active"], status["terminating"] = int64(1), int64(1)
		return status
	}
	j.finished = true
	status["conditions"] = []any{condition(ends), condition(ended)}
	if ended == jobComplete {
		status["completionTime"] = now
	}
	return status
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// The API server rejects no status of a Job, whichever clusters it runs in, moves to and ends in, and in
// whatever order they report.
func TestNoStatusOfAJobIsRefused(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	for seed := range uint64(16) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		object := makeObject(t, env, fmt.Sprintf("apiVersion: batch/v1\nkind: Job\nspec: {completions: 6, parallelism: 4, template: %s}", fmt.Sprintf(podTemplate, "Never")))
		jobs, rows := []*simulatedJob{}, []Report{}
		start := time.Now().Add(-time.Hour)
		join := func() {
			jobs = append(jobs, &simulatedJob{
				rnd: rnd, start: start.Add(time.Duration(rnd.IntN(600)) * time.Second), completions: 1 + rnd.IntN(3), fails: rnd.IntN(4) == 0,
			})
			rows = append(rows, Report{Cluster: fmt.Sprint("c", len(jobs)), ObservedGeneration: 1, Generation: 1, Reachable: true})
		}
		for range 1 + rnd.IntN(3) {
			join()
		}
		for step := range 14 {
			if step == 6 && rnd.IntN(2) == 0 {
				join() // a move
				gone := rnd.IntN(len(rows) - 1)
				rows = append(rows[:gone], rows[gone+1:]...)
				jobs = append(jobs[:gone], jobs[gone+1:]...)
			}
			at := rnd.IntN(len(rows))
			rows[at].Status = jobs[at].next()
			report(t, env, object, rows, fmt.Sprintf("seed %d, step %d", seed, step))
		}
	}
}

// The API server rejects no status of a Deployment, StatefulSet, DaemonSet or ReplicaSet during rollouts
// and moves.
func TestNoStatusOfARolloutIsRefused(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	template := fmt.Sprintf(podTemplate, "Always")
	cases := map[string]struct{ reason, text string }{
		"Deployment":  {reason: "its status has a collision count", text: "apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: 6, selector: {matchLabels: {app: x}}, template: " + template + "}"},
		"StatefulSet": {reason: "its status has revisions", text: "apiVersion: apps/v1\nkind: StatefulSet\nspec: {replicas: 6, serviceName: x, selector: {matchLabels: {app: x}}, template: " + template + "}"},
		"DaemonSet":   {reason: "its status counts nodes", text: "apiVersion: apps/v1\nkind: DaemonSet\nspec: {selector: {matchLabels: {app: x}}, template: " + template + "}"},
		"ReplicaSet":  {reason: "its status has a failure condition", text: "apiVersion: apps/v1\nkind: ReplicaSet\nspec: {replicas: 6, selector: {matchLabels: {app: x}}, template: " + template + "}"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := makeObject(t, env, tc.text)
			rnd := rand.New(rand.NewPCG(7, 7))
			for step := range 40 {
				if step%20 == 10 { // a new generation
					patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"minReadySeconds":%d}}`, step))
					if err := env.Client.Patch(t.Context(), object, patch); err != nil {
						t.Fatal(err)
					}
				}
				rows := make([]Report, 1+rnd.IntN(3))
				for i := range rows {
					rows[i] = anyRow(rnd, object, i, rnd.Int64N(1+int64(step)/10)) // none at first
				}
				report(t, env, object, rows, fmt.Sprintf("%s: step %d", tc.reason, step))
			}
		})
	}
}

// anyRow returns a report with a random status that the API server of a cluster accepts.
func anyRow(rnd *rand.Rand, object *unstructured.Unstructured, i int, collisions int64) Report {
	total := rnd.Int64N(5)
	ready := rnd.Int64N(total + 1)
	available := rnd.Int64N(ready + 1)
	now := stamp(time.Now())
	status := map[string]any{
		"observedGeneration": int64(40), "collisionCount": collisions, "replicas": total, "readyReplicas": ready,
		"availableReplicas": available, "updatedReplicas": rnd.Int64N(total + 1),
		"conditions": []any{map[string]any{"type": "ReplicaFailure", "status": statusTrue, "reason": "Quota", "message": "full", "lastTransitionTime": now}},
	}
	switch object.GetKind() {
	case "StatefulSet":
		status["currentReplicas"], status["currentRevision"], status["updateRevision"] = total, "x-1", fmt.Sprint("x-", 1+rnd.IntN(2))
	case "DaemonSet":
		status = map[string]any{
			"observedGeneration": int64(40), "collisionCount": collisions, "currentNumberScheduled": total,
			"desiredNumberScheduled": total + 1, "numberMisscheduled": int64(0), "numberReady": ready, "numberAvailable": available,
			"updatedNumberScheduled": available, "numberUnavailable": total + 1 - available,
		}
	case "ReplicaSet":
		delete(status, "updatedReplicas")
		delete(status, "collisionCount")
		status["fullyLabeledReplicas"] = total
	}
	return Report{
		Cluster: fmt.Sprint("c", i), ObservedGeneration: object.GetGeneration() - rnd.Int64N(2), Generation: 40, Reachable: rnd.IntN(4) > 0, Status: status,
	}
}

// The API server rejects no status of a kind with addresses, volumes or schedules.
func TestNoStatusOfOtherKindsIsRefused(t *testing.T) {
	t.Parallel()
	pool := map[string]any{
		"family": "IPv4", "capacity": int64(254), "inUse": int64(3), "warm": int64(0), "cooldown": int64(0), "reserved": int64(2), "free": int64(251),
	}
	env := apitest.Start(t)
	cases := map[string]struct {
		reason, text string
		statuses     []map[string]any
	}{
		"Service": {
			reason: "two clusters have load balancer addresses", text: "apiVersion: v1\nkind: Service\nspec: {type: LoadBalancer, ports: [{port: 80}]}",
			statuses: []map[string]any{
				{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": "192.0.2.7", "ipMode": "VIP"}}}},
				{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"hostname": "x.example.com"}}}}, nil,
			},
		},
		"Ingress": {
			reason: "one cluster has a load balancer address", text: "apiVersion: networking.k8s.io/v1\nkind: Ingress\nspec: {defaultBackend: {service: {name: x, port: {number: 80}}}}",
			statuses: []map[string]any{{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": "192.0.2.7"}}}}, nil},
		},
		"Claim": {
			reason: "clusters have claims of different sizes", text: "apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}",
			statuses: []map[string]any{
				{"phase": "Bound", "accessModes": []any{"ReadWriteMany"}, "capacity": map[string]any{"storage": "2Gi"}},
				{"phase": "Pending"}, {"phase": "Bound", "capacity": map[string]any{"storage": "1Gi"}},
			},
		},
		"CronJob": {
			reason: "clusters have different times", text: "apiVersion: batch/v1\nkind: CronJob\nspec: {schedule: '* * * * *', jobTemplate: {spec: {template: " + fmt.Sprintf(podTemplate, "Never") + "}}}",
			statuses: []map[string]any{{"lastScheduleTime": stamp(time.Now())}, {"active": []any{map[string]any{"kind": "Job", "name": "x-1"}}}},
		},
		"Pod": {
			reason: "one cluster reports containers", text: "apiVersion: v1\nkind: Pod\nspec: {automountServiceAccountToken: false, serviceAccountName: default, containers: [{name: x, image: x}]}",
			statuses: []map[string]any{{"phase": "Running", "podIP": "10.0.0.7", "podIPs": []any{map[string]any{"ip": "10.0.0.7"}}, "hostIP": "192.0.2.1", "qosClass": "BestEffort", "containerStatuses": []any{map[string]any{
				"name": "x", "ready": true, "restartCount": int64(0), "image": "x", "imageID": "x", "state": map[string]any{"running": map[string]any{"startedAt": stamp(time.Now())}},
			}}}},
		},
		"Scaler": {
			reason: "clusters have different times and counts", text: "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nspec: {maxReplicas: 9, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: x}}",
			statuses: []map[string]any{
				{"currentReplicas": int64(3), "desiredReplicas": int64(4), "lastScaleTime": stamp(time.Now()), "observedGeneration": int64(1)},
				{"desiredReplicas": int64(1), "conditions": []any{map[string]any{"type": "ScalingLimited", "status": statusTrue, "lastTransitionTime": stamp(time.Now())}}}, nil,
			},
		},
		"Budget": {
			reason: "clusters have different counts", text: "apiVersion: policy/v1\nkind: PodDisruptionBudget\nspec: {minAvailable: 1, selector: {matchLabels: {app: x}}}",
			statuses: []map[string]any{
				{"currentHealthy": int64(3), "desiredHealthy": int64(2), "disruptionsAllowed": int64(1), "expectedPods": int64(3), "disruptedPods": map[string]any{"x-1": stamp(time.Now())}},
				{"currentHealthy": int64(0), "desiredHealthy": int64(2), "disruptionsAllowed": int64(0), "expectedPods": int64(3)}, nil,
			},
		},
		"Network": {
			reason: "it is a kind of DANM", text: "apiVersion: danm.io/v1\nkind: DanmNet\nspec: {NetworkID: lan, NetworkType: macvlan, Options: {host_device: ens4, cidr: 10.9.0.0/24}}",
			statuses: []map[string]any{
				{"pools": []any{pool}, "ipam": map[string]any{"v4": map[string]any{"cidr": "10.9.0.0/24"}}},
				{"pools": []any{pool}, "conditions": []any{map[string]any{"type": "Conflict", "status": statusFalse, "reason": "None", "message": "x", "lastTransitionTime": stamp(time.Now())}}},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := makeObject(t, env, tc.text)
			for n := 1; n <= len(tc.statuses); n++ {
				rows := make([]Report, n)
				for i := range rows {
					rows[i] = Report{Cluster: fmt.Sprint("c", i), ObservedGeneration: 1, Generation: 1, Ready: true, Reachable: true, Status: tc.statuses[i]}
				}
				report(t, env, object, rows, fmt.Sprintf("%s: %d clusters", tc.reason, n))
			}
		})
	}
}

// kubectl rollout status and kubectl wait work on summaries: they wait while one cluster is behind, and
// succeed when all clusters are done.
func TestKubectlWaits(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	now := stamp(time.Now())
	conditions := func(kind, status string) []any {
		return []any{map[string]any{"type": kind, "status": status, "reason": "Because", "lastTransitionTime": now, "lastProbeTime": now}}
	}
	workload := "spec: {replicas: 4, serviceName: x, selector: {matchLabels: {app: x}}, template: " + fmt.Sprintf(podTemplate, "Always") + "}"
	cases := map[string]struct {
		reason, text string
		busy, done   map[string]any // of each cluster: 2 of the 4
		rollout      bool
		condition    string
	}{
		"Deployment": {
			reason: "kubectl waits for the rollout and for the condition", text: "apiVersion: apps/v1\nkind: Deployment\n" + strings.Replace(workload, "serviceName: x, ", "", 1), rollout: true, condition: "Available",
			busy: map[string]any{"observedGeneration": int64(1), "replicas": int64(2), "updatedReplicas": int64(1), "conditions": conditions("Progressing", statusTrue)},
			done: map[string]any{"observedGeneration": int64(1), "replicas": int64(2), "updatedReplicas": int64(2), "readyReplicas": int64(2), "availableReplicas": int64(2), "conditions": conditions("Progressing", statusTrue)},
		},
		"StatefulSet": {
			reason: "its revisions are the same after the rollout", text: "apiVersion: apps/v1\nkind: StatefulSet\n" + workload, rollout: true,
			busy: map[string]any{"observedGeneration": int64(1), "replicas": int64(2), "readyReplicas": int64(2), "updatedReplicas": int64(1), "currentRevision": "x-1", "updateRevision": "x-2"},
			done: map[string]any{"observedGeneration": int64(1), "replicas": int64(2), "readyReplicas": int64(2), "updatedReplicas": int64(2), "currentRevision": "x-2", "updateRevision": "x-2"},
		},
		"DaemonSet": {
			reason: "the numbers of nodes add up", text: "apiVersion: apps/v1\nkind: DaemonSet\nspec: {selector: {matchLabels: {app: x}}, template: " + fmt.Sprintf(podTemplate, "Always") + "}", rollout: true,
			busy: map[string]any{"observedGeneration": int64(1), "currentNumberScheduled": int64(2), "desiredNumberScheduled": int64(2), "numberMisscheduled": int64(0), "numberReady": int64(1), "updatedNumberScheduled": int64(2), "numberAvailable": int64(1)},
			done: map[string]any{"observedGeneration": int64(1), "currentNumberScheduled": int64(2), "desiredNumberScheduled": int64(2), "numberMisscheduled": int64(0), "numberReady": int64(2), "updatedNumberScheduled": int64(2), "numberAvailable": int64(2)},
		},
		"Job": {
			reason: "it is complete when it is complete in all clusters", text: "apiVersion: batch/v1\nkind: Job\nspec: {completions: 2, template: " + fmt.Sprintf(podTemplate, "Never") + "}", condition: "Complete",
			busy: map[string]any{"startTime": now, "active": int64(1), "ready": int64(1), "terminating": int64(0)},
			done: map[string]any{
				"startTime": now, "completionTime": now, "succeeded": int64(1), "ready": int64(0), "terminating": int64(0),
				"conditions": append(conditions(jobSuccessCriteriaMet, statusTrue), conditions(jobComplete, statusTrue)...),
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := makeObject(t, env, tc.text)
			rows := make([]Report, 2)
			for i := range rows {
				rows[i] = Report{Cluster: fmt.Sprint("c", i), ObservedGeneration: object.GetGeneration(), Generation: 1, Ready: true, Reachable: true, Status: tc.done}
			}
			rows[1].Status = tc.busy
			target := []string{"-n", object.GetNamespace(), strings.ToLower(object.GetKind()) + "/" + object.GetName()}
			rollout := func(flag string) string {
				return env.Kubectl(t, append([]string{"rollout", "status", flag}, target...)...)
			}
			report(t, env, object, rows, "one is behind")
			if tc.rollout {
				if output := rollout("--watch=false"); !strings.Contains(output, "Waiting") {
					t.Errorf("%s: one cluster is behind, and kubectl printed: %s", tc.reason, output)
				}
			}
			if tc.condition != "" && isConditionTrue(statusOf(object), tc.condition) {
				t.Errorf("%s: %s is True while one cluster is behind", tc.reason, tc.condition)
			}
			rows[1].Status = tc.done
			report(t, env, object, rows, "all are done")
			// Both fail the test when they time out.
			if tc.rollout {
				rollout("--timeout=1m")
			}
			if tc.condition != "" {
				env.Kubectl(t, append([]string{"wait", "--timeout=1m", "--for=condition=" + tc.condition}, target...)...)
			}
		})
	}
}
