"""Calls to the placement service that the session of an `openstack` client finds and signs in to."""

from __future__ import annotations

from collections.abc import Mapping

import requests
from keystoneauth1 import exceptions
from keystoneauth1.session import Session

from placement.operations.client import Client, ServiceError

_SERVICE = "placement"


class SignedIn(Client):
    """The placement service of a cloud, as the user of the session."""

    _hint = "Is the user of the openstack client the right one?"
    _url = "the placement service of the cloud"

    def __init__(self, session: Session, region: str | None, interface: str | None) -> None:
        self._cloud = session
        self._filter = {"service_type": _SERVICE, "region_name": region, "interface": interface}

    def _send(
        self,
        method: str,
        path: str,
        body: object,
        query: list[tuple[str, str]],
        headers: Mapping[str, str],
        seconds: float,
    ) -> requests.Response:
        """The answer, whatever it says. Raises ServiceError where there is none."""
        try:
            answer: requests.Response = self._cloud.request(
                path,
                method,
                json=body,
                params=query,
                headers=headers,
                endpoint_filter=self._filter,
                timeout=seconds,
                raise_exc=False,
            )
        except exceptions.ClientException as error:
            raise ServiceError(" ".join(str(error).split())) from None
        return answer
