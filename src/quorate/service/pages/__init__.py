"""Pages for people: the dashboard and the description of the API. They load nothing and run no script.

    dashboard_page             models, budgets, traffic, keys, refusals, ledgers
    docs_page                  the OpenAPI document, to be read
    CONTENT_SECURITY_POLICY    the header to serve both with: our own style and an icon, nothing else

The templates escape every value. Neither page can show a feature, an answer or a vote: none is handed to it.
"""

from quorate.service.pages._dashboard import ModelView, dashboard_page
from quorate.service.pages._rendering import CONTENT_SECURITY_POLICY, docs_page

__all__ = ["CONTENT_SECURITY_POLICY", "ModelView", "dashboard_page", "docs_page"]
