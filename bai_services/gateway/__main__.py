"""``python -m bai_services.gateway``"""

from .app import main

main()
