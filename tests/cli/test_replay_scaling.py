"""`bai admin replay-scaling`: input files, rules, table and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bai_services.cli.main import main

from .test_golden import compare


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two bursts of requests of 4 s, an hour apart, and single requests between them."""
    bursts = [(start + number * 0.25, 4) for start in (0, 3600) for number in range(400)]
    singles = [(400 + number * 20, 2) for number in range(20)]
    path = tmp_path / "arrivals.csv"
    path.write_text("at,seconds\n" + "\n".join(f"{at},{s}" for at, s in [*bursts, *singles]))
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["admin", "replay-scaling", *map(str, arguments)])


def test_table_equals_the_golden_file(file: Path) -> None:
    result = run(file, "--rule", "min=0,max=12,target=4", "--startup", "30")
    assert result.exit_code == 0, result.output
    compare("replay-scaling", result.stdout)


def test_json_lines_give_the_same_result(file: Path, tmp_path: Path) -> None:
    lines = file.read_text().splitlines()[1:]
    rows = [
        dict(zip(("at", "seconds"), map(float, line.split(",")), strict=True)) for line in lines
    ]
    other = tmp_path / "arrivals.jsonl"
    other.write_text("\n".join(json.dumps(row) for row in rows))
    results = [run(path, "--rule", "min=0,max=12,target=4", "--json") for path in (file, other)]
    documents = [json.loads(result.stdout) for result in results]
    assert documents[0] == documents[1]
    found = documents[0]
    assert found["rule"]["requests"] == 820
    assert found["rule"]["cold_starts"] >= 2
    assert found["fixed fleet"]["starts"] == 0
    assert found["fixed fleet"]["p99_wait_seconds"] <= found["rule"]["p99_wait_seconds"]
    assert found["rule"]["gpu_hours"] < found["fixed fleet"]["gpu_hours"]


@pytest.mark.parametrize(
    ("content", "rule", "message"),
    [
        ("at,seconds\n", "max=2", "contains no arrivals"),
        ("at\n1\n", "max=2", "no column seconds"),
        ("at,seconds\n1,x\n", "max=2", "row 2, column seconds: 'x'"),
        ("at,seconds\n0,1\n9999999,1\n", "max=2", "more than 7 days"),
        ('{"at": 1}\n', "max=2", "row 1, column seconds"),
        ('{"at": 1\n', "max=2", "row 1 is not a JSON object"),
        ("at,seconds\n1,3600\n1,3600\n1,3600\n", "max=1,target=1", "raise max"),
        ("at,seconds\n1,1\n", "max=0", "max must be at least 1"),
        ("at,seconds\n1,1\n", "speed=3", "'speed' is not one of"),
        ("at,seconds\n1,1\n", "max=2,idle=never", "'never' is not a duration"),
        ("at,seconds\n1,1\n", "max=2,target=0", "target: '0' is not a positive number"),
    ],
)
def test_invalid_input_is_refused(tmp_path: Path, content: str, rule: str, message: str) -> None:
    file = tmp_path / "arrivals.csv"
    file.write_text(content)
    result = run(file, "--rule", rule, "--json")
    assert result.exit_code != 0
    assert message in json.loads(result.stderr)["message"]
