"""Standing queries as SQL text: read by us, put together by shape, and never seen by Spark's own parser.

The package is also the verb: `ps.sql(text, …)` is `penstock.sql.run.sql`. Its name and that of its folder are the same,
and importing a part of the folder binds the folder to `ps.sql`; so the folder can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    def __call__(self, *given: Any, **options: Any) -> Any:
        from penstock.sql.run import sql

        return sql(*given, **options)


sys.modules[__name__].__class__ = _Verb
