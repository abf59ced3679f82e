// A server on the official TypeScript SDK, version 2: both eras.
import { Server } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { call, tools, write } from "./tick.mjs";

write("server", "start");
serveStdio(() => {
  const server = new Server({ name: "tick-ts-v2", version: "1.0.0" }, { capabilities: { tools: {} } });
  server.setRequestHandler("tools/list", async () => ({ tools }));
  server.setRequestHandler("tools/call", async ({ params }, ctx) => {
    const progressToken = params._meta?.progressToken ?? ctx.mcpReq._meta?.progressToken;
    return call(params.name, params.arguments, ctx.mcpReq.signal, async (progress, total) => {
      if (progressToken === undefined) return;
      await ctx.mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, total } });
    });
  });
  return server;
});
