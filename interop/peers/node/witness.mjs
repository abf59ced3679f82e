// A witness for servers that are not ours. Loaded before the server with
// `node --import .../witness.mjs?file=PATH`, it writes a line for each progress
// notification that the server's own code wants to send: what the process does,
// seen from inside, whatever anybody between it and the client says. It works
// whether there is still anybody to send it to or not.
import { appendFileSync } from "node:fs";
import { Protocol } from "@modelcontextprotocol/sdk/shared/protocol.js";

const file = new URL(import.meta.url).searchParams.get("file");
if (!file) throw new Error("witness.mjs: no ?file=PATH");

export function now() {
  return `${Date.now()}000000`; // unix nanoseconds; performance.now() drifts from the wall clock of others
}

const notification = Protocol.prototype.notification;
Protocol.prototype.notification = function (message, ...rest) {
  if (message.method === "notifications/progress") {
    appendFileSync(file, `${now()} ${process.pid} everything tick\n`);
  }
  return notification.call(this, message, ...rest);
};
appendFileSync(file, `${now()} ${process.pid} server start\n`);
