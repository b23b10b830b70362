"""The options that libraries read from our configuration, so that a slip in one of them is noticed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from oslo_config import cfg

_KEYSTONE = "keystone_authtoken"
# Which module lists the options of a group.
_LISTED_BY = {
    "DEFAULT": "oslo_log._options",
    "oslo_policy": "oslo_policy.opts",
    "cors": "oslo_middleware.opts",
    "oslo_middleware": "oslo_middleware.opts",
}
# Older configurations have it; by now scopes are always enforced.
_FORMER = {"oslo_policy": [cfg.BoolOpt("enforce_scope")]}


def options_of(group: str) -> Sequence[cfg.Opt] | None:
    """What libraries read of the group; None if that is not known."""
    if group == _KEYSTONE:
        return _of_keystone()
    module = _LISTED_BY.get(group)
    if module is None:
        return None
    listed = import_module(module).list_opts()
    options = [option for section, those in listed if section in (group, None) for option in those]
    return [*options, *_FORMER.get(group, ())]


def _of_keystone() -> Sequence[cfg.Opt] | None:
    """Those of the middleware and of signing in by password; None where the extra `keystone` is missing."""
    try:
        from keystoneauth1 import loading
        from keystonemiddleware.opts import list_auth_token_opts
    except ImportError:
        return None
    options = [option for _, listed in list_auth_token_opts() for option in listed]
    return [*options, *loading.get_auth_plugin_conf_options(loading.get_plugin_loader("password"))]
