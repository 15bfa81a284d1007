"""An issuer of tokens on loopback: discovery, public keys and a token endpoint, made with joserfc."""

import json
import threading
import time
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from joserfc import jwk, jwt

ALGORITHM = "RS256"


class Issuer:
    """Signs what it is asked for, as an attacker would like it to."""

    def __init__(self, address):
        self.address = address
        self.keys = {"first": jwk.RSAKey.generate_key(2048, {"kid": "first", "use": "sig"})}

    def jwks(self):
        return {"keys": [key.as_dict(private=False) for key in self.keys.values()]}

    def add_key(self, kid, key=None):
        self.keys[kid] = key or jwk.RSAKey.generate_key(2048, {"kid": kid, "use": "sig"})
        return self.keys[kid]

    def claims(self, subject="alice", **more):
        now = int(time.time())
        return {"iss": self.address, "aud": "quorate", "sub": subject, "iat": now, "exp": now + 300, **more}

    def token(self, subject="alice", *, header=(), kid="first", key=None, without=(), **more):
        claims = {name: value for name, value in self.claims(subject, **more).items() if name not in without}
        header = {"alg": ALGORITHM, "kid": kid, **dict(header)}
        header = {name: value for name, value in header.items() if value is not None}
        return jwt.encode(header, claims, key or self.keys[kid], algorithms=[header["alg"]])


@contextmanager
def issuing():
    """Run an issuer on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            pages = {"/.well-known/openid-configuration": discovery, "/jwks.json": issuer.jwks}
            self._send(pages[self.path]())

        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self._send({"access_token": issuer.token(**asked), "token_type": "Bearer", "expires_in": 300})

        def _send(self, document):
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer = Issuer(f"http://127.0.0.1:{server.server_port}")

        def discovery():
            return {"issuer": issuer.address, "jwks_uri": f"{issuer.address}/jwks.json"}

        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()


def fetch_keys(issuer, path):
    """Write the issuer's public keys into a file, as an operator does."""
    with urllib.request.urlopen(f"{issuer.address}/.well-known/openid-configuration") as answer:
        address = json.load(answer)["jwks_uri"]
    with urllib.request.urlopen(address) as answer:
        draft = path.with_suffix(".new")
        draft.write_bytes(answer.read())
        draft.replace(path)


def request_token(issuer, subject, **more):
    """Ask the issuer for a token, as a client does."""
    body = json.dumps({"subject": subject, **more}).encode()
    with urllib.request.urlopen(f"{issuer.address}/token", body) as answer:
        return json.load(answer)["access_token"]
