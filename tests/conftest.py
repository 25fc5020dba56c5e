"""Every change is tested with the same examples; fresh ones come nightly, with PIANISSIMO_FRESH_NOISE set."""

import os

from hypothesis import settings

settings.register_profile("every change", deadline=None, derandomize=True)
settings.register_profile("nightly", deadline=None)
settings.load_profile("nightly" if os.environ.get("PIANISSIMO_FRESH_NOISE") else "every change")
