"""Below `penstock.spark` nothing loads pyspark or pandas: kernels start fast, and run where Spark is not."""

import json
import subprocess
import sys

LOADED = """
import importlib, json, pkgutil, sys
seen = {}
for root in sys.argv[1:]:
    module = importlib.import_module(root)
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), root + "."):
        importlib.import_module(found.name)
    seen[root] = [name for name in ("pyspark", "pandas", "py4j") if name in sys.modules]
print(json.dumps(seen))
"""


def load(*roots: str) -> dict[str, list[str]]:
    """Import these modules one after the other, with all below them, in a process of its own; what each brought."""
    done = subprocess.run([sys.executable, "-c", LOADED, *roots], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_import_penstock_is_light():
    program = "import penstock, sys; print([m for m in ('pyspark', 'pandas', 'numpy', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_no_pyspark_and_no_pandas():
    layers = ("errors", "kernels", "tables", "models", "quality", "plan", "broker", "testing.conformance", "sql.plans")
    roots = [f"penstock.{layer}" for layer in (*layers, "sql.answers")]
    # The last one shows that the check would see them.
    assert load(*roots, "pandas.api.types") == {root: [] for root in roots} | {"pandas.api.types": ["pandas"]}


def test_what_spark_loads_to_learn_the_names_of_states_is_light():
    """Spark unpickles the processor in a new process whenever a query starts."""
    program = (
        "import sys, penstock.spark.processor; "
        "print([m for m in ('pandas', 'numba', 'pyarrow', 'penstock.spark.host') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
