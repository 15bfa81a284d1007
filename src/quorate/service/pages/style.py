"""The look of the pages, and the policy under which a browser may show them: our style and nothing else."""

import base64
import hashlib
from importlib import resources

__all__ = ["CONTENT_SECURITY_POLICY", "ICON", "STYLE", "STYLE_HASH"]

STYLE = resources.files("quorate.service.pages").joinpath("style.css").read_text("utf-8")
STYLE_HASH = "sha256-" + base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

# A ballot with its mark. A page without an icon makes the browser ask for one.
ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Crect x='1.5' y='1.5' width='13' height='13' rx='3' fill='%230072b2'/%3E"
    "%3Cpath d='M4.6 8.3l2.4 2.5 4.5-5.4' fill='none' stroke='%23fff' stroke-width='1.8'/%3E%3C/svg%3E"
)

CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src '{STYLE_HASH}'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
