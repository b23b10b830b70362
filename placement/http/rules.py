"""The policy rules of every route, with their defaults. Source: placement-api.md, "Policy rules".

Administrators and services may do everything, except that reshaping is for services: moving inventories
under live allocations is something deployments do, not people. The role extender is for kube-scheduler, which
has its token in a URL: it may ask the scheduler extender, and nothing else. Older deployments had the role
admin only; as long as `[oslo_policy] enforce_new_defaults` is False that role passes every rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oslo_policy import policy

from placement.common.extender_protocol import BIND, FILTER, PREEMPT, PRIORITIZE

READER = "placement:reader_api"
"""The rule for roles that may read everything; by default no role may."""
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
    "admin_or_service_or_extender_api": (
        "rule:admin_or_service_api or role:extender",
        "Administrators, services, and kube-scheduler with a token that may do nothing else.",
    ),
    READER: (
        "!",
        "Callers that may read everything: all that is asked with GET, and questions that write nothing. "
        "Set it to role:reader to give that to the role reader.",
    ),
    "admin_or_service_or_reader_api": (
        f"rule:admin_or_service_api or rule:{READER}",
        "Administrators, services, and callers that may read everything.",
    ),
    ELSEWHERE: (
        "!",
        "Callers with tokens bound to clusters that may also use routes without a cluster; the rule of the "
        "route applies as well.",
    ),
}
_PROVIDER = "/resource_providers/{uuid}"
_CLUSTER = "/ext/v1/clusters/{cluster}"
_NODE = "/ext/v1/clusters/{cluster}/nodes/{node}"
_RESERVATION = "/ext/v1/clusters/{cluster}/reservations/{name}"
_POD = "/ext/v1/clusters/{cluster}/pods/{namespace}/{name}"

# By rule: what it allows, and its routes.
_RULES: dict[str, tuple[str, ...]] = {
    "resource_providers:list": (
        "List resource providers.",
        "GET /resource_providers",
        "GET /ext/v1/resource_providers",
        "GET /ext/v1/hosts",
    ),
    "resource_providers:create": ("Create a resource provider.", "POST /resource_providers"),
    "resource_providers:show": ("Show a resource provider.", f"GET {_PROVIDER}"),
    "resource_providers:update": ("Rename or move a resource provider.", f"PUT {_PROVIDER}"),
    "resource_providers:delete": ("Delete a resource provider.", f"DELETE {_PROVIDER}"),
    "resource_classes:list": ("List resource classes.", "GET /resource_classes"),
    "resource_classes:create": ("Create a resource class.", "POST /resource_classes"),
    "resource_classes:show": ("Show a resource class.", "GET /resource_classes/{name}"),
    "resource_classes:update": ("Create or rename a resource class.", "PUT /resource_classes/{name}"),
    "resource_classes:delete": ("Delete a resource class.", "DELETE /resource_classes/{name}"),
    "resource_providers:inventories:list": ("List inventories.", f"GET {_PROVIDER}/inventories"),
    "resource_providers:inventories:create": ("Add an inventory.", f"POST {_PROVIDER}/inventories"),
    "resource_providers:inventories:show": (
        "Show an inventory.",
        f"GET {_PROVIDER}/inventories/{{resource_class}}",
    ),
    "resource_providers:inventories:update": (
        "Replace one or all inventories.",
        f"PUT {_PROVIDER}/inventories",
        f"PUT {_PROVIDER}/inventories/{{resource_class}}",
    ),
    "resource_providers:inventories:delete": (
        "Delete one or all inventories.",
        f"DELETE {_PROVIDER}/inventories",
        f"DELETE {_PROVIDER}/inventories/{{resource_class}}",
    ),
    "resource_providers:aggregates:list": ("List aggregates.", f"GET {_PROVIDER}/aggregates"),
    "resource_providers:aggregates:update": ("Replace aggregates.", f"PUT {_PROVIDER}/aggregates"),
    "aggregates:list": ("List aggregates and their names.", "GET /ext/v1/aggregates"),
    "aggregates:update": ("Name an aggregate.", "PUT /ext/v1/aggregates/{uuid}"),
    "resource_providers:usages": ("Show the usages of a provider.", f"GET {_PROVIDER}/usages"),
    "resource_providers:allocations:list": (
        "List the allocations on a provider.",
        f"GET {_PROVIDER}/allocations",
    ),
    "resource_providers:traits:list": ("List a provider's traits.", f"GET {_PROVIDER}/traits"),
    "resource_providers:traits:update": ("Replace a provider's traits.", f"PUT {_PROVIDER}/traits"),
    "resource_providers:traits:delete": ("Remove a provider's traits.", f"DELETE {_PROVIDER}/traits"),
    "traits:list": ("List traits.", "GET /traits"),
    "traits:show": ("Show a trait.", "GET /traits/{name}"),
    "traits:update": ("Create a trait.", "PUT /traits/{name}"),
    "traits:delete": ("Delete a trait.", "DELETE /traits/{name}"),
    "allocations:list": ("List a consumer's allocations.", "GET /allocations/{consumer}"),
    "allocations:update": ("Replace a consumer's allocations.", "PUT /allocations/{consumer}"),
    "allocations:delete": ("Delete a consumer's allocations.", "DELETE /allocations/{consumer}"),
    "allocations:manage": ("Replace many consumers' allocations.", "POST /allocations"),
    "allocations:list_all": ("List the allocations of all consumers.", "GET /ext/v1/allocations"),
    "orphans:list": ("List what may be left over.", "GET /ext/v1/orphans"),
    "allocation_candidates:list": (
        "List allocation candidates.",
        "GET /allocation_candidates",
        "GET /ext/v1/allocation_candidates",
        "POST /ext/v1/allocation_candidates",
    ),
    "claims:create": ("Claim the best candidate of a query.", "POST /ext/v1/claims"),
    "usages": ("Show the usages of a project.", "GET /usages"),
    "reshaper:reshape": ("Move inventories and allocations together.", "POST /reshaper"),
    "clusters:list": ("List clusters.", "GET /ext/v1/clusters"),
    "clusters:show": ("Show a cluster.", f"GET {_CLUSTER}"),
    "clusters:update": ("Create or change a cluster.", f"PUT {_CLUSTER}"),
    "clusters:delete": ("Delete a cluster.", f"DELETE {_CLUSTER}"),
    "clusters:nodes:list": ("List the nodes of a cluster.", f"GET {_CLUSTER}/nodes"),
    "clusters:nodes:show": ("Show a node.", f"GET {_NODE}"),
    "clusters:nodes:update": ("Import a node.", f"PUT {_NODE}"),
    "clusters:nodes:delete": ("Delete a node.", f"DELETE {_NODE}"),
    "clusters:pods:list": ("List the pods of a cluster.", f"GET {_CLUSTER}/pods"),
    "clusters:pods:show": ("Show a pod.", f"GET {_POD}"),
    "clusters:pods:update": (
        "Place a pod, record where it runs, or confirm that it was bound.",
        f"PUT {_POD}",
        f"POST {_CLUSTER}/pods",
        f"POST {_CLUSTER}/pods/bound",
    ),
    "clusters:pods:delete": ("Release a pod.", f"DELETE {_POD}"),
    "clusters:pods:translate": ("Translate a pod to queries.", f"POST {_CLUSTER}/pods/translation"),
    "clusters:pods:preview": ("Show where a pod would go.", f"POST {_CLUSTER}/pods/preview"),
    "clusters:pods:preemption": (
        "Ask which pods to evict so that a pod fits.",
        f"POST {_CLUSTER}/pods/preemption",
    ),
    "clusters:reservations:list": ("List the reservations of a cluster.", f"GET {_CLUSTER}/reservations"),
    "clusters:reservations:show": ("Show a reservation.", f"GET {_RESERVATION}"),
    "clusters:reservations:update": ("Place a reservation, or change its terms.", f"PUT {_RESERVATION}"),
    "clusters:reservations:delete": ("Release a reservation.", f"DELETE {_RESERVATION}"),
    "clusters:extender:filter": (
        "Ask, as a scheduler, which nodes fit a pod.",
        f"POST {_CLUSTER}/extender/filter",
    ),
    "clusters:extender:prioritize": (
        "Ask, as a scheduler, how well nodes fit a pod.",
        f"POST {_CLUSTER}/extender/prioritize",
    ),
    "clusters:extender:preempt": (
        "Ask, as a scheduler, which pods to evict so that a pod fits.",
        f"POST {_CLUSTER}/extender/preempt",
    ),
    "clusters:extender:bind": ("Bind, as a scheduler, a pod to a node.", f"POST {_CLUSTER}/extender/bind"),
    "status:show": ("Show which service answers, and to which caller.", "GET /ext/v1/status"),
    "audit:list": ("List changes and their callers.", "GET /ext/v1/audit"),
    "events:list": ("Follow changes of providers and consumers.", "GET /ext/v1/events"),
    "capacity:show": ("Ask how many more fit.", "GET /ext/v1/capacity", "POST /ext/v1/capacity"),
    "plans:make": (
        "Ask which moves would free an amount or empty hosts, and whether they are still possible.",
        "POST /ext/v1/plans",
        "POST /ext/v1/plans/check",
    ),
    "flavors:translate": ("Translate a nova flavor.", "POST /ext/v1/flavors/translation"),
    "flavors:candidates": ("Find where a nova flavor fits.", "POST /ext/v1/flavors/candidates"),
}
# The rules of questions that are asked with POST, as they may be long, and that write nothing.
_QUESTIONS = {
    "allocation_candidates:list",
    "capacity:show",
    "clusters:pods:preemption",
    "clusters:pods:preview",
    "clusters:pods:translate",
    "flavors:candidates",
    "flavors:translate",
    "plans:make",
}
# The checks of rules that do not let administrators and services pass.
_CHECKS = {
    "usages": f"rule:admin_or_project_reader_or_service_api or rule:{READER}",
    "reshaper:reshape": "rule:service_api",
    "audit:list": f"rule:admin_api or rule:{READER}",
    **{
        f"clusters:extender:{verb}": "rule:admin_or_service_or_extender_api"
        for verb in (FILTER, PRIORITIZE, PREEMPT, BIND)
    },
}


def _usual_check(short_name: str, routes: Iterable[str]) -> str:
    reads = short_name in _QUESTIONS or all(each.startswith("GET ") for each in routes)
    return "rule:admin_or_service_or_reader_api" if reads else "rule:admin_or_service_api"


def list_rules() -> Iterator[policy.RuleDefault]:
    """Yield all rules, for the generators and checkers of the policy library."""
    for name, (check, description) in _BASES.items():
        yield policy.RuleDefault(name, check, description=description)
    for short_name, (description, *routes) in _RULES.items():
        name = f"placement:{short_name}"
        yield policy.DocumentedRuleDefault(
            name=name,
            check_str=_CHECKS.get(short_name) or _usual_check(short_name, routes),
            description=description,
            operations=[{"method": method, "path": path} for method, path in map(str.split, routes)],
            scope_types=["project"],
            deprecated_rule=policy.DeprecatedRule(
                name=name,
                check_str="rule:admin_api",
                deprecated_reason="Roles beside the administrator's were introduced.",
                deprecated_since="1.0",
            ),
        )
