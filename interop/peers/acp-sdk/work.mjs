// The work that a peer does until somebody stops it: it writes to the witness file
// itself, so that what the wire says can be compared with what happens.
import { appendFileSync } from "node:fs";

export function tick(signal, witness = process.env.ACP_WITNESS) {
  return new Promise((_, reject) => {
    const timer = setInterval(() => appendFileSync(witness, `${Date.now()}\n`), 20);
    const stop = () => {
      clearInterval(timer);
      reject(signal.reason); // what the SDK takes for an end by its own signal
    };
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
  });
}
