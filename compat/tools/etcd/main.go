// Command etcd is the etcd server of the release that go.mod names: the judge of the compatibility suite.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
