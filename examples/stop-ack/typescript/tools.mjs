// Two tools that take their time: tick heeds a cancel, deaf does not. With a
// file in STOP_ACK_WITNESS each appends a line for every step that it does.
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const write = (line) => process.env.STOP_ACK_WITNESS && appendFileSync(process.env.STOP_ACK_WITNESS, line + "\n");
const done = (n) => ({ content: [{ type: "text", text: `${n} ticks` }] });

export async function tick({ n, ms }, signal, partial) {
  for (let i = 1; i <= n; i++) {
    await sleep(ms, undefined, { signal });
    write(`tick ${i}`);
    partial(`${i} of ${n} ticks`);
  }
  return done(n);
}

export async function deaf({ n, ms }) {
  for (let i = 1; i <= n; i++) {
    await sleep(ms);
    write(`tick ${i}`);
  }
  return done(n);
}
