"""Below `penstock.spark` nothing loads pyspark or pandas: kernels start fast, and run where Spark is not."""

import json
import subprocess
import sys

import pytest

LOADED = """
import importlib, json, pkgutil, sys
names = []
for root in sys.argv[1:]:
    module = importlib.import_module(root)
    names.append(root)
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), root + "."):
        importlib.import_module(found.name)
        names.append(found.name)
print(json.dumps({"names": names, "heavy": [m for m in ("pyspark", "pandas", "py4j") if m in sys.modules]}))
"""


def load(*roots: str) -> dict[str, list[str]]:
    """Import these modules, with all below them, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", LOADED, *roots], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_import_penstock_is_light():
    program = "import penstock, sys; print([m for m in ('pyspark', 'pandas', 'numpy', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "root",
    [
        "penstock.errors",
        "penstock.kernels.contract",
        "penstock.kernels",
        "penstock.tables",
        "penstock.models",
        "penstock.plan",
        "penstock.broker",
    ],
)
def test_no_pyspark_and_no_pandas(root):
    loaded = load(root)
    assert root in loaded["names"]
    assert loaded["heavy"] == []


def test_the_check_would_see_them():
    assert load("pandas.api.types")["heavy"] == ["pandas"]


def test_what_spark_loads_to_learn_the_names_of_states_is_light():
    """Spark unpickles the processor in a new process whenever a query starts."""
    program = (
        "import sys, penstock.spark.processor; "
        "print([m for m in ('pandas', 'numba', 'pyarrow', 'penstock.spark.host') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
