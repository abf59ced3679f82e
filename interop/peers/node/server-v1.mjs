// A server on the official TypeScript SDK, version 1: on stdio, or with PORT
// over Streamable HTTP with sessions.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { CallToolRequestSchema, ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { call, tools, write } from "./tick.mjs";

write("server", "start");

function makeServer() {
  const server = new Server({ name: "tick-ts-v1", version: "1.0.0" }, { capabilities: { tools: {} } });
  server.setRequestHandler(ListToolsRequestSchema, async () => ({ tools }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
    const progressToken = params._meta?.progressToken;
    return call(params.name, params.arguments, extra.signal, async (progress, total) => {
      if (progressToken === undefined) return;
      await extra.sendNotification({ method: "notifications/progress", params: { progressToken, progress, total } });
    });
  });
  return server;
}

const sessions = new Map();

async function open() {
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: () => randomUUID(),
    onsessioninitialized: (id) => sessions.set(id, transport),
    onsessionclosed: (id) => sessions.delete(id),
  });
  await makeServer().connect(transport);
  return transport;
}

if (process.env.PORT) {
  createServer(async (req, res) => {
    const id = req.headers["mcp-session-id"];
    const transport = id ? sessions.get(id) : await open();
    if (!transport) return res.writeHead(404).end();
    await transport.handleRequest(req, res);
  }).listen(Number(process.env.PORT), "127.0.0.1");
} else {
  await makeServer().connect(new StdioServerTransport());
}
