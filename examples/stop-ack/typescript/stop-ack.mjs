// @ts-check
// Stop-ack for servers on the official TypeScript SDK, version 1 or 2: says when
// the handler of a cancelled tool call has really returned. See docs/stop-ack.md.
export const NAME = "io.github.belayhq/stop-ack";
const NOTICE = "notifications/stop-ack";
export const AWAIT = "stop-ack/await";
const KEEP = 60_000; // ms that an end is remembered
const MAX = 10_000; // calls that are remembered at once; others are not acknowledged
const MAX_WAIT = 25_000; // ms that one answer may take

export class StopAcks {
  /** For the server's capabilities: `experimental` in version 1, `extensions` as well in version 2. */
  capability = { [NAME]: { notify: true, await: true } };
  #calls = new Map();

  /** Wraps a tool's callback. It gets one more argument: a function that takes the partial result so far. */
  tool(/** @type {any} */ server, /** @type {Function} */ callback) {
    return async (/** @type {any} */ args, /** @type {any} */ extra) => {
      const request = extra.mcpReq ?? extra; // version 2, version 1
      const token = request._meta?.[NAME]?.token;
      if (typeof token !== "string" || !token || token.length > 128 || this.#calls.has(token) || this.#calls.size >= MAX)
        return callback(args, extra, () => {});
      const call = { who: who(extra), outcome: "running", partial: "", end: () => {}, ended: /** @type {Promise<void>} */ (Promise.resolve()) };
      call.ended = new Promise((resolve) => (call.end = resolve));
      this.#calls.set(token, call);
      let outcome = "failed";
      try {
        const result = await callback(args, extra, (/** @type {string} */ text) => (call.partial = text.slice(0, 20_000)));
        outcome = result?.isError ? "failed" : "completed";
        return result;
      } catch (error) {
        if (request.signal.aborted) outcome = "stopped";
        throw error;
      } finally {
        if (outcome === "completed") call.partial = "";
        call.outcome = outcome;
        call.end();
        setTimeout(() => this.#calls.delete(token), KEEP).unref();
        const modern = request.envelope?.["io.modelcontextprotocol/protocolVersion"] !== undefined; // may be sent nothing more
        if (request.signal.aborted && !modern) {
          const requestId = request.id ?? request.requestId;
          const params = { token, outcome, partial: call.partial || undefined, requestId };
          await server.server.notification({ method: NOTICE, params }, { relatedRequestId: requestId }).catch(() => {});
        }
      }
    };
  }

  /** Answers the request of this name: when the call has ended, or the time is over. */
  async await(/** @type {{token: string, waitMs?: number}} */ { token, waitMs = 0 }, /** @type {any} */ extra) {
    const call = this.#calls.get(token);
    if (!call || call.who !== who(extra)) return { outcome: "unknown" };
    let timer;
    const late = new Promise((resolve) => (timer = setTimeout(resolve, Math.min(waitMs, MAX_WAIT))));
    await Promise.race([call.ended, late]);
    clearTimeout(timer);
    return { outcome: call.outcome, ...(call.outcome !== "running" && call.partial ? { partial: call.partial } : {}) };
  }
}

/** The principal, as far as the transport knows it: only it is told. */
const who = (/** @type {any} */ extra) => (extra?.authInfo ?? extra?.http?.authInfo)?.clientId ?? "";
