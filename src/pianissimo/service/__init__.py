"""What was released, over HTTP: live, with error bars, in any browser.

A process of its own that opens stores read-only and holds no secret. Needs `pip install pianissimo[serve]`.
"""

from pianissimo.service.app import viewer_app
from pianissimo.service.server import serving
from pianissimo.service.tokens import TokenFile

__all__ = ["TokenFile", "serving", "viewer_app"]
