"""Write what `test_kinds_of_identity.py` compares with anew: `python -m tests.pin_identities`."""

import json

from tests.test_kinds_of_identity import PINNED, pinned_kinds

if __name__ == "__main__":
    PINNED.write_text(json.dumps(pinned_kinds(), indent=1) + "\n", encoding="utf-8")
