"""What a consumer holds is shown without dedicated CPUs where a service shows none; that it fails is told."""

from typing import Any

import pytest

from placement.client.client import Client, ServiceError
from placement.client.commands.allocation import _dedicated_cpus


class Refusing(Client):
    """A service that answers every request so."""

    def __init__(self, status: int | None) -> None:
        super().__init__("http://127.0.0.1:1", "token")
        self._status = status

    def get(self, *_: Any, **__: Any) -> Any:
        raise ServiceError("refused", self._status)


@pytest.mark.parametrize("status", [403, 404])
def test_a_service_without_the_path_or_the_right_shows_the_rest(status: int):
    assert _dedicated_cpus(Refusing(status), "consumer") is None


@pytest.mark.parametrize("status", [None, 401, 500, 503])
def test_a_failure_is_told(status: int | None):
    with pytest.raises(ServiceError):
        _dedicated_cpus(Refusing(status), "consumer")
