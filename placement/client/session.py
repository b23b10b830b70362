"""The HTTP session of a client, a module of its own as its library takes a tenth of a second to import."""

from __future__ import annotations

import requests

TOKEN_HEADER = "X-Auth-Token"


class Session(requests.Session):
    """A session that does not send the token to other hosts when the service or a proxy redirects."""

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Drop our token before a redirect to another host; the library only knows other headers."""
        super().rebuild_auth(prepared_request, response)  # type: ignore[no-untyped-call]
        before, after = response.request.url, prepared_request.url
        if self.should_strip_auth(before, after):  # type: ignore[no-untyped-call]
            prepared_request.headers.pop(TOKEN_HEADER, None)
