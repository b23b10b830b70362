"""Calls to a placement service over HTTP, for the commands that need one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from placement.common.microversions import NEWEST
from placement.engine.domain.errors import PlacementError
from placement.engine.domain.identifiers import is_loopback
from placement.engine.numa.cpus import format_cpu_list

if TYPE_CHECKING:
    import requests

VERSION = str(NEWEST)
"""The newest microversion; bodies are read and written in its form."""
HEADERS = {"Accept": "application/json", "OpenStack-API-Version": f"placement {VERSION}"}
"""The headers of every request that is not in the form of another microversion."""

_CONNECT_SECONDS = 5
ANSWER_SECONDS = 120
"""How long to wait for an answer; searches may take long."""
_UNAUTHORIZED = 401
_PAGE = 1000
_OWN_ROUTES, _NO_ROUTE = "/ext/v1/", "The resource could not be found."
_LONGEST_TEXT = 200
_NEAREST = 3
# Files for TLS: the authority of the service, and the certificate and key of the caller.
AUTHORITY_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE = (
    "PLACEMENT_CACERT",
    "PLACEMENT_CERT",
    "PLACEMENT_KEY",
)

Query = Iterable[tuple[str, str]]


class ServiceError(PlacementError):
    """The service cannot be reached (no `status`), or refuses a call; text and code are what it says."""

    def __init__(self, message: str, status: int | None = None, code: str | None = None) -> None:
        super().__init__(message, code)
        self.status = status


class Client:
    """A client of one service for one caller that keeps the connection for the next call."""

    _hint = "Is --token, or $PLACEMENT_TOKEN, right?"

    def __init__(self, url: str, token: str, given_as: str = "--url") -> None:
        if not (token.isascii() and token.isprintable()):
            raise ServiceError("--token: must be printable ASCII")
        if "@" in url:
            # Messages have the URL, and the synchronization's log has the messages.
            raise ServiceError(
                f"{given_as}: takes no user and no password; a token goes into $PLACEMENT_TOKEN"
            )
        self._url = url.rstrip("/")
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError:
            raise ServiceError(f"{given_as}: {url} is not a URL") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ServiceError(f"{given_as}: {url} must start with http://HOST or https://HOST")
        # Imported here, as the help of a command asks no service.
        from placement.client.session import TOKEN_HEADER, Session

        self._session = Session()
        # A proxy of the environment does not know what we call loopback.
        self._session.trust_env = not is_loopback(parts.hostname)
        self._session.headers.update({**HEADERS, TOKEN_HEADER: token})

    @property
    def url(self) -> str:
        """Return where the service is."""
        return self._url

    def get(self, path: str, query: Query = ()) -> Any:
        """Return the body of a GET. Raises ServiceError."""
        return self._call("GET", path, params=list(query))

    def entries(
        self,
        path: str,
        member: str,
        cursor: str,
        query: Query = (),
        most: int | None = None,
        look: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Return the entries of a list that comes in pages, of at most `most`. Raises ServiceError.

        `member` holds the entries of a page, `cursor` asks for the page after `next`. The first page is read
        at once, and `look` gets the whole of it.
        """
        query = [*query, ("limit", str(min(most or _PAGE, _PAGE)))]

        def entries(page: dict[str, Any]) -> Iterator[dict[str, Any]]:
            yield from page[member]
            while page["next"] is not None:
                page = self.get(path, [*query, (cursor, str(page["next"]))])
                yield from page[member]

        first = self.get(path, query)
        if look is not None:
            look(first)
        return entries(first)

    def put(
        self, path: str, body: object, version: str = VERSION, headers: Mapping[str, str] | None = None
    ) -> Any:
        """Put JSON in the form of a microversion, and return the body of the answer. Raises ServiceError."""
        return self._call("PUT", path, {**in_version(version), **(headers or {})}, json=body)

    def post(self, path: str, body: object, seconds: float = ANSWER_SECONDS) -> Any:
        """Post JSON and return the body of the answer; waits at most `seconds`. Raises ServiceError."""
        return self._call("POST", path, seconds=seconds, json=body)

    def delete(self, path: str, query: Query = ()) -> None:
        """Send a DELETE. Raises ServiceError."""
        self._call("DELETE", path, params=list(query))

    def _call(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] = HEADERS,
        seconds: float = ANSWER_SECONDS,
        **sent: Any,
    ) -> Any:
        answer = self._send(method, path, seconds, headers=headers, **sent)
        if answer.status_code == _UNAUTHORIZED:
            raise ServiceError(f"{_refusal(answer)} {self._hint}", _UNAUTHORIZED)
        if not answer.ok:
            reason = _refusal(answer)
            if path.startswith(_OWN_ROUTES) and reason == _NO_ROUTE:
                reason = f"{self._url} does not know {path}: it is OpenStack Placement, or an older release"
            raise ServiceError(reason, answer.status_code, _code(answer))
        if not answer.content:
            return None
        try:
            return answer.json()
        except ValueError:
            raise ServiceError(f"{self._url} answers, but is not a Placement service") from None

    def _send(
        self, method: str, path: str, seconds: float, *, again: bool = False, **sent: Any
    ) -> requests.Response:
        """Return the answer, whatever it says. Raises ServiceError where there is none."""
        import requests
        from urllib3.exceptions import ProtocolError

        certificate, key = os.environ.get(CERTIFICATE_VARIABLE), os.environ.get(KEY_VARIABLE)
        try:
            return self._session.request(
                method,
                self._url + path,
                verify=os.environ.get(AUTHORITY_VARIABLE) or None,
                # The key may be in the file of the certificate.
                cert=(certificate, key) if certificate and key else certificate,
                timeout=(_CONNECT_SECONDS, seconds),
                **sent,
            )
        except requests.exceptions.SSLError as error:
            message = f"{self._url}: TLS: {one_line(_reason_of_tls(error))} (${AUTHORITY_VARIABLE})"
            raise ServiceError(message) from None
        except requests.Timeout:
            raise ServiceError(f"{self._url} does not answer in time") from None
        except requests.ConnectionError as error:
            if error.args and isinstance(error.args[0], ProtocolError):
                # Servers close kept connections when they like: a question is asked once more.
                if method == "GET" and not again:
                    return self._send(method, path, seconds, again=True, **sent)
                raise ServiceError(f"{self._url} closed the connection before it answered") from None
            raise ServiceError(
                f"{self._url} cannot be reached; is the service running, and --url right?"
            ) from None
        except (OSError, ValueError) as error:
            # Errors of requests are OSErrors, too, as is the one for unreadable files of certificates.
            raise ServiceError(f"{self._url}: {one_line(str(error))}") from None


