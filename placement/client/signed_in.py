"""Calls to the placement service that the session of an `openstack` client finds and signs in to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placement.client.client import Client, ServiceError, one_line

if TYPE_CHECKING:
    import requests
    from keystoneauth1.session import Session

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
        from keystoneauth1 import exceptions

        try:
            answer: requests.Response = self._cloud.request(
                path, method, endpoint_filter=self._filter, timeout=seconds, raise_exc=False, **sent
            )
        except exceptions.ClientException as error:
            raise ServiceError(one_line(str(error))) from None
        return answer
