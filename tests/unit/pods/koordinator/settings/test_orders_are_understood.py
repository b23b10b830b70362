"""An order of candidates may be a name, our JSON, or what kube-scheduler is configured with."""

import pytest

from placement.allocations.orders import order_of
from placement.engine.domain.errors import BadRequest
from placement.engine.scoring.order import NAMED


def test_names_stand_for_orders():
    assert order_of("none", "order_by") is None
    assert order_of("  ", "order_by") is None
    for name, order in NAMED.items():
        assert order_of(f" {name} ", "order_by") == order


def test_packing_prefers_what_spreading_avoids():
    (pack,), (spread,) = NAMED["pack"].strategies, NAMED["spread"].strategies
    assert pack.type == spread.type == "RequestedToCapacityRatio"
    assert pack.shape.points != spread.shape.points
    levels = [sorted(level for _, level in order.shape.points) for order in (pack, spread)]
    assert levels[0] == levels[1]


def test_json_and_its_text_mean_the_same():
    given = [{"type": "LeastAllocated", "resources": [{"name": "VCPU", "weight": 3}]}]
    order = order_of(given, "scoring")
    assert order == order_of('[{"type":"LeastAllocated","resources":[{"name":"VCPU","weight":3}]}]', "x")
    assert order.strategies[0].resources == (("VCPU", 3),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("zebra", "order_by: 'zebra' is no known order"),
        ("{", "order_by: Malformed JSON"),
        ('[{"type": "LeastAllocated", "weight": NaN}]', "order_by: Malformed JSON"),
        ('[{"type": "\\ud800"}]', "order_by: Malformed JSON"),
        ('[{"type": "Zebra"}]', "order_by"),
    ],
)
def test_what_is_no_order_is_refused_by_the_name_of_the_field(text, said):
    with pytest.raises(BadRequest) as refused:
        order_of(text, "order_by")
    assert str(refused.value).startswith(said)
