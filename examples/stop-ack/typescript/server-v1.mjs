// A small server with stop-ack on the official TypeScript SDK, version 1.
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";
import { AWAIT, StopAcks } from "./stop-ack.mjs";
import { deaf, tick } from "./tools.mjs";

const acks = new StopAcks();
const server = new McpServer({ name: "stop-ack-ts-v1", version: "1.0.0" }, { capabilities: { experimental: acks.capability } });
const inputSchema = { n: z.number().default(100), ms: z.number().default(50) };
server.registerTool("tick", { inputSchema }, acks.tool(server, (args, extra, partial) => tick(args, extra.signal, partial)));
server.registerTool("deaf", { inputSchema }, acks.tool(server, (args) => deaf(args)));
const question = z.object({ method: z.literal(AWAIT), params: z.object({ token: z.string(), waitMs: z.number().min(0).optional() }) });
server.server.setRequestHandler(question, ({ params }, extra) => acks.await(params, extra));
await server.connect(new StdioServerTransport());
