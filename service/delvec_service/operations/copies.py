"""Tables made of the files of others: CLONE, and CONVERT TO DELTA.

Tested in `tests/integration/service/cloning/test_clone.py` and `tests/integration/service/cloning/test_convert.py`.
"""

from delvec_contract.tables import CloneRequest, CloneResponse, ConvertRequest, ConvertResponse
from delvec_service.cloning.clone import Cloned, NotCloned, clone
from delvec_service.cloning.convert import convert
from delvec_service.logs import bind_log_context
from delvec_service.operations.call import Call
from delvec_service.operations.tables import resource


def clone_table(call: Call[CloneRequest]) -> CloneResponse:
    """Clone a version of the table: shallow, which refers to its files, or deep, which copies them."""
    table, service, access, request = call.table, call.service, call.access, call.request
    bind_log_context(change=f"to {request.name or request.location}")
    access.require_place(service.tables, request.location, request.name)
    clone_result = clone(
        table,
        service.tables,
        service.loader,
        service.commits,
        service.clone_store,
        request,
        call.transaction_id,
        access,
    )
    if isinstance(clone_result, Cloned):
        if not clone_result.replaced:
            _created(call, clone_result.record.id, clone_result.version)
        return CloneResponse(
            result="replaced" if clone_result.replaced else "created",
            table=resource(clone_result.record, clone_result.version),
            version=clone_result.version,
            source_version=clone_result.source_version,
            operation_metrics=clone_result.metrics,
        )
    if isinstance(clone_result, NotCloned):
        return CloneResponse(
            result="exists",
            table=resource(clone_result.record),
            version=None,
            source_version=None,
            operation_metrics={},
        )
    raise clone_result.error(table.name)


def convert_to_delta(call: Call[ConvertRequest]) -> ConvertResponse:
    """Create a Delta table from the Parquet files of a directory. The log is written; no data file changes."""
    service, access, request = call.service, call.access, call.request
    bind_log_context(table=request.name, change=request.location)
    access.require_place(service.tables, request.location, request.name)
    if request.source_format == "iceberg":
        access.require_all("admin", "importing Iceberg tables, whose metadata may name any file,")
    convert_result = convert(service.tables, service.clone_store, request, call.transaction_id, access)
    record, version = convert_result.record, convert_result.version
    bind_log_context(table=record.name, table_id=record.id, version=version)
    if version is not None:
        _created(call, record.id, version)
    return ConvertResponse(
        result="exists" if version is None else "converted",
        table=resource(record, version),
        version=version,
        operation_metrics=convert_result.metrics,
    )


def _created(call: Call[CloneRequest] | Call[ConvertRequest], table_id: str, version: int) -> None:
    """Do what follows the first commit of a table."""
    service, made = call.service, call.service.tables.open(table_id)
    configuration = service.loader.load(made.objects, made.name).configuration
    service.commits.post_commit.notify(made, version, call.transaction_id, configuration)