def _reason_of_tls(error: requests.exceptions.SSLError) -> str:
    """Return the reason that TLS itself gives, without what the libraries add to it."""
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    return str(reason.args[0] if isinstance(reason, Exception) and reason.args else error)


def in_version(version: str) -> dict[str, str]:
    """Return the headers of a request in the form of a microversion."""
    return {**HEADERS, "OpenStack-API-Version": f"placement {version}"}


def path(*segments: str) -> str:
    """Return an absolute path of these segments. Raises ServiceError for a segment that cannot be one.

    On the way to the service dots and slashes count as steps in the path, even if quoted. A DELETE must not
    end up one step higher.
    """
    for segment in segments:
        if segment in ("", ".", "..") or "/" in segment:
            raise ServiceError(f"{segment!r} is not a name: it is empty, only dots, or contains a slash")
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


def _refusal(answer: requests.Response) -> str:
    """Return the messages of the error body; other servers on the way may answer anything."""
    try:
        messages = list(_together(answer.json()["errors"]))
    except (ValueError, LookupError, TypeError, AttributeError):
        messages = [one_line(answer.text)[:_LONGEST_TEXT]]
    given = "; ".join(filter(None, messages))
    return given or f"the service answers {answer.status_code} {answer.reason}"


def _code(answer: requests.Response) -> str | None:
    """Return the code of the first error in the body, None where there is none."""
    try:
        code = answer.json()["errors"][0]["code"]
    except (ValueError, LookupError, TypeError):
        return None
    return code if isinstance(code, str) else None


def _together(errors: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the messages in order; equal ones about several members of a claim are one."""
    alike: dict[str, list[int]] = {}
    for error in errors:
        message, number = message_of(error), _member(error)
        place = "" if number is None else f"members[{number}]: "
        numbers = alike.setdefault(message.removeprefix(place), [])
        numbers += [] if number is None else [number]
    for message, numbers in alike.items():
        yield f"members[{format_cpu_list(numbers)}]: {message}" if numbers else message


def _member(error: Mapping[str, Any]) -> int | None:
    """Return the number of the member of a claim that an error is about, None for other errors."""
    _, *steps = (error.get("field") or "").split("/")
    is_member = len(steps) == 2 and steps[0] == "members" and steps[1].isdecimal()
    return int(steps[1]) if is_member else None


def message_of(error: Mapping[str, Any]) -> str:
    """Return the message of an error, with the near misses of a request that fits nowhere."""
    # A sentence about the status comes first; what is the matter is the last line.
    text = error["detail"].strip().splitlines()[-1].strip()
    nearest = [line for miss in error.get("explanation", {}).get("nearest", ()) for line in miss["sentences"]]
    return "; ".join([text, *nearest[:_NEAREST]])


def one_line(text: str) -> str:
    """Return a text of several lines in one."""
    return " ".join(text.split())
