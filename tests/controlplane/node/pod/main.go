// Command pod is what the containers of tests run, and the sandbox of their pods: it prints its environment and the names
// of its network interfaces, and then waits until it is told to end.
package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	interfaces, err := net.Interfaces()
	if err != nil {
		panic(err)
	}
	names := make([]string, len(interfaces))
	for i, each := range interfaces {
		names[i] = each.Name
	}
	fmt.Println(strings.Join(append(os.Environ(), "interfaces="+strings.Join(names, " "), "end"), "\n"))
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	<-ended
}
