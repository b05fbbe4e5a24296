"""The token that every call must bring: made once, shown once, kept as a hash."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path

from penstock.errors import ServerDamaged

_FILE = "token.json"


class Token:
    """Knows the right token when it sees it, and cannot say it."""

    def __init__(self, digest: str) -> None:
        self._digest = digest

    def fits(self, given: str) -> bool:
        """Whether it is the token; takes as long for any that is not."""
        return hmac.compare_digest(_hash(given), self._digest)


def open_token(folder: Path, *, anew: bool = False) -> tuple[Token, str | None]:
    """The token of a server's folder, and its text if it was made just now: the only time that anybody sees it."""
    path = folder / _FILE
    if path.exists() and not anew:
        try:
            digest = str(json.loads(path.read_text())["sha256"])
            if len(bytes.fromhex(digest)) != 32:
                raise ValueError
            path.chmod(0o600)  # a copy of the folder may have other rights
        except (ValueError, KeyError, TypeError, OSError) as fault:
            why = f"{fault.strerror}." if isinstance(fault, OSError) else "It is cut or changed."
            raise ServerDamaged(
                f"{path} is not a token of this user.", why=why, do="Make a new one: penstock serve … --new-token."
            ) from None
        return Token(digest), None
    text = secrets.token_urlsafe(32)
    scratch = path.with_name(f".{_FILE}")
    scratch.unlink(missing_ok=True)
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as out:
        json.dump({"sha256": _hash(text)}, out)
        out.flush()
        os.fsync(out.fileno())
    scratch.rename(path)
    return Token(_hash(text)), text


def _hash(text: str) -> str:
    # 256 random bits need no slow hash: nobody guesses them.
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
