// A server on the official TypeScript SDK, version 2, for both eras: on stdio,
// or with PORT over Streamable HTTP, where the SDK serves each request on its own.
import { createServer } from "node:http";
import { getRequestListener } from "@hono/node-server"; // what the SDK itself puts between node and fetch
import { createMcpHandler, Server } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { call, tools, write } from "./tick.mjs";

write("server", "start");

function makeServer() {
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
}

if (process.env.PORT) {
  const handler = createMcpHandler(makeServer);
  const listener = getRequestListener((request) => handler.fetch(request), { overrideGlobalObjects: false });
  createServer(listener).listen(Number(process.env.PORT), "127.0.0.1");
} else {
  serveStdio(makeServer);
}
