// Command controlplane is a Kubernetes control plane in one file, for tests on loopback.
//
// It is etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl, each exactly the command its own
// project ships: the first argument, or the name the file is called by (a symbolic link), says which; everything after
// it is that component's own flags. Every component runs as a process of its own, because feature gates, flags and
// metrics are global to a process.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // time zones of CronJobs, as in the released binaries

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// components maps the names of the released binaries to what they run. Each reads its flags from os.Args.
var components = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          func() { run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() { run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() { run(scheduler.NewSchedulerCommand()) },
	"kubectl":                 runKubectl,
}

func main() {
	if component, found := lookup(os.Args[0]); found {
		component()
		return
	}
	if len(os.Args) > 1 {
		if component, found := lookup(os.Args[1]); found {
			os.Args = os.Args[1:]
			component()
			return
		}
	}
	fmt.Fprintf(os.Stderr, "usage: controlplane COMPONENT [FLAGS]\ncomponents: %s\n", strings.Join(names(), ", "))
	os.Exit(2)
}

// lookup finds a component by its full name or by the name without the "kube-" in front ("apiserver").
func lookup(path string) (func(), bool) {
	name := filepath.Base(path)
	if component, found := components[name]; found {
		return component, true
	}
	component, found := components["kube-"+name]
	return component, found
}

func names() []string {
	var all []string
	for name := range components {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

func runKubectl() {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}
