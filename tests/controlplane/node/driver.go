package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	testdriver "k8s.io/kubernetes/test/e2e/dra/test-driver/app"
	"sigs.k8s.io/yaml"
	cdi "tags.cncf.io/container-device-interface/specs-go"
)

// options are the flags of the driver.
type options struct {
	kubeconfig, node, name, plugins, registry, cdi, resources, instance string
}

// newDriverCommand is the driver of Kubernetes' own tests with other devices: those of a file. Containers see their names. It
// meets the binding conditions of its devices, and can take part in a rolling update as one of two instances.
func newDriverCommand() *cobra.Command {
	o := &options{}
	command := &cobra.Command{Use: "driver", Args: cobra.NoArgs, SilenceUsage: true}
	for _, flag := range []struct {
		value       *string
		name, usage string
	}{
		{&o.kubeconfig, "kubeconfig", "how to reach the API server"},
		{&o.node, "node-name", "the node, and its pool"},
		{&o.name, "drivername", "the name of the driver"},
		{&o.plugins, "datadir", "the folder of kubelet for the sockets of drivers"},
		{&o.registry, "plugin-registration-path", "the folder in which kubelet finds drivers"},
		{&o.cdi, "cdi-dir", "the folder for CDI files"},
		{&o.resources, "resources", "a YAML or JSON file: the node's pool, as in DriverResources"},
		{&o.instance, "instance", "the UID of this instance where a rolling update is possible"},
	} {
		command.Flags().StringVar(flag.value, flag.name, "", flag.usage)
	}
	command.RunE = func(command *cobra.Command, _ []string) error { return o.run(command.Context()) }
	return command
}

func (o *options) run(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	published, err := o.read()
	if err != nil {
		return err
	}
	data := filepath.Join(o.plugins, o.name)
	for _, folder := range []string{o.cdi, data} {
		if err := os.MkdirAll(folder, 0o750); err != nil {
			return err
		}
	}
	arguments := []any{
		testdriver.Options{EnableHealthService: true},
		kubeletplugin.PluginDataDirectoryPath(data),
		kubeletplugin.RegistrarDirectoryPath(o.registry),
	}
	if o.instance != "" {
		arguments = append(arguments, kubeletplugin.RollingUpdate(types.UID(o.instance)))
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	files := testdriver.FileOperations{Create: o.withDevices(ctx, client), DriverResources: published}
	plugin, err := testdriver.StartPlugin(ctx, o.cdi, o.name, client, o.node, files, arguments...)
	if err != nil {
		return err
	}
	go wait.UntilWithContext(ctx, func(ctx context.Context) { o.attach(ctx, client) }, 200*time.Millisecond)
	<-signals
	plugin.Stop()
	return nil
}

// attach reports that allocated devices of this driver meet their binding conditions. A claim that changes meanwhile is
// looked at again.
func (o *options) attach(ctx context.Context, client kubernetes.Interface) {
	claims, err := client.ResourceV1().ResourceClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, claim := range claims.Items {
		if claim.Status.Allocation == nil || len(claim.Status.Devices) > 0 {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.Driver != o.name || len(result.BindingConditions) == 0 {
				continue
			}
			status := resourceapi.AllocatedDeviceStatus{Driver: result.Driver, Pool: result.Pool, Device: result.Device}
			for _, condition := range result.BindingConditions {
				met := metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "Attached"}
				met.LastTransitionTime = metav1.Now()
				status.Conditions = append(status.Conditions, met)
			}
			claim.Status.Devices = append(claim.Status.Devices, status)
		}
		if len(claim.Status.Devices) > 0 {
			_, _ = client.ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(ctx, &claim, metav1.UpdateOptions{})
		}
	}
}

// read returns what the file says, as the pool of the node.
func (o *options) read() (*resourceslice.DriverResources, error) {
	content, err := os.ReadFile(o.resources)
	if err != nil {
		return nil, err
	}
	var pool resourceslice.Pool
	if err := yaml.UnmarshalStrict(content, &pool); err != nil {
		return nil, fmt.Errorf("%s: %w", o.resources, err)
	}
	return &resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{o.node: pool}}, nil
}

// withDevices writes CDI files with more variables: device_REQUEST has the names of the request's devices, as in
// "device-0 device-1", and GPU_DEVICE_N the device gpu-N, as with Kubernetes' example driver.
func (o *options) withDevices(ctx context.Context, client kubernetes.Interface) func(string, []byte) error {
	return func(file string, content []byte) error {
		var spec cdi.Spec
		if err := json.Unmarshal(content, &spec); err != nil {
			return err
		}
		claims, err := client.ResourceV1().ResourceClaims("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, claim := range claims.Items {
			if !strings.Contains(file, string(claim.UID)) {
				continue
			}
			names := map[string][]string{}
			for _, result := range claim.Status.Allocation.Devices.Results {
				request := resourceclaim.BaseRequestRef(result.Request)
				if result.Driver == o.name && strings.HasSuffix(file, "-"+request+".json") {
					names[request] = append(names[request], result.Device)
				}
			}
			for request, devices := range names {
				edits := &spec.Devices[0].ContainerEdits
				edits.Env = append(edits.Env, "device_"+request+"="+strings.Join(devices, " "))
				for _, device := range devices {
					if number, found := strings.CutPrefix(device, "gpu-"); found {
						edits.Env = append(edits.Env, "GPU_DEVICE_"+number+"="+device)
					}
				}
			}
		}
		if content, err = json.Marshal(spec); err != nil {
			return err
		}
		return os.WriteFile(file, content, 0o644)
	}
}
