from hypothesis import given
from hypothesis import strategies as st

from placement.flavors.nova.cells import deal


def walked(sizes, shared, dedicated):
    """The rule word for word: one walk, one token after the other."""
    held = ["" for _ in sizes]
    turn = 0
    for token in "V" * shared + "P" * dedicated:
        while len(held[turn % len(sizes)]) == sizes[turn % len(sizes)]:
            turn += 1
        held[turn % len(sizes)] += token
        turn += 1
    return [(tokens.count("V"), tokens.count("P")) for tokens in held]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.data())
def test_dealing_equals_the_walk_of_single_tokens(sizes, data):
    shared = data.draw(st.integers(0, sum(sizes)))
    dedicated = sum(sizes) - shared
    assert deal(sizes, shared, dedicated) == walked(sizes, shared, dedicated)
