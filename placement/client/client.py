"""Calls to a placement service over HTTP, for the commands that need one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import requests
from keystoneauth1 import exceptions
from keystoneauth1.session import Session
from urllib3.exceptions import ProtocolError

from placement.common.microversions import NEWEST
from placement.engine.domain.errors import PlacementError
from placement.engine.domain.identifiers import is_loopback
from placement.engine.numa.cpus import format_cpu_list

VERSION = str(NEWEST)
"""The newest microversion; bodies are read and written in its form."""
HEADERS = {"Accept": "application/json", "OpenStack-API-Version": f"placement {VERSION}"}
"""The headers of every request that is not in the form of another microversion."""

_TOKEN = "X-Auth-Token"
_CONNECT_SECONDS = 5
ANSWER_SECONDS = 120
"""How long to wait for an answer; searches may take long."""
_UNAUTHORIZED = 401
_OWN_ROUTES, _NO_ROUTE = "/ext/v1/", "The resource could not be found."
_LONGEST_TEXT = 200
_NEAREST = 3
# How the incumbent's messages about bodies and parameters begin, and the rule that follows them.
_OF_BODIES = "JSON does not validate: "
_OF_QUERIES = "Invalid query string parameters: "
_RULE = "  Failed validating "
_REGEXES = re.compile(r"do(?:es)? not match any of the regexes: .*")
_COUNT = "does not match '^[1-9][0-9]*$'"
_PLACE = re.compile(r"  On instance((?:\[[^\]]*\])+):")
_MEMBER = re.compile(r"members\[(\d+)\]: ")
_PARTS = re.compile(r"\['?([^\]']*)'?\]")

# Files for TLS: the authority of the service, and the certificate and key of the caller.
AUTHORITY_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE = (
    "PLACEMENT_CACERT",
    "PLACEMENT_CERT",
    "PLACEMENT_KEY",
)

Query = Iterable[tuple[str, str]]


class ServiceError(PlacementError):
    """The service cannot be reached (no `status`), or refuses a call; the text is what it says."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
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
        self._session = _Session()
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError:
            raise ServiceError(f"{given_as}: {url} is no URL") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ServiceError(f"{given_as}: {url} does not begin with http://HOST or https://HOST")
        # A proxy of the environment does not know what we call loopback.
        self._session.trust_env = not is_loopback(parts.hostname)
        self._session.headers.update({**HEADERS, _TOKEN: token})

    @property
    def url(self) -> str:
        """Return where the service is."""
        return self._url

    def get(self, path: str, query: Query = ()) -> Any:
        """Return the body of a GET. Raises ServiceError."""
        return self._call("GET", path, params=list(query))

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
            raise ServiceError(reason, answer.status_code)
        if not answer.content:
            return None
        try:
            return answer.json()
        except ValueError:
            raise ServiceError(f"{self._url} answers, but is no placement service") from None

    def _send(
        self, method: str, path: str, seconds: float, *, again: bool = False, **sent: Any
    ) -> requests.Response:
        """Return the answer, whatever it says. Raises ServiceError where there is none."""
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
            # The reason that TLS itself gives, without what the libraries add to it.
            reason = getattr(error.args[0] if error.args else None, "reason", None)
            given = reason.args[0] if isinstance(reason, Exception) and reason.args else error
            message = f"{self._url}: TLS: {_one_line(str(given))} (${AUTHORITY_VARIABLE})"
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
            raise ServiceError(f"{self._url}: {_one_line(str(error))}") from None


def in_version(version: str) -> dict[str, str]:
    """Return the headers of a request in the form of a microversion."""
    return {**HEADERS, "OpenStack-API-Version": f"placement {version}"}


class _Session(requests.Session):
    """A session that does not send the token to other hosts when the service or a proxy redirects."""

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Drop our token before a redirect to another host; the library only knows other headers."""
        super().rebuild_auth(prepared_request, response)  # type: ignore[no-untyped-call]
        before, after = response.request.url, prepared_request.url
        if self.should_strip_auth(before, after):  # type: ignore[no-untyped-call]
            prepared_request.headers.pop(_TOKEN, None)


def path(*segments: str) -> str:
    """Return an absolute path of these segments. Raises ServiceError for a segment that cannot be one.

    On the way to the service dots and slashes count as steps in the path, even if quoted. A DELETE must not
    end up one step higher.
    """
    for segment in segments:
        if segment in ("", ".", "..") or "/" in segment:
            raise ServiceError(f"{segment!r} is no name: it is empty, dots only, or has a slash")
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


def _refusal(answer: requests.Response) -> str:
    """Return the messages of the error body; other servers on the way may answer anything."""
    try:
        messages = [message_of(error) for error in answer.json()["errors"]]
    except (ValueError, LookupError, TypeError, AttributeError):
        messages = [_one_line(answer.text)[:_LONGEST_TEXT]]
    given = "; ".join(_together(filter(None, messages)))
    return given or f"the service answers {answer.status_code} {answer.reason}"


def _together(messages: Iterable[str]) -> Iterator[str]:
    """Yield the messages in order; equal ones about several members of a claim are one."""
    alike: dict[str, list[int]] = {}
    for message in messages:
        member = _MEMBER.match(message)
        numbers = alike.setdefault(message[member.end() :] if member else message, [])
        numbers += [int(member[1])] if member else []
    for message, numbers in alike.items():
        yield f"members[{format_cpu_list(numbers)}]: {message}" if numbers else message


def _without_schema(message: str) -> str:
    """Return a message with the field in front and without the schema that was broken."""
    shown, broken, rule = message.partition(_RULE)
    if not broken:
        return message
    shown = _REGEXES.sub("is no parameter of this request", shown)
    shown = shown.replace(_COUNT, "is no whole number from 1")
    shown = shown.removeprefix(_OF_BODIES).removeprefix(_OF_QUERIES)
    place = _PLACE.search(rule)
    field = ".".join(_PARTS.findall(place[1])) if place else ""
    return f"{field}: {shown}" if field else shown


def message_of(error: Mapping[str, Any]) -> str:
    """Return the message of an error, with the near misses of a request that fits nowhere."""
    # A sentence about the status comes first; what is the matter is the last line.
    text = error["detail"].strip().splitlines()[-1].strip()
    nearest = [line for miss in error.get("explanation", {}).get("nearest", ()) for line in miss["sentences"]]
    return "; ".join([_without_schema(text), *nearest[:_NEAREST]])


def _one_line(text: str) -> str:
    return " ".join(text.split())


# Calls to the placement service that the session of an `openstack` client finds and signs in to.


_SERVICE = "placement"


class SignedIn(Client):
    """A client of the placement service of a cloud that acts as the user of the session."""

    _hint = "Is the user of the openstack client the right one?"
    _url = "the placement service of the cloud"

    def __init__(self, session: Session, region: str | None, interface: str | None) -> None:
        self._cloud = session
        self._filter = {"service_type": _SERVICE, "region_name": region, "interface": interface}

    def _send(self, method: str, path: str, seconds: float, **sent: Any) -> requests.Response:
        """Return the answer, whatever it says. Raises ServiceError where there is none."""
        try:
            answer: requests.Response = self._cloud.request(
                path, method, endpoint_filter=self._filter, timeout=seconds, raise_exc=False, **sent
            )
        except exceptions.ClientException as error:
            raise ServiceError(_one_line(str(error))) from None
        return answer
