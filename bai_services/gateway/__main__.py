"""``python -m bai_services.gateway``"""

from bai_services.system.imports import no_garbage_collections

with no_garbage_collections():
    from .app import main

main()
