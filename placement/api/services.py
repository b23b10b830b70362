"""The use cases of the application at hand."""

from __future__ import annotations

from flask import current_app

from placement.services.use_cases import UseCases


def use_cases() -> UseCases:
    """What this application's routes may call."""
    found: UseCases = current_app.extensions["placement_use_cases"]
    return found
