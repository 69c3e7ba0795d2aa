"""Every example of the documentation runs, in order, and again on what the first time left."""

import ast

import pytest
from tests.docs.examples.pages import PAGES, PageError, examples
from tests.docs.examples.reader import Reader

NOT_RUN = {
    "README.md": 1,
    "docs/docker.md": 1,
    "docs/events.md": 2,
    "docs/first-hour-spark.md": 1,
    "docs/kubernetes.md": 1,
    "docs/iceberg-catalog.md": 3,
    "docs/iceberg.md": 1,
    "docs/maintenance.md": 1,
    "docs/monitoring.md": 1,
    "docs/object-stores.md": 1,
    "docs/python.md": 1,
    "docs/replicas.md": 1,
    "docs/security.md": 2,
    "docs/service.md": 1,
    "docs/sql.md": 1,
    "docs/tools.md": 4,
    "docs/tutorial.md": 1,
}
"""How many examples of a page do not run; the page's source says why. Everything else does."""


MANY_PROCESSES = (
    *(
        "docs/check.md",
        "docs/cli.md",
        "docs/events.md",
        "docs/first-hour-rest.md",
        "docs/health.md",
        "docs/maintenance.md",
        "docs/optimize.md",
        "docs/repair.md",
    ),
    *("docs/restore.md", "docs/security.md", "docs/service.md", "docs/upgrading.md", "docs/vacuum.md"),
)
"""Pages that start many commands of the shell, each a process; tests of the shell run these commands, too."""


def needs_spark(example):
    """Whether a name ``spark`` occurs, or SQL that names a data source of Spark's."""
    if example.reason or example.language == "shell":
        return False
    if example.language == "sql":
        return "USING delvec" in example.code
    return any(
        isinstance(node, ast.Name) and node.id == "spark" for node in ast.walk(ast.parse(example.code))
    )


def with_examples():
    for page in PAGES:
        found = [example for example in examples(page) if not example.reason]
        if found:
            marks = [pytest.mark.spark] if any(map(needs_spark, found)) else []
            if any(map(needs_spark, found)):
                marks.append(pytest.mark.full("the gate's tests on Spark run the same commands"))
            if page in MANY_PROCESSES:
                marks.append(pytest.mark.full("starts many commands of the shell, each a process"))
            yield pytest.param(page, marks=marks, id=page.removeprefix("docs/"))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "times",
    [
        1,
        pytest.param(
            2,
            marks=pytest.mark.full(
                "one run shows that the examples work; the second that they can be repeated"
            ),
        ),
    ],
)
@pytest.mark.parametrize("page", list(with_examples()))
def test_examples_run_and_run_again(page, times, tmp_path, monkeypatch, request):
    found = examples(page)
    spark = request.getfixturevalue("spark") if any(map(needs_spark, found)) else None
    for name in ("DELVEC_URL", "DELVEC_TOKEN", "DELVEC_ROOTS", "DELVEC_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    reader = Reader(tmp_path, spark)
    monkeypatch.chdir(reader.workplace)

    for _ in range(times):
        reader.read(found)


def test_examples_that_do_not_run_are_counted():
    left_out = {page: sum(bool(example.reason) for example in examples(page)) for page in PAGES}

    assert {page: count for page, count in left_out.items() if count} == NOT_RUN


PAGE = """# A page

<!-- setup: python
number = 1
-->

```python
print(number + 1, "apples", object())
```

```text
2 apples <object …>
```

<!-- not run: needs a cluster -->

```shell
false
```

```shell
export FRUIT=apples
```

```shell
test $FRUIT = apples
echo '{"a": [1, 2], "b": 3}'
```

```json
{"a": [1, "…"], "…": "…"}
```
"""


def test_page_is_read_as_its_author_means_it(tmp_path):
    setup, printing, left_out, _, last = examples("page", PAGE)

    assert (setup.code, setup.place) == ("number = 1\n", "page:3")
    assert (printing.output, printing.output_language) == ("2 apples <object …>\n", "text")
    assert left_out.reason == "needs a cluster"
    assert last.output_language == "json"
    Reader(tmp_path).read(examples("page", PAGE))


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        ("number + 1", "number + 2", "page:7 prints\n3 apples"),
        ("number + 1", "numbers", "page:7 failed: NameError"),
        ('"b": 3', '"c": 3, "a": [2]', "page:25 prints"),
        ("echo", "exit 3; echo", "page:25 failed with code 3"),
    ],
)
def test_example_that_fails_or_prints_something_else_is_named(was, becomes, says, tmp_path):
    with pytest.raises(AssertionError, match=says):
        Reader(tmp_path).read(examples("page", PAGE.replace(was, becomes)))


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        ("```shell\nfalse", "```scala\nfalse", "not scala"),
        ("needs a cluster ", "", "say why"),
        ("setup: python", "setup: cobol", "begins with its language"),
        ("-->\n\n```python", "\n\n```python", "not closed"),
    ],
)
def test_page_that_is_not_written_so_is_refused(was, becomes, says):
    with pytest.raises(PageError, match=says):
        examples("page", PAGE.replace(was, becomes))
