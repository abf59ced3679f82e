// Package demo shows what Belay is for: the same Stop, pressed on the same real
// processes, first without Belay and then with it.
//
// # The model
//
// A [Scene] is one way in which a Stop goes wrong. It is played twice, by the
// same script: once against the tool itself ("bare") and once through the
// belay binary in front of it. What is reported is never what the wire says
// but what the tool wrote down itself: each tool appends to a witness file as
// long as it works, and is a process whose life can be looked up.
//
// # Guarantees
//
//   - Nothing is fetched, nothing outside a temporary folder is written, and
//     runs of other Belay processes are neither seen nor touched.
//   - Every process that is started ends by itself at the latest after two
//     minutes, also when the demo is killed.
//   - [Report.OK] is true only if every receipt was confirmed, or acknowledged
//     where the tool itself answered, and every other call was unharmed.
package demo
