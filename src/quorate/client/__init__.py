"""A client of `quorate serve`: data frames in, answers out, each charged once whatever happens on the way.

    Client        for programs that wait
    AsyncClient   the same for asyncio

A call is cut into requests, each with an id. A request that was lost is sent again under its id, so that it is charged
once. The path of a call: `client` (HTTP) <- `asking` (what to send next, and when) -> `queries` (rows to tensors) and
`answers` (tensors to labels and frames).
"""

from quorate.client.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]
