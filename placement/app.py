"""Wires the rooms together."""

from __future__ import annotations

from flask import Flask

from placement.api.application import ApiSettings, create_application
from placement.services.candidates import SearchSettings
from placement.services.use_cases import UseCases
from placement.storage.database import Database


def build(database: Database, api: ApiSettings | None = None, search: SearchSettings | None = None) -> Flask:
    """The service on one database, whose schema must be current."""
    return create_application(UseCases(database, search or SearchSettings()), api or ApiSettings())
