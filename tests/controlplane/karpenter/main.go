// Karpenter with its kwok provider, and devices that the instance types promise.
//
// The provider of the module declares no devices (kwok/cloudprovider/helpers.go), so that Karpenter never makes a node
// for a claim. Providers of clouds fill InstanceType.DynamicResources; here the file named by DEVICES_FILE_PATH does:
// {INSTANCE TYPE: {DRIVER: [DEVICE, ...]}}. Without the variable this is the kwok provider as it is.
package main

import (
	"encoding/json"
	"os"
	"unique"

	"github.com/samber/lo"

	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
)

func main() {
	ctx, op := operator.NewOperator()
	types := lo.Must(kwok.ConstructInstanceTypes(ctx))
	promiseDevices(types)
	provider := kwok.NewCloudProvider(ctx, op.GetClient(), types)
	decorated := overlay.Decorate(provider, op.GetClient(), op.InstanceTypeStore)
	repairs := lo.Must(health.NewRepairPolicyMatcher(ctx, decorated))
	cluster := state.NewCluster(op.Clock, op.GetClient(), decorated, state.WithRepairPolicyMatcher(repairs))
	op.WithControllers(ctx, controllers.NewControllers(
		ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder, decorated, provider, cluster,
		op.InstanceTypeStore, op.PredictionStore,
	)...).Start(ctx)
}

func promiseDevices(types []*cloudprovider.InstanceType) {
	path := os.Getenv("DEVICES_FILE_PATH")
	if path == "" {
		return
	}
	var promised map[string]map[string][]string
	lo.Must0(json.Unmarshal(lo.Must(os.ReadFile(path)), &promised))
	for _, each := range types {
		for driver, names := range promised[each.Name] {
			devices := lo.Map(names, func(name string, _ int) cloudprovider.Device {
				return cloudprovider.Device{Name: unique.Make(name)}
			})
			slice := &cloudprovider.ResourceSliceTemplate{
				Driver: unique.Make(driver), Pool: cloudprovider.ResourcePool{Name: unique.Make("promised")}, Devices: devices,
			}
			templates := &each.DynamicResources.ResourceSliceTemplates
			*templates = append(*templates, slice)
		}
	}
}
