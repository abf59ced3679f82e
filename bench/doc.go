// Command bench measures what Belay costs and how fast it stops things.
//
//	go run ./bench [-quick] [-only NAME,…] [-rounds 5] [-json] [-md FILE]
//
// # Method
//
// Every figure is taken three times in the same run, the ways interleaved in
// rounds: through a direct connection, through a bare relay process that only
// copies bytes, and through `belay wrap`. The median over the rounds counts.
// The relay is there because two processes more on few cores cost something
// that no code can remove; what Belay adds is the distance to it.
//
// The server on stdio is the fake of internal/faketool in all three ways, as is
// the relay; both are this same binary. Times of events inside the server come
// from its witness file, by the same clock.
//
// # HTTP
//
// The caller is raw HTTP/1.1 on connections that are kept: one at a time, or 64
// with one call each. The server is one of the official Go SDK, the same over HTTP
// and on stdio, in both eras; on stdio the lean fake is measured as well, since
// with the SDK's own the row says mostly how fast that is on stdio. The relay is
// httputil.ReverseProxy. Other people's gateways, pinned in gateways/, run in the
// same rounds with a tenth of the calls; where npm cannot install them the rows
// say so, and where one fails the row says how.
//
// # ACP
//
// The editor and the agent are this same binary. An update says itself when the
// agent wrote it, and the update that answers a Stop says when that was read; the
// relay is the one of stdio. Updates that follow each other closely flatter
// everybody, since nobody falls asleep in between, so there is a row with a pause
// before each as well.
//
// # RAP
//
// The tool servers are one process of this binary, written with net/http alone, and
// so is the runtime beside which package rap is measured: it checks and records
// nothing. Both runtimes are in this process, so that their processor time is its
// own.
//
// # Scripts
//
// The tools are scripts behind belay serve, and say themselves when a call has got
// into them, by a request to this process. A Stop comes from an operator over REST,
// since a caller that stops its own call is answered nothing. How late a script was
// stopped is read off the receipt: from the Stop to the evidence, less the times that
// the ladder has on purpose.
//
// # What it is not
//
// It is no test: it compares each figure with its bar and prints both, and
// exits 0 whatever they are. A machine that does something else meanwhile
// makes wrong figures; the direct connection beside it shows that.
package main
