"""Whether more than use may have changed of a provider, said in SQL.

Every write stamps `revision`. A claim changes use only, and says so: it stamps `usage_revision`, too, and
keeps in `content_revision` the stamp of the last write that said nothing of the kind. So a writer that knows
nothing of this, as those of the release before, needs to do nothing but stamp. Only where one transaction
does both, claims first, the other write has to clear `usage_revision`.
"""

from __future__ import annotations

CONTENT = (
    "CASE WHEN resource_providers.usage_revision = resource_providers.revision"
    " THEN resource_providers.content_revision ELSE resource_providers.revision END"
)
"""The stamp of the last write that may have changed more than use and generation of a provider.

Two states of a provider within one history of writes that have the same one differ in nothing else. Only
whether they are equal means something: writers may commit in another order than they are stamped in.
"""
