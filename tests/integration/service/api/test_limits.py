"""Limits of requests over HTTP: over a limit is 429, for one principal."""

from tests.integration.service.conftest import SCHEMA

ADMIN = "the-configured-token"


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def test_over_http_a_limit_is_429_for_one_principal_and_counted(running, tmp_path, error):
    with running(
        token=ADMIN,
        roots=(str(tmp_path),),
        database_url=f"sqlite:///{tmp_path / 'store.db'}",
        principal_requests_per_second=0.5,
        principal_bytes_per_second=1e9,
        table_commits_per_second=0.5,
    ) as client:
        (limits,) = (each.kwargs["limits"] for each in client.app.user_middleware if "limits" in each.kwargs)
        limits._clock = clock = Clock()

        def ask(method, path, bearer=ADMIN, **options):
            headers = {"Authorization": f"Bearer {bearer}"}
            return client.request(method, path, headers=headers, **options)

        def as_time_goes_by(*arguments, **options):
            clock.now += 2
            return ask(*arguments, **options)

        as_time_goes_by("POST", "/v1/tables", json={"name": "sales.orders", "schema": SCHEMA})
        identifier = as_time_goes_by("GET", "/v1/tables/sales.orders").json()["id"]
        other = as_time_goes_by("POST", "/v1/tokens", json={"name": "etl"}).json()["token"]
        grant = {"grantee": "etl", "role": "writer", "namespace": "sales"}
        assert as_time_goes_by("POST", "/v1/grants", json=grant).status_code == 200

        over = ask("GET", "/v1/tables")
        assert (over.status_code, over.headers["Retry-After"], error(over)["code"]) == (
            429,
            "2",
            "TOO_MANY_REQUESTS",
        )
        assert error(over)["retryable"]
        assert error(over)["details"]["name"] == "DELVEC_TOKEN"
        assert ask("GET", "/v1/tables", other).status_code == 200  # another principal

        body = {"operation": "WRITE", "adds": [], "read-version": 0}
        clock.now += 10
        by_id = ask("POST", f"/v1/tables/{identifier}/commits", json=body)
        assert by_id.status_code in (200, 400), by_id.text
        by_name = ask("POST", "/v1/tables/sales.orders/commits", other, json=body)
        assert error(by_name)["message"].startswith("Table 'sales.orders' is limited to 0.5 commits a second")
        clock.now += 10
        lines = ask("GET", "/metrics").text.splitlines()
        assert 'delvec_requests_limited_total{limit="requests",of="principal"} 1.0' in lines
        assert 'delvec_requests_limited_total{limit="commits",of="table"} 1.0' in lines
        clock.now += 10
        assert "TOO_MANY_REQUESTS" not in ask("GET", "/v1/audit").text
