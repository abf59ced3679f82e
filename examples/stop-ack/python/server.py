"""A small server with stop-ack on the official Python SDK, version 1 or 2. With
a file in STOP_ACK_WITNESS its tools append a line for every step they do."""

import os
import time

import anyio

import stop_ack

try:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("stop-ack-python", extensions=[stop_ack.StopAck()])
except ImportError:
    from mcp.server.fastmcp import FastMCP

    server = FastMCP("stop-ack-python")
stop_ack.install(server)


def write(line):
    if path := os.environ.get("STOP_ACK_WITNESS"):
        with open(path, "a") as f:
            f.write(line + "\n")


@server.tool()
async def tick(n: int = 100, ms: int = 50) -> str:
    """ticks and heeds a cancel"""
    for i in range(1, n + 1):
        await anyio.sleep(ms / 1000)
        write(f"tick {i}")
        stop_ack.partial(f"{i} of {n} ticks")
    return f"{n} ticks"


@server.tool()
async def deaf(n: int = 100, ms: int = 50) -> str:
    """ticks and heeds nothing"""
    with anyio.CancelScope(shield=True):
        for i in range(1, n + 1):
            await anyio.sleep(ms / 1000)
            write(f"tick {i}")
    return f"{n} ticks"


@server.tool()
def thread(n: int = 100, ms: int = 50) -> str:
    """ticks in plain code, which cannot be interrupted"""
    for i in range(1, n + 1):
        time.sleep(ms / 1000)
        write(f"tick {i}")
    return f"{n} ticks"


server.run()
