// Records what cluster-autoscaler sends to a gRPC expander: a Node and a Pod as the Kubernetes release in go.mod encodes
// them, with fields that the service skips, and the same as JSON. Run: go run ./expander > ../http/expander.json
package main

import (
	"encoding/json"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func main() {
	then := metav1.NewTime(time.Unix(1_800_000_000, 0).UTC())
	meta := metav1.ObjectMeta{
		Name: "template", Namespace: "default", UID: "uid-w", ResourceVersion: "7", Generation: 3, CreationTimestamp: then,
		Labels:          map[string]string{"team": "ml", "empty": ""},
		Annotations:     map[string]string{"note": "skipped"},
		Finalizers:      []string{"example.com/one"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: "j", UID: "j", APIVersion: "batch/v1", Controller: ptr.To(true)}},
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "m", Time: &then, FieldsV1: &metav1.FieldsV1{Raw: []byte("{}")}}},
	}
	amounts := corev1.ResourceList{
		"cpu": resource.MustParse("7910m"), "memory": resource.MustParse("30Gi"), "pods": resource.MustParse("110"),
	}
	node := corev1.Node{
		ObjectMeta: meta,
		Spec: corev1.NodeSpec{
			PodCIDR: "10.0.0.0/24", PodCIDRs: []string{"10.0.0.0/24"}, ProviderID: "cloud://1", Unschedulable: true,
			Taints: []corev1.Taint{{Key: "gpu", Value: "yes", Effect: "NoSchedule", TimeAdded: &then}, {Key: "alone", Effect: "NoExecute"}},
		},
		Status: corev1.NodeStatus{
			Capacity: amounts, Allocatable: amounts, Phase: corev1.NodeRunning,
			Conditions:       []corev1.NodeCondition{{Type: "Ready", Status: "True", LastHeartbeatTime: then, Reason: "KubeletReady"}},
			Addresses:        []corev1.NodeAddress{{Type: "Hostname", Address: "n"}},
			DaemonEndpoints:  corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
			NodeInfo:         corev1.NodeSystemInfo{KubeletVersion: "v1.37.2", Architecture: "amd64"},
			Images:           []corev1.ContainerImage{{Names: []string{"pause"}, SizeBytes: 1 << 40}},
			DeclaredFeatures: []string{"DRAOptionalNodeOperations"},
		},
	}
	pod := corev1.Pod{
		ObjectMeta: meta,
		Spec: corev1.PodSpec{
			Containers:     []corev1.Container{{Name: "c", Image: "pause", Resources: corev1.ResourceRequirements{Requests: amounts}}},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("w")}},
			Priority:       ptr.To(int32(-5)),
			Tolerations:    []corev1.Toleration{{Key: "gpu", Operator: "Exists", TolerationSeconds: ptr.To(int64(-1))}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending, StartTime: &then},
	}
	encode := func(data []byte, err error) []byte {
		if err != nil {
			panic(err)
		}
		return data
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	if err := out.Encode(map[string]any{
		"node": encode(node.Marshal()), "pod": encode(pod.Marshal()), "nodeJSON": node, "podJSON": pod,
	}); err != nil {
		panic(err)
	}
}
