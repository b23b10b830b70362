"""Values that flavor and image may both set: equal ones, or for a policy the ones that a table allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placement.flavors.nova.flavor import ImageProperties, given
from placement.flavors.nova.problems import REFUSED, Code, Problems, shown


def agreed_value(
    extra_specs: Mapping[str, str],
    image: ImageProperties,
    keys: tuple[str, str],
    values: Sequence[str],
    problems: Problems,
) -> str | None:
    """Return the value of a (flavor key, image key) pair, None if neither is set, REFUSED after a problem.

    Adds `flavor_image_conflict` if the two differ and `value_invalid` for a value that is not in the list.
    Source: nova-flavors.md, "Optional additions".
    """
    found_before = len(problems)
    ours, theirs = given(extra_specs, keys[0]), given(image, keys[1])
    if ours is not None and theirs is not None and ours != theirs:
        message = f"{shown(ours)} differs from {keys[1]} {shown(theirs)} of the image"
        problems.add("flavor_image_conflict", keys[0], message)
    for key, text in zip(keys, (ours, theirs), strict=True):
        if text is not None and text not in values:
            problems.add("value_invalid", key, f"{shown(text)} is not one of {', '.join(values)}")
    return REFUSED if len(problems) > found_before else ours or theirs


@dataclass(frozen=True, slots=True)
class PolicyTable:
    """The keys and legal values of one policy, the flavor value that rules, and the codes of its problems."""

    flavor_key: str
    image_key: str
    values: tuple[str, ...]
    ruling_value: str
    invalid: Code
    conflict: Code

    def settle(self, flavor_policy: str | None, image_policy: str | None, problems: Problems) -> str | None:
        """Return the policy of both sides, None if neither sets one, or REFUSED after a problem.

        An image may only repeat what the flavor says, or speak where the flavor is silent; under the ruling
        value it is ignored.
        """
        found_before = len(problems)
        for key, policy in ((self.flavor_key, flavor_policy), (self.image_key, image_policy)):
            if policy is not None and policy not in self.values:
                problems.add(self.invalid, key, f"{shown(policy)} is not one of {', '.join(self.values)}")
        if len(problems) > found_before:
            return REFUSED
        if flavor_policy is None:
            return image_policy
        if flavor_policy == self.ruling_value or image_policy in (None, flavor_policy):
            return flavor_policy
        message = f"{flavor_policy} does not go with {self.image_key} {image_policy} of the image"
        problems.add(self.conflict, self.flavor_key, message)
        return REFUSED
