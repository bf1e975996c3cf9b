"""``python -m bai_services.agent``"""

from bai_services.system.imports import no_garbage_collections

with no_garbage_collections():
    from .app import main

main()
