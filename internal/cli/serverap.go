package cli

import (
	"net"
	"path/filepath"
	"strconv"

	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/egress"
	"github.com/belayhq/belay/node"
	"github.com/belayhq/belay/rap"
	"github.com/belayhq/belay/rap/sigv4"
	"github.com/belayhq/belay/serve"
)

// rapOptions are what the configuration says of all RAP tool servers.
func rapOptions(env *Env, h *host, c *config.Config, at net.Addr) serve.RAPOptions {
	o := serve.RAPOptions{Callback: c.RAP.Callback, Addresses: addressesOf(c.RAP.Addresses)}
	if o.Callback == "" {
		o.Callback = callbackAt(at, c.TLS.On())
	}
	if o.Callback == "" && usesRAP(c) {
		h.log.Warn("tool servers cannot answer to a unix socket; say rap: {callback_url: …}")
	}
	file := subscriptionsFile(env, c)
	if file == "" {
		return o // this user has no home; the ledger has said so
	}
	store, err := rap.OpenStore(file)
	if err != nil {
		h.log.Error("live subscriptions are kept in memory only", "error", err)
		return o
	}
	o.Store = store
	return o
}

func usesRAP(c *config.Config) bool {
	for i := range c.Servers {
		if c.Servers[i].RAP != nil {
			return true
		}
	}
	return false
}

// callbackAt is where this machine reaches the listener; "" for a unix socket.
func callbackAt(at net.Addr, encrypted bool) string {
	tcp, ok := at.(*net.TCPAddr)
	if !ok {
		return ""
	}
	host := tcp.IP.String()
	if tcp.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "http://"
	if encrypted {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, strconv.Itoa(tcp.Port))
}

// subscriptionsFile is where live subscriptions outlive a restart: beside the
// ledger, if nobody says otherwise.
func subscriptionsFile(env *Env, c *config.Config) string {
	const name = "rap-subscriptions.json"
	switch {
	case c.RAP.Subscriptions != "":
		return c.RAP.Subscriptions
	case c.Ledger.Path != "":
		return filepath.Join(filepath.Dir(c.Ledger.Path), name)
	}
	if latch := config.LatchPath(env.Getenv); latch != "" {
		return filepath.Join(filepath.Dir(latch), name)
	}
	return ""
}

// addressesOf says in package egress's words where others may have Belay post.
func addressesOf(word string) egress.Policy {
	return egress.Policy{Private: word == "private", Plain: word == "private", NoLoopback: word == "public", Off: word == "off"}
}

// rapDoor is what the configuration says of runtimes that call the servers here.
func rapDoor(c *config.RAP) *node.RAPOptions {
	o := &node.RAPOptions{BaseURL: c.BaseURL, Addresses: addressesOf(c.Addresses)}
	if c.SigV4 == nil {
		return o
	}
	o.SigV4 = &sigv4.VerifierOptions{Region: c.SigV4.Region, Service: c.SigV4.Service, Skew: c.SigV4.Skew}
	for _, k := range c.SigV4.Keys {
		o.SigV4.Keys = append(o.SigV4.Keys, sigv4.Key{AccessKey: k.AccessKey, SecretKey: k.SecretKey, SessionToken: k.SessionToken, Caller: k.Name})
	}
	return o
}
