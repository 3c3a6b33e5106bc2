// Command pod is what the containers of tests run, and the sandbox of their pods: it prints its environment, and then waits
// until it is told to end.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	fmt.Println(strings.Join(append(os.Environ(), "end"), "\n"))
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	<-ended
}
