"""The objects of an application, each found by its class; see `http.context.service`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from flask import Flask

from placement.http.context import REGISTRY

T = TypeVar("T")


class Registry:
    """The objects of one application, each under its class."""

    def __init__(self) -> None:
        self.objects: dict[type, Any] = {}
        self._closes: list[Callable[[], None]] = []

    def __getitem__(self, kind: type[T]) -> T:
        """Return the object of this class. Raises KeyError."""
        found: T = self.objects[kind]
        return found

    def add(self, *objects: object) -> None:
        """Add objects, each under its own class."""
        self.objects.update({type(each): each for each in objects})

    def put(self, kind: type[T], chosen: T) -> None:
        """Have an object found under a class that is not its own, or instead of a former one, as in tests."""
        self.objects[kind] = chosen

    def copy(self) -> Registry:
        """Return another registry of these objects, for an application beside this one."""
        registry = Registry()
        registry.objects.update(self.objects)
        registry._closes.extend(self._closes)
        return registry

    def close_with(self, *closes: Callable[[], None]) -> None:
        """Have functions called once the objects are needed no more."""
        self._closes.extend(closes)

    def close(self) -> None:
        """Give back what the objects keep, such as connections for looking at changes."""
        for close in self._closes:
            close()


def install(registry: Registry, application: Flask) -> None:
    """Have the requests of an application find these objects."""
    application.extensions[REGISTRY] = registry


def registry_of(application: Flask) -> Registry:
    """Return the registry of an application."""
    registry: Registry = application.extensions[REGISTRY]
    return registry
