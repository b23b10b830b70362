"""The reasons why a flavor cannot be translated: all at once, in the order the rules check them.

BadRequest
 +-- FlavorRefused     carries all problems; the first one is the one the rules name as the outcome
"""

from __future__ import annotations

import reprlib
from typing import Final, Literal, NamedTuple

from placement.engine.domain.errors import BadRequest

Code = Literal[
    "flavor_invalid",
    "image_invalid",
    "options_invalid",
    "extra_spec_invalid",
    "flavor_image_conflict",
    "value_invalid",
    "machine_type_invalid",
    "stateless_firmware_required",
    "cpuset_invalid",
    "realtime_mask_invalid",
    "emulator_policy_invalid",
    "cpu_policy_invalid",
    "cpu_policy_conflict",
    "cpu_thread_policy_invalid",
    "cpu_thread_policy_conflict",
    "dedicated_mask_invalid",
    "cpu_resources_conflict",
    "cpu_resources_mismatch",
    "hyperthreading_conflict",
    "cpu_thread_policy_needs_pinning",
    "emulator_policy_needs_pinning",
    "dedicated_mask_needs_mixed",
    "realtime_needs_pinning",
    "mixed_needs_one_mask",
    "numa_nodes_invalid",
    "page_size_invalid",
    "page_size_forbidden",
    "numa_image_forbidden",
    "numa_mem_invalid",
    "numa_incomplete",
    "numa_asymmetric",
    "numa_cpu_out_of_range",
    "numa_cpu_duplicate",
    "numa_cpu_unassigned",
    "numa_memory_mismatch",
    "trait_conflict",
    "numa_override_conflict",
    "group_policy_conflict",
    "traits_without_resources",
    "no_resources",
    "group_policy_required",
]

REFUSED: Final = "refused"
"""Stands for a value that was given but refused; checks that would need the real value are left out."""

MAX_MESSAGE = 300
"""Characters of one message; names and lists in it come from the input and may be of any length."""

_SHORT = reprlib.Repr()
_SHORT.maxstring = 80
_SHORT.maxother = 80


class FlavorProblem(NamedTuple):
    """One reason: a stable code, and a sentence that starts with the extra spec or property at fault."""

    code: Code
    message: str


class FlavorRefused(BadRequest):
    """The flavor, image or options cannot be translated; `problems` holds every reason, first one first."""

    def __init__(self, problems: tuple[FlavorProblem, ...]) -> None:
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = problems


class Problems:
    """A list that gathers reasons in the order they are found; a reason found twice is kept once."""

    def __init__(self) -> None:
        self._found: dict[FlavorProblem, None] = {}

    def add(self, code: Code, message: str) -> None:
        """Keep one more reason; a message too long to be read is cut."""
        if len(message) > MAX_MESSAGE:
            message = f"{message[: MAX_MESSAGE - 3]}..."
        self._found[FlavorProblem(code, message)] = None

    def __len__(self) -> int:
        return len(self._found)

    def raise_if_any(self) -> None:
        """Raise FlavorRefused with everything found, or return when nothing was."""
        if self._found:
            raise FlavorRefused(tuple(self._found))


def shown(value: object) -> str:
    """Return the value quoted for a message, cut short so that a huge input does not become a huge answer."""
    return _SHORT.repr(value)
