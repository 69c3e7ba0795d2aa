"""The operations that clients call are those of the service."""

import pytest

from delvec_contract import operations
from delvec_contract.operations import Operation
from delvec_service.api.all_routes import ROUTES
from delvec_service.operations import plans
from delvec_service.operations.call import function_of

OPERATIONS = {name: each for name, each in vars(operations).items() if isinstance(each, Operation)}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_a_route_of_its_name(name):
    operation = OPERATIONS[name]
    routes = {route.name: route for route in ROUTES if route.path.startswith("/v1/")}

    route = routes[operation.name]
    assert (route.path, route.methods) == (operation.path, {operation.method})
    assert operation.takes_long == (route.kind == "maintenance")
    body = route.response_field
    if operation.method != "DELETE" or operation.answer is not type(None):
        assert body.field_info.annotation is operation.answer
    else:
        assert body is None


def test_an_operation_has_one_function_for_both_ways_to_the_service():
    of_plans = {operations.PLAN_SCAN, operations.PLAN_CHANGES, operations.PLAN_ADDITIONS}
    for operation in set(OPERATIONS.values()) - {operations.COMMIT}:
        function = getattr(plans, operation.name) if operation in of_plans else function_of(operation.name)
        assert function.__name__ == operation.name
