"""Dagster assets in Delvec tables: a resource and an I/O manager. Tried with Dagster 1.13.

    DELVEC_URL=http://localhost:8710 python examples/dagster_asset.py   # or: dagster dev -f examples/dagster_asset.py

An asset is the table of its name. Without DELVEC_URL the tables are created under ./lake.
"""

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

import delvec


class DelvecResource(dg.ConfigurableResource):
    """Where the tables are."""

    url: str = dg.EnvVar("DELVEC_URL").get_value("./lake")
    token: str | None = None

    def connect(self) -> delvec.Connection:
        """Return a connection, which the caller closes."""
        return delvec.connect(self.url, token=self.token)


class DelvecIOManager(dg.ConfigurableIOManager):
    """Stores what assets return: replaces a table, or merges by the columns of the metadata ``key``."""

    delvec: DelvecResource

    def handle_output(self, context: dg.OutputContext, obj: pa.Table) -> None:
        """Write an asset in one commit."""
        keys = context.definition_metadata.get("key", [])
        with self.delvec.connect() as lake:
            table = lake.create_table(_name(context), obj.schema, if_not_exists=True)
            if keys:
                on = " AND ".join(f"target.`{key}` = source.`{key}`" for key in keys)
                builder = table.merge(obj, on).when_matched_update_all().when_not_matched_insert_all()
                metrics = builder.execute(user_metadata=context.run_id)
            else:
                metrics = table.overwrite(obj, overwrite_schema=True, user_metadata=context.run_id)
        context.add_output_metadata({"version": metrics.version, **metrics})

    def load_input(self, context: dg.InputContext) -> pa.Table:
        """Read an asset at its newest version."""
        with self.delvec.connect() as lake:
            return lake.table(_name(context)).to_arrow()


def _name(context: dg.InputContext | dg.OutputContext) -> str:
    return ".".join(context.asset_key.path)


@dg.asset(metadata={"key": ["id"]})
def people() -> pa.Table:
    """Merge people by id."""
    return pa.table({"id": [1, 2], "country": ["NZ", "DE"]})


@dg.asset
def countries(people: pa.Table) -> pa.Table:
    """Count people by country."""
    return people.group_by("country").aggregate([("id", "count")]).sort_by("country")


@dg.asset_check(asset=people)
def people_have_a_country(people: pa.Table) -> dg.AssetCheckResult:
    """Check that no country is NULL."""
    missing = people.filter(pc.is_null(people["country"])).num_rows
    return dg.AssetCheckResult(passed=missing == 0, metadata={"missing": missing})


definitions = dg.Definitions(
    assets=[people, countries],
    asset_checks=[people_have_a_country],
    resources={"io_manager": DelvecIOManager(delvec=DelvecResource())},
)

if __name__ == "__main__":
    result = definitions.resolve_implicit_global_asset_job_def().execute_in_process()
    assert result.success
    with DelvecResource().connect() as lake:
        print(lake.table("countries").to_arrow().to_pylist())
