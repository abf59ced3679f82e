// A client on the official TypeScript SDK 2.4.0:
//   client.mjs VERSION SCENARIO COMMAND ARGS…
// It prints one line of JSON for each step.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";

const [, , versionText, scenario, command, ...args] = process.argv;
const version = Number(versionText);
const acp = await import(version === 2 ? "@agentclientprotocol/sdk/experimental/v2" : "@agentclientprotocol/sdk");
const agent = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const step = (event, how = "") => console.log(JSON.stringify({ at: Date.now(), event, how }));
const block = (t) => [{ type: "text", text: t }];

let idle; // v2: called with the stop reason of an idle state
let started; // called with the first update of a turn
let asked; // called when the user is asked
const begun = () => new Promise((resolve) => (started = resolve));

const app = acp
  .client({ name: "ts-client", version: "1" })
  .onRequest("session/request_permission", ({ signal }) => {
    asked?.();
    return new Promise((resolve) => {
      const none = { outcome: { outcome: "cancelled" } };
      signal.addEventListener("abort", () => resolve(none), { once: true }); // the agent withdraws it
      if (scenario !== "permission" || version === 2) return;
      answer = () => resolve(none); // or the user pressed Stop
    });
  })
  .onNotification("session/update", ({ params }) => {
    const { update } = params;
    if (update.sessionUpdate === "agent_message_chunk") started?.(update.content.text);
    if (update.sessionUpdate === "state_update" && update.state === "idle") idle?.(update.stopReason);
  });
let answer;

// prompt resolves with the true stop reason.
async function prompt(ctx, sessionId, what) {
  const end = new Promise((resolve) => (idle = resolve));
  const response = await ctx.request("session/prompt", { sessionId, prompt: block(what) });
  return version === 2 ? end : response.stopReason;
}

await app.connectWith(acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)), async (ctx) => {
  const info = { name: "ts-client", version: "1" };
  await ctx.request("initialize", version === 2 ? { protocolVersion: 2, info, capabilities: {} } : { protocolVersion: 1, clientInfo: info, clientCapabilities: {} });
  const { sessionId } = await ctx.request("session/new", { cwd: process.cwd(), mcpServers: [] });
  if (scenario === "request") {
    const stop = new AbortController();
    setTimeout(() => {
      step("stop");
      stop.abort();
    }, 300);
    try {
      await ctx.request("_tick", {}, { cancellationSignal: stop.signal });
      step("end", "result");
    } catch (err) {
      step("end", String(err.code));
    }
    step("next", JSON.stringify(await ctx.request("_quick", {})));
  } else if (scenario === "prompt request") {
    const stop = new AbortController();
    const first = begun();
    const end = ctx.request("session/prompt", { sessionId, prompt: block("tick") }, { cancellationSignal: stop.signal });
    await first;
    setTimeout(() => {
      step("stop");
      stop.abort();
    }, 300);
    step("end", await end.then((r) => r.stopReason, (err) => String(err.code)));
    step("next", await prompt(ctx, sessionId, "quick"));
  } else {
    const first = begun();
    const question = new Promise((resolve) => (asked = resolve));
    const end = prompt(ctx, sessionId, scenario === "permission" ? "ask" : "tick");
    await (scenario === "permission" ? question : first);
    await new Promise((resolve) => setTimeout(resolve, 300));
    step("stop");
    await ctx.notify("session/cancel", { sessionId });
    answer?.();
    step("end", await end);
    step("next", await prompt(ctx, sessionId, "quick"));
  }
});
agent.stdin.end();
const force = setTimeout(() => agent.kill("SIGKILL"), 5000);
await new Promise((resolve) => agent.once("close", resolve));
clearTimeout(force);
