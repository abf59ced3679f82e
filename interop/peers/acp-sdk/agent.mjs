// An agent on the official TypeScript SDK 2.4.0: agent.mjs VERSION
import { Readable, Writable } from "node:stream";
import { tick } from "./work.mjs";

const version = Number(process.argv[2] ?? 1);
const acp = await import(version === 2 ? "@agentclientprotocol/sdk/experimental/v2" : "@agentclientprotocol/sdk");
const turns = new Map(); // session: AbortController

const text = (params) => params.prompt.map((b) => b.text ?? "").join("");
const options = [{ optionId: "ok", name: "Allow", kind: "allow_once" }];

async function say(client, sessionId, words) {
  const update = { sessionUpdate: "agent_message_chunk", content: { type: "text", text: words } };
  if (version === 2) update.messageId = "a_1";
  await client.notify("session/update", { sessionId, update });
}

// work is what a prompt asks for. It ends with an error when the turn is stopped.
async function work(what, client, sessionId, signal) {
  await say(client, sessionId, "working");
  if (what === "tick") await tick(signal);
  if (what === "ask") {
    const toolCall = { toolCallId: "tc_1", title: "rm" };
    const ask = version === 2 ? { sessionId, title: "rm", subject: { type: "tool_call", toolCall }, options } : { sessionId, toolCall, options };
    const answer = await client.request("session/request_permission", ask, { cancellationSignal: signal });
    await say(client, sessionId, `permission ${answer.outcome.outcome}`);
    if (signal.aborted) throw new Error("stopped");
  }
  if (what === "callback") {
    const stop = new AbortController();
    setTimeout(() => stop.abort(), 100);
    try {
      await client.request("_wait", {}, { cancellationSignal: stop.signal });
      await say(client, sessionId, "callback answered");
    } catch (err) {
      await say(client, sessionId, `callback ${err.code}`);
    }
  }
}

async function promptV1({ params, client, signal }) {
  const turn = new AbortController();
  turns.set(params.sessionId, turn);
  try {
    await work(text(params), client, params.sessionId, AbortSignal.any([turn.signal, signal]));
    return { stopReason: "end_turn" };
  } catch (err) {
    if (turn.signal.aborted || signal.aborted) return { stopReason: "cancelled" };
    throw err;
  }
}

async function promptV2({ params, client }) {
  const { sessionId } = params;
  const turn = new AbortController();
  turns.set(sessionId, turn);
  const state = (s) => client.notify("session/update", { sessionId, update: { sessionUpdate: "state_update", ...s } });
  setTimeout(async () => {
    await state({ state: "running" });
    try {
      await work(text(params), client, sessionId, turn.signal);
      await state({ state: "idle", stopReason: "end_turn" });
    } catch {
      await state({ state: "idle", stopReason: "cancelled" });
    }
  });
  return { messageId: `m_${Date.now()}` };
}

const info = { name: "ts-agent", version: "1" };
acp
  .agent(info)
  .onRequest("initialize", () => (version === 2 ? { protocolVersion: 2, info, capabilities: {} } : { protocolVersion: 1, agentInfo: info, agentCapabilities: {} }))
  .onRequest("session/new", () => ({ sessionId: "s_1" }))
  .onRequest("session/prompt", version === 2 ? promptV2 : promptV1)
  .onNotification("session/cancel", ({ params }) => turns.get(params.sessionId)?.abort())
  .onRequest("_tick", (params) => params, ({ signal }) => tick(signal))
  .onRequest("_quick", (params) => params, () => ({ done: true }))
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
