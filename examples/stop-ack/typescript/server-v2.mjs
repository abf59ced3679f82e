// A small server with stop-ack on the official TypeScript SDK, version 2: both eras.
import { McpServer } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";
import { AWAIT, StopAcks } from "./stop-ack.mjs";
import { deaf, tick } from "./tools.mjs";

const acks = new StopAcks(); // shared by all servers of the process
serveStdio(() => {
  const capabilities = { experimental: acks.capability, extensions: acks.capability };
  const server = new McpServer({ name: "stop-ack-ts-v2", version: "1.0.0" }, { capabilities });
  const inputSchema = z.object({ n: z.number().default(100), ms: z.number().default(50) });
  server.registerTool("tick", { inputSchema }, acks.tool(server, (args, ctx, partial) => tick(args, ctx.mcpReq.signal, partial)));
  server.registerTool("deaf", { inputSchema }, acks.tool(server, (args) => deaf(args)));
  const params = z.object({ token: z.string(), waitMs: z.number().min(0).optional() });
  server.server.setRequestHandler(AWAIT, { params }, (question, ctx) => acks.await(question, ctx));
  return server;
});
