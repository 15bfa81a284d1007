"""Clients of `quorate serve`: data frames in, answers out, each charged once even if requests are lost.

    Client        the blocking client
    AsyncClient   the same for asyncio

A call is split into requests, each with an id. A lost request is sent again with the same id, so that it is charged
once. The path of a call: `client` (HTTP) <- `asking` (what to send next, and when) -> `queries` (rows to tensors) and
`answers` (tensors to labels and frames).
"""

from quorate.service.client._client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]
