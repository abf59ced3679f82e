// The tick tool for both TypeScript servers: it writes what it does into a
// witness file, and either looks at its signal (tick) or does not (deaf).
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const file = process.argv[2];

export function write(key, name, detail = "") {
  const nano = `${Date.now()}000000`; // unix nanoseconds
  appendFileSync(file, `${nano} ${process.pid} ${key} ${name}${detail ? " " + detail : ""}\n`);
}

const schema = { type: "object", properties: { key: { type: "string" }, n: { type: "number" }, ms: { type: "number" } } };
export const tools = [
  { name: "tick", description: "ticks and listens", inputSchema: schema },
  { name: "deaf", description: "ticks and does not listen", inputSchema: schema },
  { name: "echo", description: "returns its arguments", inputSchema: { type: "object" } },
];

const said = (text) => ({ content: [{ type: "text", text }] });

// call runs one tool. progress(i, n) sends a progress notification.
export async function call(name, args = {}, signal, progress) {
  if (name === "echo") return said(JSON.stringify(args));
  const { key = name, n = 100, ms = 50 } = args;
  write(key, "start");
  signal.addEventListener("abort", () => write(key, "signal", String(signal.reason)));
  for (let i = 1; i <= n; i++) {
    await sleep(ms);
    if (name === "tick" && signal.aborted) {
      write(key, "stopped");
      throw new Error("stopped");
    }
    write(key, "tick", String(i));
    await progress(i, n);
  }
  write(key, "done");
  return said(`${n} ticks`);
}
