"""The policy rules of every route, with their defaults. Source: placement-api.md, "Policy rules".

Administrators and services may do everything, except that reshaping is for services: moving inventories
under live allocations is something deployments do, not people. Older deployments had the role admin only; as
long as `[oslo_policy] enforce_new_defaults` is False that role passes every rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from oslo_policy import policy

_SINCE = "1.0"
_REASON = "Roles beside the administrator's were introduced."
_SCOPES = ["project"]

ELSEWHERE = "elsewhere_api"
"""The rule for what concerns no cluster that the caller's token is bound to."""

_BASES = {
    "admin_api": ("role:admin", "Administrators."),
    "service_api": ("role:service", "Services, such as the compute service."),
    "admin_or_service_api": ("rule:admin_api or rule:service_api", "Administrators and services."),
    "project_reader_api": (
        "role:reader and project_id:%(project_id)s",
        "Readers of the project that is asked about.",
    ),
    "admin_or_project_reader_or_service_api": (
        "rule:admin_api or rule:project_reader_api or rule:service_api",
        "Administrators, services, and readers of the project that is asked about.",
    ),
    ELSEWHERE: (
        "!",
        "Who of those whose tokens are bound to clusters may ask for what concerns no cluster; the rule of "
        "the route must let them pass, too.",
    ),
}
_ADMIN_OR_SERVICE = "rule:admin_or_service_api"
_PROVIDERS = "/resource_providers"
_PROVIDER = "/resource_providers/{uuid}"
_CLUSTERS = "/ext/v1/clusters"
_CLUSTER = "/ext/v1/clusters/{cluster}"
_NODE = "/ext/v1/clusters/{cluster}/nodes/{node}"
_RESERVATION = "/ext/v1/clusters/{cluster}/reservations/{name}"
_POD = "/ext/v1/clusters/{cluster}/pods/{namespace}/{name}"

