// Answers the scenarios of tests/conformance with the allocator of the Kubernetes release in go.mod: one JSON line in, one
// JSON line out. Scenarios with taint rules are left out, because the allocator gets devices that are tainted already.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

type Case struct {
	Name            string
	Features        *[]string
	Node            *corev1.Node
	Slices          []*resourceapi.ResourceSlice
	Classes         []*resourceapi.DeviceClass
	TaintRules      []json.RawMessage
	AllocatedClaims []*resourceapi.ResourceClaim
	Claims          []*resourceapi.ResourceClaim
}
type lister map[string]*resourceapi.DeviceClass

func (l lister) List() ([]*resourceapi.DeviceClass, error) { return nil, nil }
func (l lister) Get(name string) (*resourceapi.DeviceClass, error) {
	if c, ok := l[name]; ok {
		return c, nil
	}
	return nil, fmt.Errorf("deviceclass.resource.k8s.io %q not found", name)
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<26), 1<<26)
	for in.Scan() {
		var c Case
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		if len(c.TaintRules) > 0 {
			continue
		}
		on := map[string]bool{}
		if c.Features == nil {
			for _, n := range []string{"DRAAdminAccess", "DRAConsumableCapacity", "DRADeviceBindingConditions", "DRADeviceTaints", "DRAPartitionableDevices", "DRAPrioritizedList", "DRAListTypeAttributes"} {
				on[n] = true
			}
		} else {
			for _, n := range *c.Features {
				for _, p := range strings.Split(n, "+") {
					on[p] = true
				}
			}
		}
		f := structured.Features{AdminAccess: on["DRAAdminAccess"], ConsumableCapacity: on["DRAConsumableCapacity"], DeviceBindingAndStatus: on["DRADeviceBindingConditions"],
			DeviceTaints: on["DRADeviceTaints"], PartitionableDevices: on["DRAPartitionableDevices"], PrioritizedList: on["DRAPrioritizedList"], ListTypeAttributes: on["DRAListTypeAttributes"],
			FractionalCapacityRange: on["DRAFractionalCapacityRange"], CompatibilityGroups: on["DRADeviceCompatibilityGroups"], DerivedAttributes: on["DRADerivedAttributes"], OptionalNodeOperations: on["DRAOptionalNodeOperations"]}
		l := lister{}
		for _, x := range c.Classes {
			l[x.Name] = x
		}
		st := structured.AllocatedState{AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](), AggregatedCapacity: structured.NewConsumedCapacityCollection()}
		for _, a := range c.AllocatedClaims {
			if a.Status.Allocation == nil {
				continue
			}
			for i := range a.Status.Allocation.Devices.Results {
				r := &a.Status.Allocation.Devices.Results[i]
				if r.AdminAccess != nil && *r.AdminAccess {
					continue
				}
				id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
				if f.ConsumableCapacity && r.ShareID != nil {
					st.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
					if r.ConsumedCapacity != nil {
						st.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
					}
					continue
				}
				st.AllocatedDevices.Insert(id)
			}
		}
		out := map[string]any{"name": c.Name}
		cache := cel.NewCache(10, cel.Features{EnableConsumableCapacity: f.ConsumableCapacity, EnableListTypeAttributes: f.ListTypeAttributes})
		al, err := structured.NewAllocator(context.Background(), f, st, l, c.Slices, cache)
		if err == nil {
			var res []resourceapi.AllocationResult
			res, err = al.Allocate(context.Background(), c.Node, c.Claims)
			if err == nil && len(res) > 0 {
				out["kind"] = "allocated"
				for i := range res {
					for j := range res[i].Devices.Results {
						if res[i].Devices.Results[j].ShareID != nil {
							*res[i].Devices.Results[j].ShareID = "*"
						}
					}
				}
				out["allocations"] = res
			} else if err == nil {
				out["kind"] = "unschedulable"
			}
		}
		if err != nil {
			out["kind"], out["error"] = "error", err.Error()
			if strings.Contains(err.Error(), "invalid resource pools were encountered") {
				out["kind"] = "unschedulable"
			}
		}
		b, _ := json.Marshal(out)
		fmt.Println(string(b))
	}
}
