"""State machines against a service of their own: the parts that all of them have."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine

from placement.app import build
from placement.http.registry import registry_of
from placement.storage.database import Database
from tests.client import Client
from tests.conftest import compatible
from tests.pod_invariants import nothing_is_held
from tests.server import database_url


class ServiceMachine(RuleBasedStateMachine):
    """Calls in random order on an empty database, which they have to leave as they found it."""

    backend = "sqlite"

    def __init__(self) -> None:
        super().__init__()
        self._scope = database_url(self.backend)
        self.database = Database(self._scope.__enter__(), durable=False)
        application = build(self.database, compatible())
        self.registry = registry_of(application)
        self.api = Client(application.test_client())

    def release_everything(self) -> None:
        """End all that the calls left behind."""
        raise NotImplementedError

    def delete_everything(self) -> None:
        """Delete what held it, if that is part of the promise."""

    def teardown(self) -> None:
        try:
            self.release_everything()
            assert nothing_is_held(self.database)
            self.delete_everything()
        finally:
            self.registry.close()
            self.database.dispose()
            self._scope.__exit__(None, None, None)


def of_many_steps(examples: int) -> settings:
    """Settings for so many runs.

    Shrinking would run thousands of them; the steps of a failing one are printed as they are.
    """
    return settings(
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        max_examples=examples,
        stateful_step_count=25,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
