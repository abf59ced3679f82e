// A witness for servers that are not ours. Loaded before the server with
// `node --import .../witness.mjs?file=PATH`, it writes a line for each progress
// notification that the server itself sends: what the process does, seen from
// inside the process, whatever anybody between it and the client says.
import { appendFileSync } from "node:fs";

const file = new URL(import.meta.url).searchParams.get("file");
if (!file) throw new Error("witness.mjs: no ?file=PATH");

export function now() {
  return `${Date.now()}000000`; // unix nanoseconds; performance.now() drifts from the wall clock of others
}

const write = process.stdout.write.bind(process.stdout);
process.stdout.write = (chunk, ...rest) => {
  const text = String(chunk);
  if (text.includes('"notifications/progress"')) {
    appendFileSync(file, `${now()} ${process.pid} everything tick\n`);
  }
  return write(chunk, ...rest);
};
appendFileSync(file, `${now()} ${process.pid} server start\n`);
