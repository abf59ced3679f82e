"""A server on the official Python SDK, version 1 or 2: tick is async and so can
be cancelled, deaf is a plain function, which no SDK can interrupt. On stdio, or
with PORT over Streamable HTTP."""

import os
import sys
import time

import anyio

try:
    from mcp.server.mcpserver import Context, MCPServer as Server

    VERSION_2 = True
except ImportError:
    from mcp.server.fastmcp import Context, FastMCP as Server

    VERSION_2 = False

witness = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_APPEND)


def write(key, name, detail=""):
    line = f"{time.time_ns()} {os.getpid()} {key} {name}{' ' + detail if detail else ''}\n"
    os.write(witness, line.encode())


write("server", "start")
port = int(os.environ.get("PORT", "0"))
server = Server("tick-python") if VERSION_2 or not port else Server("tick-python", port=port)


@server.tool()
async def tick(ctx: Context, key: str = "tick", n: int = 100, ms: int = 50) -> str:
    """ticks and listens"""
    write(key, "start")
    try:
        for i in range(1, n + 1):
            await anyio.sleep(ms / 1000)
            write(key, "tick", str(i))
            await ctx.report_progress(i, n)
    except anyio.get_cancelled_exc_class():
        write(key, "signal")
        write(key, "stopped")
        raise
    write(key, "done")
    return f"{n} ticks"


@server.tool()
def deaf(key: str = "deaf", n: int = 100, ms: int = 50) -> str:
    """ticks and does not listen"""
    write(key, "start")
    for i in range(1, n + 1):
        time.sleep(ms / 1000)
        write(key, "tick", str(i))
    write(key, "done")
    return f"{n} ticks"


@server.tool()
def echo(message: str = "") -> str:
    """returns its argument"""
    return message


if not port:
    server.run()
elif VERSION_2:
    server.run("streamable-http", port=port)
else:
    server.run("streamable-http")
