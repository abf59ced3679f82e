// A server on the official TypeScript SDK, version 1.
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { CallToolRequestSchema, ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { call, tools, write } from "./tick.mjs";

write("server", "start");
const server = new Server({ name: "tick-ts-v1", version: "1.0.0" }, { capabilities: { tools: {} } });
server.setRequestHandler(ListToolsRequestSchema, async () => ({ tools }));
server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
  const progressToken = params._meta?.progressToken;
  return call(params.name, params.arguments, extra.signal, async (progress, total) => {
    if (progressToken === undefined) return;
    await extra.sendNotification({ method: "notifications/progress", params: { progressToken, progress, total } });
  });
});
await server.connect(new StdioServerTransport());
