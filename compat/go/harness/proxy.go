package harness

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// Proxy passes connections on to a server, and can cut them while the server lives on.
type Proxy struct {
	Endpoint string

	target string
	listen net.Listener
	lock   sync.Mutex
	open   map[net.Conn]bool
	down   bool
}

// StartProxy starts a proxy in front of an endpoint.
func StartProxy(t testing.TB, endpoint string) *Proxy {
	t.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{
		Endpoint: "http://" + listen.Addr().String(),
		target:   strings.TrimPrefix(endpoint, "http://"),
		listen:   listen,
		open:     map[net.Conn]bool{},
	}
	go p.serve()
	t.Cleanup(func() { listen.Close(); p.Down() })
	return p
}

func (p *Proxy) serve() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || !p.keep(client, server) {
			client.Close()
			if server != nil {
				server.Close()
			}
			continue
		}
		for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
			go func() {
				io.Copy(way[0], way[1])
				client.Close()
				server.Close()
				p.lock.Lock()
				delete(p.open, client)
				delete(p.open, server)
				p.lock.Unlock()
			}()
		}
	}
}

func (p *Proxy) keep(connections ...net.Conn) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	for _, connection := range connections {
		if !p.down {
			p.open[connection] = true
		}
	}
	return !p.down
}

// Down cuts all connections and takes no new ones until Up.
func (p *Proxy) Down() {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.down = true
	for connection := range p.open {
		connection.Close()
	}
}

// Up takes connections again.
func (p *Proxy) Up() {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.down = false
}