Operations = tuple[tuple[str, str], ...]
# By rule: what it allows, its routes, and its check if that is not _ADMIN_OR_SERVICE.
_RULES: dict[str, tuple[str, Operations] | tuple[str, Operations, str]] = {
    "resource_providers:list": (
        "List resource providers.",
        (("GET", _PROVIDERS), ("GET", "/ext/v1/resource_providers")),
    ),
    "resource_providers:create": ("Create a resource provider.", (("POST", _PROVIDERS),)),
    "resource_providers:show": ("Show a resource provider.", (("GET", _PROVIDER),)),
    "resource_providers:update": ("Rename or move a resource provider.", (("PUT", _PROVIDER),)),
    "resource_providers:delete": ("Delete a resource provider.", (("DELETE", _PROVIDER),)),
    "resource_classes:list": ("List resource classes.", (("GET", "/resource_classes"),)),
    "resource_classes:create": ("Create a resource class.", (("POST", "/resource_classes"),)),
    "resource_classes:show": ("Show a resource class.", (("GET", "/resource_classes/{name}"),)),
    "resource_classes:update": ("Create or rename a resource class.", (("PUT", "/resource_classes/{name}"),)),
    "resource_classes:delete": ("Delete a resource class.", (("DELETE", "/resource_classes/{name}"),)),
    "resource_providers:inventories:list": ("List inventories.", (("GET", f"{_PROVIDER}/inventories"),)),
    "resource_providers:inventories:create": ("Add an inventory.", (("POST", f"{_PROVIDER}/inventories"),)),
    "resource_providers:inventories:show": (
        "Show an inventory.",
        (("GET", f"{_PROVIDER}/inventories/{{resource_class}}"),),
    ),
    "resource_providers:inventories:update": (
        "Replace one or all inventories.",
        (
            ("PUT", f"{_PROVIDER}/inventories"),
            ("PUT", f"{_PROVIDER}/inventories/{{resource_class}}"),
        ),
    ),
    "resource_providers:inventories:delete": (
        "Delete one or all inventories.",
        (
            ("DELETE", f"{_PROVIDER}/inventories"),
            ("DELETE", f"{_PROVIDER}/inventories/{{resource_class}}"),
        ),
    ),
    "resource_providers:aggregates:list": ("List aggregates.", (("GET", f"{_PROVIDER}/aggregates"),)),
    "resource_providers:aggregates:update": ("Replace aggregates.", (("PUT", f"{_PROVIDER}/aggregates"),)),
    "resource_providers:usages": ("Show what is used of a provider.", (("GET", f"{_PROVIDER}/usages"),)),
    "resource_providers:allocations:list": (
        "List the allocations on a provider.",
        (("GET", f"{_PROVIDER}/allocations"),),
    ),
    "resource_providers:traits:list": ("List a provider's traits.", (("GET", f"{_PROVIDER}/traits"),)),
    "resource_providers:traits:update": ("Replace a provider's traits.", (("PUT", f"{_PROVIDER}/traits"),)),
    "resource_providers:traits:delete": ("Remove a provider's traits.", (("DELETE", f"{_PROVIDER}/traits"),)),
    "traits:list": ("List traits.", (("GET", "/traits"),)),
    "traits:show": ("Show a trait.", (("GET", "/traits/{name}"),)),
    "traits:update": ("Create a trait.", (("PUT", "/traits/{name}"),)),
    "traits:delete": ("Delete a trait.", (("DELETE", "/traits/{name}"),)),
    "allocations:list": ("List a consumer's allocations.", (("GET", "/allocations/{consumer}"),)),
    "allocations:update": ("Replace a consumer's allocations.", (("PUT", "/allocations/{consumer}"),)),
    "allocations:delete": ("Delete a consumer's allocations.", (("DELETE", "/allocations/{consumer}"),)),
    "allocations:manage": ("Replace many consumers' allocations.", (("POST", "/allocations"),)),
    "allocations:list_all": ("List the allocations of all consumers.", (("GET", "/ext/v1/allocations"),)),
    "allocation_candidates:list": (
        "List allocation candidates.",
        (
            ("GET", "/allocation_candidates"),
            ("GET", "/ext/v1/allocation_candidates"),
            ("POST", "/ext/v1/allocation_candidates"),
        ),
    ),
    "claims:create": ("Claim the best candidate of a query.", (("POST", "/ext/v1/claims"),)),
    "usages": (
        "Show what a project uses.",
        (("GET", "/usages"),),
        "rule:admin_or_project_reader_or_service_api",
    ),
    "reshaper:reshape": (
        "Move inventories and allocations together.",
        (("POST", "/reshaper"),),
        "rule:service_api",
    ),
    "clusters:list": ("List clusters.", (("GET", _CLUSTERS),)),
    "clusters:show": ("Show a cluster.", (("GET", _CLUSTER),)),
    "clusters:update": ("Create or change a cluster.", (("PUT", _CLUSTER),)),
    "clusters:delete": ("Delete a cluster.", (("DELETE", _CLUSTER),)),
    "clusters:nodes:list": ("List the nodes of a cluster.", (("GET", f"{_CLUSTER}/nodes"),)),
    "clusters:nodes:show": ("Show a node.", (("GET", _NODE),)),
    "clusters:nodes:update": ("Import a node.", (("PUT", _NODE),)),
    "clusters:nodes:delete": ("Delete a node.", (("DELETE", _NODE),)),
    "clusters:pods:list": ("List the pods of a cluster.", (("GET", f"{_CLUSTER}/pods"),)),
    "clusters:pods:show": ("Show a pod.", (("GET", _POD),)),
    "clusters:pods:update": ("Place a pod, or record where it runs.", (("PUT", _POD),)),
    "clusters:pods:delete": ("Release a pod.", (("DELETE", _POD),)),
    "clusters:pods:translate": (
        "Translate a pod to queries.",
        (("POST", f"{_CLUSTER}/pods/translation"),),
    ),
    "clusters:pods:preview": ("Show where a pod would go.", (("POST", f"{_CLUSTER}/pods/preview"),)),
    "clusters:reservations:list": (
        "List the reservations of a cluster.",
        (("GET", f"{_CLUSTER}/reservations"),),
    ),
    "clusters:reservations:show": ("Show a reservation.", (("GET", _RESERVATION),)),
    "clusters:reservations:update": (
        "Place a reservation, or change its terms.",
        (("PUT", _RESERVATION),),
    ),
    "clusters:reservations:delete": ("Release a reservation.", (("DELETE", _RESERVATION),)),
    "clusters:extender:filter": (
        "Ask, as a scheduler, which nodes fit a pod.",
        (("POST", f"{_CLUSTER}/extender/filter"),),
    ),
    "clusters:extender:prioritize": (
        "Ask, as a scheduler, how well nodes fit a pod.",
        (("POST", f"{_CLUSTER}/extender/prioritize"),),
    ),
    "clusters:extender:preempt": (
        "Ask, as a scheduler, whom to evict so that a pod fits.",
        (("POST", f"{_CLUSTER}/extender/preempt"),),
    ),
    "clusters:extender:bind": (
        "Bind, as a scheduler, a pod to a node.",
        (("POST", f"{_CLUSTER}/extender/bind"),),
    ),
    "audit:list": ("List changes and their callers.", (("GET", "/ext/v1/audit"),), "rule:admin_api"),
    "events:list": (
        "Follow changes of providers and consumers.",
        (("GET", "/ext/v1/events"),),
    ),
    "capacity:show": (
        "Ask how many more fit.",
        (("GET", "/ext/v1/capacity"), ("POST", "/ext/v1/capacity")),
    ),
    "plans:make": (
        "Ask which moves would free an amount or empty hosts, and whether they are still possible.",
        (("POST", "/ext/v1/plans"), ("POST", "/ext/v1/plans/check")),
    ),
    "flavors:translate": ("Translate a nova flavor.", (("POST", "/ext/v1/flavors/translation"),)),
    "flavors:candidates": ("Find where a nova flavor fits.", (("POST", "/ext/v1/flavors/candidates"),)),
}


def list_rules() -> Iterator[policy.RuleDefault]:
    """Yield all rules, for the generators and checkers of the policy library."""
    for name, (check, description) in _BASES.items():
        yield policy.RuleDefault(name, check, description=description)
    for name, (description, operations, *passing) in _RULES.items():
        yield _documented(f"placement:{name}", description, operations, *passing)


def _documented(
    name: str, description: str, operations: Operations, passing: str = _ADMIN_OR_SERVICE
) -> policy.DocumentedRuleDefault:
    return policy.DocumentedRuleDefault(
        name=name,
        check_str=passing,
        description=description,
        operations=[{"method": method, "path": path} for method, path in operations],
        scope_types=_SCOPES,
        deprecated_rule=policy.DeprecatedRule(
            name=name, check_str="rule:admin_api", deprecated_reason=_REASON, deprecated_since=_SINCE
        ),
    )
