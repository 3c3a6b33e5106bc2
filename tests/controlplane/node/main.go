// Command node is what a Kubernetes node runs in addition to its container runtime, in one file, for tests: kubelet,
// kube-proxy, the DRA driver of Kubernetes' own tests (test-driver), and the same driver with devices from a file (driver).
//
// The name the file is called by says which; everything after it is that component's own flags.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	testdriver "k8s.io/kubernetes/test/e2e/dra/test-driver/app"
)

var components = map[string]func() *cobra.Command{
	"kubelet":     func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kube-proxy":  proxy.NewProxyCommand,
	"test-driver": testdriver.NewCommand,
	"driver":      newDriverCommand,
}

func main() {
	make, found := components[filepath.Base(os.Args[0])]
	if !found {
		fmt.Fprintln(os.Stderr, "the name of this file has to be kubelet, kube-proxy, test-driver or driver")
		os.Exit(2)
	}
	os.Exit(cli.Run(make()))
}
